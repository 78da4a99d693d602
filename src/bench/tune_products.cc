#include "bench/tune_products.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "bench/gemm_bench.h"
#include "bench/measure.h"
#include "bench/probe.h"
#include "bench/random_weights.h"

namespace mla::bench {
namespace {

constexpr std::int64_t kStreamedBytes = std::int64_t{256} << 20;

GemmPlan PlanOf(std::string_view weights, double seconds) {
  const std::optional<WeightFormat> format = FindWeightFormat(weights);
  MLA_CHECK(format.has_value());
  GemmPlan plan;
  plan.shape = {"tune", 4096, 2048};
  plan.format = *format;
  plan.max_rows = 512;
  plan.working_set = static_cast<std::int64_t>(static_cast<double>(kStreamedBytes) * std::min(1.0, seconds));
  return plan;
}

}  // namespace

std::int64_t TunedProductsBytes(std::string_view weights, int workers) {
  return GemmBench::PlannedBytes(PlanOf(weights, 1), workers);
}

Result<TunedProducts> MeasureProducts(std::string_view weights, Isa isa, Executor& executor, double seconds) {
  const GemmPlan plan = PlanOf(weights, seconds);
  MLA_ASSIGN_OR_RETURN(GemmBench bench, GemmBench::Create(plan, executor));
  Probe probe(executor, DetectCpu());
  TunedProducts tuned;
  tuned.n = plan.shape.n;
  tuned.k = plan.shape.k;
  tuned.rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  Repeats repeats;
  repeats.seconds = seconds / static_cast<double>(tuned.rows.size());
  std::vector<double> reads;
  for (const std::int64_t rows : tuned.rows) {
    const CaseResult result = bench.Run(probe, isa, rows, repeats);
    tuned.seconds.push_back(result.measured.seconds.p10);
    reads.push_back(result.measured.rates.read);
  }
  tuned.read_bytes = Quantile(reads, 0.9);
  return tuned;
}

}  // namespace mla::bench
