// What `mla run` prints: the stream, the JSON object, progress and the summary.
#ifndef MLA_CLI_OUTPUT_H_
#define MLA_CLI_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"
#include "cli/run_options.h"
#include "mla/engine.h"
#include "mla/result.h"
#include "mla/rope.h"

namespace mla::cli {

// Everything that a run found out.
struct RunReport {
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> ids;
  std::vector<double> logprobs;
  std::vector<double> prompt_logprobs;
  std::string text;
  bool has_text = false;  // a tokenizer was there
  std::string finish_reason;
  double load_seconds = 0;
  double prompt_seconds = 0;
  double decode_seconds = 0;
  std::string kernels;                // "float64 reference" in explicit mode
  std::int64_t kernels_rejected = 0;  // instruction sets that failed their self-test
  std::string prompt_form;
  std::string form_table;
  int threads = 1;
  int numa_nodes = 1;  // that the threads are spread over
  std::int64_t context = 0;
  std::uint64_t rope_fingerprint = 0;
  std::int64_t cache_bytes_per_token = 0;
  EngineStats stats;
  std::int64_t loaded_rows = 0;  // from a cache file
  double cache_load_seconds = 0;
  std::optional<SavedCache> saved;  // to one
  double cache_save_seconds = 0;
  Status save_status;
  MemoryPlan memory;
  std::optional<HugePageUse> huge_pages;  // at the end; nothing where the system does not say
};

// Writes to stdout. Fails where the bytes can't be written: a full disk, a closed pipe.
Status WriteOut(std::string_view bytes);
Status FlushOut();

Status WriteJson(const RunOptions& options, const RunReport& report);
// A few lines on stderr.
void WriteSummary(const RunOptions& options, const RunReport& report);

// One line on stderr that overwrites itself; nothing where stderr is no terminal.
class ProgressLine {
 public:
  enum class Unit : std::uint8_t { kBytes, kCount };
  // "loading 1.5 GiB of 3.0 GiB (50 %)".
  explicit ProgressLine(bool enabled, std::string what = "loading", Unit unit = Unit::kBytes);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void Update(std::int64_t done, std::int64_t total);

 private:
  bool enabled_;
  std::string what_;
  Unit unit_;
  std::int64_t shown_ = -1;
};

// 1,234,567 bytes as "1.2 MiB".
std::string HumanBytes(std::int64_t bytes);

// "1.53 ms", "12.4 s".
std::string HumanSeconds(double seconds);

// 1,234,567
std::string Grouped(std::int64_t n);

// "interleaved", "half-split", "none".
const char* RopeLayoutName(RopeLayout layout);

}  // namespace mla::cli

#endif  // MLA_CLI_OUTPUT_H_
