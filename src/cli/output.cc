#include "cli/output.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace mla::cli {

Status WriteOut(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) {
    return Error{fmt::format("stdout: {}", std::strerror(errno))};
  }
  return {};
}

Status FlushOut() {
  if (std::fflush(stdout) != 0) return Error{fmt::format("stdout: {}", std::strerror(errno))};
  return {};
}

std::string HumanBytes(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kUnits[unit]);
}

std::string HumanSeconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string Grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (std::int64_t at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

namespace {

// To stderr, come what may: notes must not turn a success into a failure.
template <class... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

double Rate(std::size_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }

// Steps after the one that gave the first token: it is the prompt's.
// Rows of the prompt that were run: those found in the cache were not.
std::size_t PromptRows(const RunReport& r) {
  return r.prompt_ids.size() - std::min(r.prompt_ids.size(), static_cast<std::size_t>(r.stats.cached_tokens));
}

std::size_t DecodeSteps(const RunReport& r) { return r.ids.empty() ? 0 : r.ids.size() - 1; }

nlohmann::ordered_json HugePagesJson(const RunOptions& options, const RunReport& r) {
  nlohmann::ordered_json j = {
      {"setting", options.huge_pages}, {"asked", nullptr}, {"resident", nullptr}, {"huge", nullptr}};
  if (r.huge_pages) {
    j["asked"] = r.huge_pages->asked;
    j["resident"] = r.huge_pages->resident;
    j["huge"] = r.huge_pages->huge;
  }
  return j;
}

std::string HugePagesText(const RunReport& r) {
  if (!r.huge_pages) return "unknown";
  return fmt::format("{} of {} touched", HumanBytes(r.huge_pages->huge), HumanBytes(r.huge_pages->resident));
}

}  // namespace

Status WriteJson(const RunOptions& options, const RunReport& r) {
  nlohmann::ordered_json j;
  j["prompt_ids"] = r.prompt_ids;
  j["ids"] = r.ids;
  j["text"] = r.has_text ? nlohmann::ordered_json(r.text) : nlohmann::ordered_json(nullptr);
  j["logprobs"] = r.logprobs;
  if (options.prompt_logprobs) j["prompt_logprobs"] = r.prompt_logprobs;
  j["finish_reason"] = r.finish_reason;
  j["timings"] = {{"load_seconds", r.load_seconds},
                  {"prompt_seconds", r.prompt_seconds},
                  {"prompt_tokens_per_second", Rate(PromptRows(r), r.prompt_seconds)},
                  {"decode_seconds", r.decode_seconds},
                  {"decode_tokens_per_second", Rate(DecodeSteps(r), r.decode_seconds)}};
  j["mode"] = options.mode;
  j["prompt_form"] = r.prompt_form;
  j["form_table"] = r.form_table;
  j["kernels"] = r.kernels;
  j["threads"] = r.threads;
  j["numa_nodes"] = r.numa_nodes;
  j["context"] = r.context;
  j["rope_fingerprint"] = fmt::format("{:016x}", r.rope_fingerprint);
  if (!options.is_explicit()) {
    j["weights"] = options.weights;
    j["kv_dtype"] = options.kv_dtype;
    j["kernels_rejected"] = r.kernels_rejected;
    j["cache_bytes_per_token"] = r.cache_bytes_per_token;
    j["steps"] = {{"total", r.stats.steps},
                  {"mha", r.stats.mha_steps},
                  {"absorbed", r.stats.absorbed_steps},
                  {"mha_one_shot", r.stats.attention.mha_one_shot},
                  {"mha_in_pieces", r.stats.attention.mha_in_pieces}};
    j["keys"] = {{"expanded", r.stats.attention.keys_expanded}, {"kept", r.stats.attention.keys_kept}};
    j["cached_tokens"] = r.stats.cached_tokens;
    if (!options.load_cache.empty()) j["cache_loaded"] = {{"rows", r.loaded_rows}, {"seconds", r.cache_load_seconds}};
    if (r.saved)
      j["cache_saved"] = {{"rows", r.saved->rows}, {"bytes", r.saved->bytes}, {"seconds", r.cache_save_seconds}};
    j["draft"] = {{"kind", options.draft}, {"checked", r.stats.draft_rows}, {"held", r.stats.accepted}};
  }
  j["memory"] = {{"weights", r.memory.weights},
                 {"cache", r.memory.cache},
                 {"workspace", r.memory.workspace},
                 {"tables", r.memory.tables}};
  if (!options.is_explicit()) j["huge_pages"] = HugePagesJson(options, r);
  MLA_RETURN_IF_ERROR(WriteOut(j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"));
  return FlushOut();
}

void WriteSummary(const RunOptions& options, const RunReport& r) {
  Say("loaded in {:.2f} s: weights {}, cache {}, workspace {}; {} kernels, {} thread{}\n", r.load_seconds,
      HumanBytes(r.memory.weights), HumanBytes(r.memory.cache), HumanBytes(r.memory.workspace + r.memory.tables),
      r.kernels, r.threads, r.threads == 1 ? "" : "s");
  Say("prompt {} tokens, {:.1f} tokens/s; decode {} tokens, {:.1f} tokens/s; ended by {}\n", r.prompt_ids.size(),
      Rate(PromptRows(r), r.prompt_seconds), r.ids.size(), Rate(DecodeSteps(r), r.decode_seconds), r.finish_reason);
  if (options.is_explicit()) return;
  if (!options.load_cache.empty()) {
    Say("{}: {} rows loaded, {} of them used\n", options.load_cache, r.loaded_rows, r.stats.cached_tokens);
  }
  if (r.saved) Say("{}: {} rows saved, {}\n", options.save_cache, r.saved->rows, HumanBytes(r.saved->bytes));
  Say("huge pages ({}): {}\n", options.huge_pages, HugePagesText(r));
  if (r.stats.draft_rows > 0) {
    Say("guesses ({}): {} checked, {} held; {:.2f} tokens a decode step\n", options.draft, r.stats.draft_rows,
        r.stats.accepted,
        Rate(DecodeSteps(r), static_cast<double>(DecodeSteps(r)) - static_cast<double>(r.stats.accepted)));
  }
  if (r.stats.attention.keys_kept > 0) {
    Say("keys and values of {} positions expanded, of {} found kept\n", r.stats.attention.keys_expanded,
        r.stats.attention.keys_kept);
  }
  Say("{} bytes per cached token; {} steps: {} with mha rows (prompt {}; expanded at once {}, in pieces {}), {} with "
      "absorbed rows; form table {}\n",
      r.cache_bytes_per_token, r.stats.steps, r.stats.mha_steps, r.prompt_form, r.stats.attention.mha_one_shot,
      r.stats.attention.mha_in_pieces, r.stats.absorbed_steps, r.form_table);
}

ProgressLine::ProgressLine(bool enabled, std::string what, Unit unit)
    : enabled_(enabled && isatty(STDERR_FILENO) != 0), what_(std::move(what)), unit_(unit) {}

ProgressLine::~ProgressLine() {
  if (enabled_ && shown_ >= 0) std::fputs("\r\033[K", stderr);
}

void ProgressLine::Update(std::int64_t done, std::int64_t total) {
  if (!enabled_ || total <= 0) return;
  const std::int64_t percent =
      static_cast<std::int64_t>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (percent == shown_) return;
  shown_ = percent;
  const auto show = [this](std::int64_t n) { return unit_ == Unit::kBytes ? HumanBytes(n) : std::to_string(n); };
  Say("\r{} {} of {} ({} %)\033[K", what_, show(done), show(total), percent);
  std::fflush(stderr);
}

const char* RopeLayoutName(RopeLayout layout) {
  switch (layout) {
    case RopeLayout::kNone: return "none";
    case RopeLayout::kInterleaved: return "interleaved";
    case RopeLayout::kHalfSplit: return "half-split";
  }
  return "?";
}

}  // namespace mla::cli
