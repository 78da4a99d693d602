#include "cli/serving_options.h"

#include <CLI/CLI.hpp>

#include "cli/flags.h"

namespace mla::cli {

void AddDraftFlags(CLI::App& c, ComputeOptions* o) {
  c.add_option("--draft", o->draft,
               "How tokens are guessed ahead, to be checked together: none, ngram (what followed the last tokens where "
               "they stood before), or mtp (by the checkpoint's multi-token-prediction layer). No bit of the output "
               "depends on it")
      ->check(CLI::IsMember({"none", "ngram", "mtp"}))
      ->capture_default_str();
  c.add_option("--draft-tokens", o->draft_tokens, "Most guesses of a sequence and step; fewer where they don't hold")
      ->check(WholeIn(1, 64))
      ->capture_default_str();
}

void AddServingFlags(CLI::App& c, ServingOptions* s, ComputeOptions* o) {
  c.add_option("--ctx", s->ctx, "Most tokens of a sequence, prompt and output; 0: the model's")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_option("--max-sequences", s->max_sequences, "Sequences that run at a time")
      ->check(WholeIn(1, 4096))
      ->capture_default_str();
  c.add_option("--cache-pages", s->cache_pages, "Pages of the cache; 0: enough for --max-sequences of full context")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_option("--prefix-reuse", s->prefix_reuse, "Which cached rows others may take over: off, prompt, all")
      ->check(CLI::IsMember({"off", "prompt", "all"}))
      ->capture_default_str();
  AddDraftFlags(c, o);
}

Result<EngineOptions> ServingEngineOptions(const ServingOptions& s, const ComputeOptions& o, std::int64_t most) {
  MLA_RETURN_IF_ERROR(CheckContext(s.ctx, most));
  EngineOptions e = EngineOptionsOf(o, s.ctx > 0 ? s.ctx : most);
  e.max_sequences = s.max_sequences;
  e.cache_pages = s.cache_pages;
  for (const PrefixReuse reuse : {PrefixReuse::kOff, PrefixReuse::kPrompt, PrefixReuse::kAll}) {
    if (s.prefix_reuse == PrefixReuseName(reuse)) e.prefix_reuse = reuse;
  }
  return e;
}

}  // namespace mla::cli
