// A layer's attention over cached rows: what MlaAttention::Run does, projections by kv_b_proj included.
#ifndef MLA_BENCH_ATTENTION_BENCH_H_
#define MLA_BENCH_ATTENTION_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "bench/case_result.h"
#include "bench/probe.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/result.h"

namespace mla::bench {

struct AttentionPlan {
  std::string name;
  MlaDims dims;
  Form form = Form::kAbsorbed;
  DType kv_dtype = DType::kBF16;
  std::int64_t keys = 1;  // S of each request, its new rows included; of mixed ones the longest
  std::int64_t requests = 1;
  std::vector<std::int64_t> mixed_keys = {};           // [requests], where they differ; else empty
  std::int64_t max_rows = 1;                           // new rows T of each
  std::int64_t expand_bytes = std::int64_t{64} << 20;  // MlaAttention::Options::expand_bytes
  // Bytes of other memory that are read before each run, so that rows and weights come from memory as they do in a
  // model of many layers; 0: none.
  std::int64_t working_set = 0;
  bool profile = false;  // tell the runs' phases

  std::int64_t KeysOf(std::int64_t request) const {
    return mixed_keys.empty() ? keys : mixed_keys[static_cast<std::size_t>(request)];
  }
};

// FLOPs of `rows` new tokens of each request by the pairs that causality leaves, in that form, with the projections;
// bytes of the requests' cache rows and of kv_b_proj's parts that the form reads, each once.
Work AttentionWork(const AttentionPlan& plan, std::int64_t rows, Isa isa);

class AttentionBench {
 public:
  // Bytes that Create and Run allocate.
  static std::int64_t PlannedBytes(const AttentionPlan& plan, int workers);
  // Random rows, weights in bf16 and queries. Fails where memory can't be had.
  static Result<AttentionBench> Create(const AttentionPlan& plan, Executor& executor);

  // `rows` new tokens of each request, at most the plan's and the request's keys. Precondition: the machine has `isa`,
  // and its kernels pass their self-test; the probe has the same executor.
  CaseResult Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats);

 private:
  explicit AttentionBench(const AttentionPlan& plan) : plan_(plan) {}
  void Place(Carver* carver);
  MlaAttention::Options Options(Isa isa, int workers) const;
  std::vector<AttentionSequence> Sequences(std::int64_t rows) const;

  AttentionPlan plan_;
  Buffer buffer_;
  std::byte* other_ = nullptr;  // [working_set]
  float* kv_b_ = nullptr;       // [H (N+V), R], before it is packed
  float* q_ = nullptr;          // [requests * max_rows, H, N + P]
  float* out_ = nullptr;        // [requests * max_rows, H, V]
  std::vector<std::int32_t> pages_;
  std::optional<KvBWeights> weights_;
  std::optional<LatentCache> cache_;
};

}  // namespace mla::bench

#endif  // MLA_BENCH_ATTENTION_BENCH_H_
