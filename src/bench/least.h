// The least time of a model's steps: what they must compute and move, at the machine's own limits.
#ifndef MLA_BENCH_LEAST_H_
#define MLA_BENCH_LEAST_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu_info.h"
#include "bench/probe.h"
#include "contract/config.h"
#include "mla/dtypes.h"
#include "mla/model.h"
#include "mla/result.h"
#include "plan/shape.h"
#include "plan/work.h"

namespace mla::bench {

// How a model is computed, as far as its least time depends on it.
struct LeastModel {
  plan::Shape shape;
  plan::Kept kept;
  // The fastest instruction that the kernels may use: for weights, for attention over rows as they are cached, and for
  // the router, whose weights are fp32.
  PeakKind weights = PeakKind::kF32Portable;
  PeakKind attention = PeakKind::kF32Portable;
  PeakKind router = PeakKind::kF32Portable;
  // First positions of a prompt whose expansion is kept from chunk to chunk: whole segments that fit for all layers.
  std::int64_t keep_positions = 0;
};

// Of an engine with kernels of `isa`. `keep_bytes` as in EngineOptions.
LeastModel MakeLeastModel(const contract::ModelConfig& config, WeightDType weights, DType kv_dtype, Isa isa,
                          std::int64_t keep_bytes);

// The machine's limits, a second: operations (a multiply-add is two) of each kind above, and bytes from memory. All
// positive.
struct LeastRates {
  double weights = 0;
  double attention = 0;
  double router = 0;
  double read = 0;
};

struct LeastTime {
  double seconds = 0;
  std::int64_t absorbed_steps = 0;  // steps that are cheaper in that form
  std::int64_t mha_steps = 0;
};

// One step: each part of plan::WorkOfStep at the slower of its operations and its bytes, summed, in the form for which
// the sum is smaller. Fails where a count leaves 63 bits.
Result<LeastTime> LeastOfStep(const LeastModel& model, const plan::Step& step, const LeastRates& rates);

// A prompt's `rows` rows after `cached` cached positions, in steps of at most `chunk` rows, each in the form that is
// cheaper then. Logits are of the last step. With keep_positions an MHA step expands what no earlier MHA step of these
// rows has kept; bytes of what was kept are not counted. Fails as LeastOfStep. Preconditions: rows, chunk > 0.
Result<LeastTime> LeastOfPrompt(const LeastModel& model, std::int64_t cached, std::int64_t rows, std::int64_t chunk,
                                const LeastRates& rates);

// Measures the limits again and again, around and between runs, since the host's load comes and goes. Not thread-safe.
class LimitMeter {
 public:
  // `probe` and `memory` outlive the meter. `memory`: what is read, a multiple of 64 bytes, larger than the caches.
  LimitMeter(Probe* probe, const LeastModel& model, std::span<const std::byte> memory);

  void Reset() { *this = LimitMeter(probe_, weights_, attention_, router_, memory_); }
  void Measure();
  // The means since the last reset. Precondition: something was measured.
  LeastRates Mean() const;

 private:
  LimitMeter(Probe* probe, PeakKind weights, PeakKind attention, PeakKind router, std::span<const std::byte> memory)
      : probe_(probe), weights_(weights), attention_(attention), router_(router), memory_(memory) {}

  Probe* probe_;
  PeakKind weights_;
  PeakKind attention_;
  PeakKind router_;
  std::span<const std::byte> memory_;
  LeastRates sum_;
  double count_ = 0;
};

}  // namespace mla::bench

#endif  // MLA_BENCH_LEAST_H_
