#include "cli/perplexity_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mla::cli {

std::vector<Window> CutWindows(std::int64_t tokens, std::int64_t window, std::int64_t stride) {
  std::vector<Window> windows;
  std::int64_t scored = 0;  // tokens up to here have had their window
  for (std::int64_t begin = 0; scored < tokens; begin += stride) {
    const Window w{begin, std::min(begin + window, tokens), std::max(scored, begin + 1)};
    if (w.first_scored < w.end) windows.push_back(w);
    scored = w.end;
  }
  return windows;
}

void LossStatistics::Add(double nats) {
  ++count_;
  const double before = nats - mean_;
  mean_ += before / static_cast<double>(count_);
  squares_ += before * (nats - mean_);
}

double LossStatistics::standard_error() const {
  if (count_ < 2) return std::numeric_limits<double>::quiet_NaN();
  const auto n = static_cast<double>(count_);
  return std::sqrt(squares_ / (n - 1) / n);
}

namespace {

// Delta method: the derivative of exp at the mean, times the mean's standard error.
double PerplexityError(const LossStatistics& losses) { return std::exp(losses.mean()) * losses.standard_error(); }

double BitsPerByte(const PerplexityReport& r) {
  if (r.bytes == 0) return std::numeric_limits<double>::quiet_NaN();
  return r.losses.sum() / std::numbers::ln2 / static_cast<double>(r.bytes);
}

double TokensPerSecond(const PerplexityReport& r) {
  return r.seconds > 0 ? static_cast<double>(r.losses.count()) / r.seconds : 0;
}

}  // namespace

std::string PerplexityJson(const ComputeOptions& options, const PerplexityReport& r) {
  nlohmann::ordered_json j;
  j["nats_per_token"] = r.losses.mean();
  j["nats_per_token_standard_error"] = r.losses.standard_error();
  j["perplexity"] = std::exp(r.losses.mean());
  j["perplexity_standard_error"] = PerplexityError(r.losses);
  j["standard_errors"] = "tokens taken as independent";
  j["bits_per_byte"] = BitsPerByte(r);
  j["tokens"] = r.tokens;
  j["tokens_scored"] = r.losses.count();
  j["bytes_scored"] = r.bytes;
  j["bos"] = r.bos;
  j["window"] = r.window;
  j["stride"] = r.stride;
  j["windows"] = r.windows;
  j["interrupted"] = r.interrupted;
  j["timings"] = {{"load_seconds", r.load_seconds},
                  {"seconds", r.seconds},
                  {"tokens_run", r.rows},
                  {"tokens_per_second", TokensPerSecond(r)}};
  j["mode"] = options.mode;
  j["kernels"] = r.kernels;
  j["threads"] = r.threads;
  if (!options.is_explicit()) {
    j["kernels_rejected"] = r.kernels_rejected;
    j["form_table"] = r.form_table;
    j["windows_by_form"] = {{FormName(Form::kMha), r.mha_windows},
                            {FormName(Form::kAbsorbed), r.windows - r.mha_windows}};
    j["weights"] = options.weights;
    j["kv_dtype"] = options.kv_dtype;
  }
  j["memory"] = {{"weights", r.memory.weights},
                 {"cache", r.memory.cache},
                 {"workspace", r.memory.workspace},
                 {"tables", r.memory.tables}};
  return j.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string PerplexityText(const ComputeOptions& options, const PerplexityReport& r) {
  std::string how = options.mode + " mode, " + r.kernels;
  if (!options.is_explicit()) {
    how += fmt::format(" kernels, {} weights, {} cache, {} of {} windows by mha, form table {}", options.weights,
                       options.kv_dtype, r.mha_windows, r.windows, r.form_table);
  }
  return fmt::format(
      "perplexity      {:.4f} +/- {:.4f}\n"
      "nats per token  {:.5f} +/- {:.5f}   (standard errors, tokens taken as independent)\n"
      "bits per byte   {:.5f}\n"
      "tokens scored   {} of {}{}, {:.1f} per second\n"
      "windows         {} of up to {} tokens, stride {}{}\n"
      "computed        {}\n",
      std::exp(r.losses.mean()), PerplexityError(r.losses), r.losses.mean(), r.losses.standard_error(), BitsPerByte(r),
      r.losses.count(), r.tokens, r.bos ? " (BOS first)" : "", TokensPerSecond(r), r.windows, r.window, r.stride,
      r.interrupted ? "; interrupted before the end" : "", how);
}

}  // namespace mla::cli
