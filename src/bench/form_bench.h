// Both forms of one shape's attention, timed side by side as an engine runs a prompt: in chunks, and over several
// layers in turn, so that weights and rows are as cold as a model's.
#ifndef MLA_BENCH_FORM_BENCH_H_
#define MLA_BENCH_FORM_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/dtypes.h"
#include "mla/executor.h"
#include "mla/result.h"

namespace mla::bench {

struct FormPlan {
  MlaDims dims;
  DType kv_dtype = DType::kBF16;
  WeightDType weights = WeightDType::kBF16;
  std::int64_t chunk = 512;  // rows of a call
  std::int64_t max_keys = 1;
  std::int64_t layers = 2;  // that runs take in turn
};

// Layers whose weights and rows are 256 MiB, beyond most caches; from 2 to 16.
std::int64_t LayersFor(const FormPlan& plan);

class FormBench {
 public:
  // Bytes that Create allocates.
  static std::int64_t PlannedBytes(const FormPlan& plan, int workers);
  // Random rows, weights and queries. Precondition: the machine has `isa`, and its kernels pass their self-test. Fails
  // where memory can't be had. `executor` outlives the bench.
  static Result<FormBench> Create(const FormPlan& plan, Isa isa, Executor& executor);

  // Seconds that rows [first, first + rows) of a sequence take in that form, by chunks, each in the next layer.
  // Precondition: first + rows <= max_keys.
  double Seconds(Form form, std::int64_t first, std::int64_t rows);

 private:
  FormBench(const FormPlan& plan, Executor* executor) : plan_(plan), executor_(executor) {}
  MlaAttention::Options Options(Isa isa, int workers) const;
  void Place(Carver* carver);
  Status Fill();

  FormPlan plan_;
  Executor* executor_;
  Buffer buffer_;
  float* drawn_ = nullptr;  // [H (N + V), R], before it is packed
  float* q_ = nullptr;      // [chunk, H, N + P]
  float* out_ = nullptr;    // [chunk, H, V]
  std::vector<std::int32_t> pages_;
  std::vector<KvBWeights> weights_;  // one a layer
  std::optional<LatentCache> cache_;
  std::optional<MlaAttention> attention_;
  std::int64_t next_layer_ = 0;
};

// The forms' seconds of the same rows, sample by sample: one after the other, so that the machine's own load meets
// both.
struct FormPairs {
  std::vector<double> mha;
  std::vector<double> absorbed;

  // The tenth percentile of a form's: whatever else runs on the machine only adds to them. Precondition: there are
  // some.
  double Seconds(Form form) const;
};
// The k-th point of a pass over `points`: every second pass goes backwards. What comes after points of seconds may run
// at a tenth of its speed for a while (seen after 30 s of long points on a virtual machine), and is measured after
// short ones too.
inline std::size_t AlongPass(std::int64_t pass, std::size_t k, std::size_t points) {
  return pass % 2 == 0 ? k : points - 1 - k;
}
// A point of a pass over many: short ones are repeated, long ones average by themselves.
inline constexpr double kPointSeconds = 30e-3;
inline constexpr std::int64_t kMostPairs = 8;
// Adds pairs until they took `seconds`, or are `most`; one at least, and three where four times `seconds` allow it.
void AddPairs(FormBench* bench, std::int64_t first, std::int64_t rows, double seconds, std::int64_t most,
              FormPairs* pairs);

}  // namespace mla::bench

#endif  // MLA_BENCH_FORM_BENCH_H_
