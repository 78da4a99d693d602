// A layer's mixture of experts, as the engine runs it.
#ifndef MLA_BENCH_MOE_BENCH_H_
#define MLA_BENCH_MOE_BENCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cpu_info.h"
#include "bench/case_result.h"
#include "bench/probe.h"
#include "bench/random_weights.h"
#include "contract/config.h"
#include "layers/step.h"
#include "mla/result.h"
#include "weights/weights.h"

namespace mla::bench {

struct MoePlan {
  std::string name;
  contract::ModelConfig config;  // with experts
  WeightFormat format{};
  std::int64_t max_rows = 1;
  // Bytes of other memory that are read before each run, so that weights come from memory as they do in a model of many
  // layers; 0: none, weights stay in whatever cache holds them.
  std::int64_t working_set = 0;
};

// FLOPs of `rows` tokens through their experts, the shared ones and the router (in fp32); bytes of `experts` distinct
// routed experts, the shared ones and the router.
Work MoeWork(const contract::MoeConfig& moe, std::int64_t hidden, const WeightFormat& format, std::int64_t rows,
             std::int64_t experts, Isa isa);

class MoeBench {
 public:
  // Bytes that Create allocates.
  static std::int64_t PlannedBytes(const MoePlan& plan, int workers);
  // Random weights. Fails where memory can't be had.
  static Result<MoeBench> Create(const MoePlan& plan, Executor& executor);

  // The layer over `rows` random tokens, at most the plan's, routed as they fall: norm, router, experts, sum.
  // Precondition: the machine has `isa`, the probe the same executor.
  CaseResult Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats);

 private:
  explicit MoeBench(const MoePlan& plan) : plan_(plan) {}
  // Lays memory out; with a counting carver, tells its size.
  void Place(int workers, Carver* carver);
  void Fill(Executor& executor);
  std::int64_t DistinctExperts(std::int64_t rows) const;
  void EmptyCaches(Probe& probe) const;

  MoePlan plan_;
  Buffer buffer_;
  std::byte* weights_ = nullptr;  // all of the layer's, and their size
  std::int64_t weight_bytes_ = 0;
  std::byte* other_ = nullptr;  // [working_set]
  std::byte* source_ = nullptr;
  float* norm_ = nullptr;  // [hidden]
  float* bias_ = nullptr;  // [experts]
  float* x_ = nullptr;     // [max_rows, hidden]
  weights::Layer layer_;
  layers::Workspace ws_;
};

}  // namespace mla::bench

#endif  // MLA_BENCH_MOE_BENCH_H_
