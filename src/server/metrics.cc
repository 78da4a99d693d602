#include "server/metrics.h"

#include <iterator>

#include <fmt/format.h>

namespace mla::server {
namespace {

double Bound(std::size_t bucket) { return 0.001 * static_cast<double>(std::uint64_t{1} << bucket); }

void Head(std::string_view name, std::string_view help, std::string_view type, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void Count(std::string_view name, std::string_view help, std::int64_t value, std::string* out) {
  Head(name, help, "counter", out);
  fmt::format_to(std::back_inserter(*out), "{} {}\n", name, value);
}

void Gauge(std::string_view name, std::string_view help, std::int64_t value, std::string* out) {
  Head(name, help, "gauge", out);
  fmt::format_to(std::back_inserter(*out), "{} {}\n", name, value);
}

struct Labelled {
  std::string_view label;
  std::int64_t value;
};

template <std::size_t N>
void Family(std::string_view name, std::string_view key, const std::array<Labelled, N>& values, std::string* out) {
  for (const auto& [label, value] : values) {
    fmt::format_to(std::back_inserter(*out), "{}{{{}=\"{}\"}} {}\n", name, key, label, value);
  }
}

void WriteEngine(const EngineStats& e, std::string* out) {
  Count("mla_steps_total", "Steps of the engine.", e.steps, out);
  Head("mla_form_steps_total", "Steps with rows of an attention form; one may have both.", "counter", out);
  Family<2>("mla_form_steps_total", "form", {{{"mha", e.mha_steps}, {"absorbed", e.absorbed_steps}}}, out);
  Head("mla_rows_total", "Rows run, replayed ones included.", "counter", out);
  Family<3>("mla_rows_total", "kind",
            {{{"prompt", e.prompt_rows}, {"generated", e.generated_rows}, {"draft", e.draft_rows}}}, out);
  Head("mla_expansions_total",
       "Sequences and steps whose keys were expanded, at once or in pieces for want of workspace.", "counter", out);
  Family<2>("mla_expansions_total", "how",
            {{{"at_once", e.attention.mha_one_shot}, {"in_pieces", e.attention.mha_in_pieces}}}, out);
  Head("mla_expanded_positions_total",
       "Positions whose keys and values the MHA form needed: expanded, or kept from an earlier chunk. Of one layer.",
       "counter", out);
  Family<2>("mla_expanded_positions_total", "how",
            {{{"expanded", e.attention.keys_expanded}, {"kept", e.attention.keys_kept}}}, out);
  Count("mla_drafts_accepted_total", "Guessed tokens that held.", e.accepted, out);
  Count("mla_prefix_hits_total", "Sequences admitted with rows found in the cache.", e.hits, out);
  Count("mla_prefix_tokens_saved_total", "Positions whose rows were found in the cache.", e.cached_tokens, out);
  Count("mla_pages_copied_total", "Pages copied since others read them.", e.copied_pages, out);
  Count("mla_pages_evicted_total", "Pages given up that were kept for their prefix.", e.evicted_pages, out);
}

}  // namespace

void Histogram::Add(double seconds) {
  std::size_t bucket = 0;
  while (bucket < kBuckets && seconds > Bound(bucket)) ++bucket;
  ++counts_[bucket];
  sum_ += seconds;
}

void Histogram::Write(std::string_view name, std::string_view help, std::string* out) const {
  Head(name, help, "histogram", out);
  std::int64_t below = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    below += counts_[i];
    fmt::format_to(std::back_inserter(*out), "{}_bucket{{le=\"{}\"}} {}\n", name, Bound(i), below);
  }
  below += counts_[kBuckets];
  fmt::format_to(std::back_inserter(*out), "{}_bucket{{le=\"+Inf\"}} {}\n{}_sum {}\n{}_count {}\n", name, below, name,
                 sum_, name, below);
}

std::string MetricsText(const Metrics& m, const LoopSnapshot& now, const MetricsContext& c) {
  std::string out;
  const SchedulerStats& s = now.scheduler;
  Gauge("mla_requests_waiting", "Requests in the queue.", s.waiting, &out);
  Gauge("mla_sequences_running", "Sequences that run.", s.running, &out);
  Count("mla_requests_submitted_total", "Requests that entered the queue.", s.submitted, &out);
  Count("mla_requests_finished_total", "Requests that ended, for whatever reason.", s.finished, &out);
  Count("mla_requests_cancelled_total", "Requests that were cancelled.", s.cancelled, &out);
  Count("mla_requests_expired_total", "Requests that met their deadline.", s.expired, &out);
  Count("mla_preemptions_total", "Sequences that gave their pages back and went on later.", s.preemptions, &out);
  Head("mla_pages", "Pages of the cache.", "gauge", &out);
  const PageUse& p = now.pages;
  Family<4>("mla_pages", "state",
            {{{"free", p.free}, {"idle", p.idle}, {"used", p.total - p.free - p.idle}, {"shared", p.shared}}}, &out);
  WriteEngine(now.engine, &out);
  Count("mla_prompt_tokens_total", "Tokens of prompts taken.", m.prompt_tokens, &out);
  Count("mla_output_tokens_total", "Tokens of output sent.", m.output_tokens, &out);
  Head("mla_kernels", "The kernels in use.", "gauge", &out);
  fmt::format_to(std::back_inserter(out), "mla_kernels{{name=\"{}\"}} 1\n", c.kernels);
  Gauge("mla_kernels_rejected", "Faster kernels that failed their self-test.", c.rejected_kernels, &out);
  Gauge("mla_cache_bytes_per_token", "Bytes of cache that a token takes.", c.bytes_per_token, &out);
  Head("mla_memory_planned_bytes", "Bytes planned, and allocated.", "gauge", &out);
  Family<4>("mla_memory_planned_bytes", "part",
            {{{"weights", c.memory.weights},
              {"cache", c.memory.cache},
              {"workspace", c.memory.workspace},
              {"tables", c.memory.tables}}},
            &out);
  Gauge("mla_resident_bytes", "Bytes of the process in memory.", c.resident_bytes, &out);
  Gauge("mla_connections", "Open connections.", static_cast<std::int64_t>(c.connections), &out);
  Head("mla_http_answers_total", "Answers, by status.", "counter", &out);
  for (const auto& [status, count] : m.answers) {
    fmt::format_to(std::back_inserter(out), "mla_http_answers_total{{status=\"{}\"}} {}\n", status, count);
  }
  Count("mla_clients_left_total", "Clients that left before their answer had ended.", m.left, &out);
  m.first_token.Write("mla_first_token_seconds", "From a request's arrival to its first token.", &out);
  m.between_tokens.Write("mla_between_tokens_seconds", "From a token to the next of the same output.", &out);
  m.step.Write("mla_step_seconds", "Time of a step.", &out);
  m.mha_attention.Write("mla_attention_mha_seconds", "Time of a step in expanded attention, all layers.", &out);
  m.absorbed_attention.Write("mla_attention_absorbed_seconds", "Time of a step in absorbed attention, all layers.",
                             &out);
  return out;
}

}  // namespace mla::server
