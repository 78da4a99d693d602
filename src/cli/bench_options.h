// The flags of `mla bench`, and what they ask for.
#ifndef MLA_CLI_BENCH_OPTIONS_H_
#define MLA_CLI_BENCH_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention_bench.h"
#include "bench/crossover.h"
#include "bench/gemm_bench.h"
#include "bench/layer_bench.h"
#include "bench/measure.h"
#include "bench/model_bench.h"
#include "bench/moe_bench.h"
#include "bench/serve_load.h"
#include "cli/compute_options.h"
#include "mla/result.h"

namespace mla::cli {

struct BenchOptions : ComputeOptions {
  bool csv = false;
  std::vector<std::string> shapes;  // "M,N,K"
  std::vector<std::string> like;    // a name of the published configs or a config.json; of moe, ":EXPERTS" may follow
  std::vector<std::int64_t> rows;
  std::vector<std::string> formats = {"bf16"};
  std::vector<std::string> forms;  // of an attention
  std::vector<std::int64_t> keys;  // S of each request
  std::int64_t requests = 1;
  std::string keys_range;   // "LOW:HIGH", or "" for keys
  std::uint64_t seed = 0;   // of lengths in that range
  std::string expand;       // a size, or "" for the engine's own
  std::string working_set;  // "" for DefaultWorkingSet
  bench::Repeats repeats;
  bool profile = false;
  bench::ModelBenchOptions engine;
  // Of the crossover.
  std::int64_t max_rows = 2048;
  std::int64_t max_keys = 32768;
  std::int64_t layers = 0;  // 0: bench::LayersFor
  bench::CrossoverEffort effort;
  bool quick = false;
  std::string svg;
};

// Flags of each subcommand.
void AddPeakFlags(CLI::App& command, BenchOptions* options);
void AddGemmFlags(CLI::App& command, BenchOptions* options);
void AddMoeFlags(CLI::App& command, BenchOptions* options);
void AddAttentionFlags(CLI::App& command, BenchOptions* options);
void AddLayerFlags(CLI::App& command, BenchOptions* options);
void AddModelFlags(CLI::App& command, BenchOptions* options);
void AddCrossoverFlags(CLI::App& command, BenchOptions* options);

// 1 GiB, or twice the last-level cache that the system reports where that is more: what is passed over before a weight
// is read again, so that it comes from memory.
std::int64_t DefaultWorkingSet();
// As asked, in whole cache lines; fails on a malformed size.
Result<std::int64_t> WorkingSetOf(const BenchOptions& options);

// "64" or "16:512", 1 to 2^24 each; fails on anything else.
Result<bench::LengthRange> ParseLengthRange(const std::string& text);

// A matrix, and the numbers of rows to multiply it with.
struct GemmJob {
  bench::GemmPlan plan;
  std::vector<std::int64_t> rows;
};
// What the flags ask for, shape by shape and format by format. Fails as the flags' own checks do.
Result<std::vector<GemmJob>> GemmJobs(const BenchOptions& options);

struct MoeJob {
  bench::MoePlan plan;
  std::vector<std::int64_t> rows;
};
Result<std::vector<MoeJob>> MoeJobs(const BenchOptions& options);

struct AttentionJob {
  bench::AttentionPlan plan;
  std::vector<std::int64_t> rows;
};
// Rows beyond a case's keys are left out.
Result<std::vector<AttentionJob>> AttentionJobs(const BenchOptions& options);

struct LayerJob {
  bench::LayerPlan plan;
  std::vector<std::int64_t> rows;
};
// As AttentionJobs.
Result<std::vector<LayerJob>> LayerJobs(const BenchOptions& options);

}  // namespace mla::cli

#endif  // MLA_CLI_BENCH_OPTIONS_H_
