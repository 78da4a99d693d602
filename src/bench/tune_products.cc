#include "bench/tune_products.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/check.h"
#include "bench/gemm_bench.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "bench/random_weights.h"

namespace mla::bench {
namespace {

constexpr int kPasses = 3;  // over all rows, so that a moment's load meets one sample of each
constexpr std::int64_t kStreamedBytes = std::int64_t{256} << 20;

GemmPlan PlanOf(WeightDType weights, double seconds) {
  const std::optional<WeightFormat> format = FindWeightFormat(weights == WeightDType::kF32 ? "f32" : "bf16");
  MLA_CHECK(format.has_value());
  GemmPlan plan;
  plan.shape = {"tune", 4096, 2048};
  plan.format = *format;
  plan.max_rows = 512;
  plan.working_set = static_cast<std::int64_t>(static_cast<double>(kStreamedBytes) * std::min(1.0, seconds));
  return plan;
}

}  // namespace

std::int64_t TunedProductsBytes(WeightDType weights, int workers) {
  return GemmBench::PlannedBytes(PlanOf(weights, 1), workers);
}

Result<TunedProducts> MeasureProducts(WeightDType weights, Isa isa, Executor& executor, double seconds) {
  const GemmPlan plan = PlanOf(weights, seconds);
  MLA_ASSIGN_OR_RETURN(GemmBench bench, GemmBench::Create(plan, executor));
  Probe probe(executor, DetectCpu());
  TunedProducts tuned;
  tuned.n = plan.shape.n;
  tuned.k = plan.shape.k;
  tuned.rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  Repeats repeats;
  repeats.seconds = seconds / kPasses / static_cast<double>(tuned.rows.size());
  tuned.seconds.assign(tuned.rows.size(), std::numeric_limits<double>::infinity());
  std::vector<double> reads;
  for (int pass = 0; pass < kPasses; ++pass) {
    for (std::size_t i = 0; i < tuned.rows.size(); ++i) {
      const Measured measured = bench.Run(probe, isa, tuned.rows[i], repeats).measured;
      tuned.seconds[i] = std::min(tuned.seconds[i], measured.seconds.p10);
      reads.push_back(measured.rates.read);
    }
  }
  // More rows take no less time.
  for (std::size_t i = tuned.rows.size() - 1; i-- > 0;)
    tuned.seconds[i] = std::min(tuned.seconds[i], tuned.seconds[i + 1]);
  tuned.read_bytes = Quantile(reads, 0.9);
  return tuned;
}

}  // namespace mla::bench
