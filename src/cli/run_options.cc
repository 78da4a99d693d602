#include "cli/run_options.h"

#include <algorithm>
#include <charconv>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/flags.h"
#include "cli/serving_options.h"
#include "cli/text_input.h"
#include "text/prompt.h"

namespace mla::cli {
namespace {

Result<std::vector<std::int32_t>> ParseIds(const std::string& text) {
  std::vector<std::int32_t> ids;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at != end) {
    while (at != end && *at == ' ') ++at;
    std::int32_t id = 0;
    const auto [next, fault] = std::from_chars(at, end, id);
    at = next;
    while (at != end && *at == ' ') ++at;
    if (fault != std::errc() || (at != end && *at != ',') || (at != end && at + 1 == end)) {
      return Error{
          fmt::format("--ids: expected whole numbers with commas between them, found '{}'", text.substr(0, 60))};
    }
    ids.push_back(id);
    if (at != end) ++at;
  }
  return ids;
}

void AddPromptFlags(CLI::App& c, RunOptions* o) {
  AddModelArgument(c, o);
  auto* prompt =
      c.add_option("PROMPT", o->prompt, "Text to continue; without one it is read from --prompt-file or stdin");
  auto* file = c.add_option("--prompt-file", o->prompt_file, "File whose whole text is the prompt");
  auto* ids = c.add_option("--ids", o->ids, "Token ids for a prompt, as 0,3,17: taken as they are, needs no tokenizer")
                  ->check(Checked(ParseIds));
  file->excludes(prompt);
  ids->excludes(prompt)->excludes(file);
  c.add_flag("--special", o->special,
             "Parse added tokens, such as <|User|>'s, in the prompt; else they are plain text");
}

void AddCacheFlags(CLI::App& c, RunOptions* o) {
  c.add_option("--load-cache", o->load_cache,
               "Begin with a cache file's tokens, whose rows are then not computed again; the prompt follows them, "
               "unless it begins with them; without one the file's output goes on");
  c.add_option("--save-cache", o->save_cache, "At the end, write prompt and output with their rows to this cache file");
}

Result<std::string> PromptText(const RunOptions& o) {
  if (o.prompt) return *o.prompt;
  return o.prompt_file.empty() ? ReadStdin("prompt") : ReadTextFile(o.prompt_file, "prompt");
}

Status MayFit(const std::string& prompt, const Tokenizer& tokenizer, const ModelInfo& model) {
  const std::size_t longest = text::LongestToken(tokenizer);
  if (prompt.size() / longest <= static_cast<std::size_t>(model.max_position_embeddings)) return {};
  return Error{fmt::format("prompt: {} bytes are at least {} tokens, and don't fit the model's {} positions",
                           prompt.size(), prompt.size() / longest, model.max_position_embeddings)};
}

}  // namespace

void AddSamplingFlags(CLI::App& c, RunOptions* o) {
  c.add_option("--ctx", o->ctx,
               "Most tokens, prompt and output; 0: prompt and --max-tokens, as far as the model goes. With LongRoPE it "
               "also picks the factors: those for long contexts where it passes the original window")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_option("--max-tokens,-n", o->max_tokens, "Most tokens of output")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_flag("--ignore-eos", o->ignore_eos, "Go on past the end-of-sequence token");
  c.add_option("--temperature", o->temperature, "0 is greedy; default: generation_config.json's, else 0")
      ->check(NumberIn(0, true, 100));
  c.add_option("--top-k", o->top_k, "Draw from the k likeliest; 0: all")->check(WholeIn(0, std::uint64_t{1} << 31));
  c.add_option("--top-p", o->top_p, "Draw from the likeliest that reach this probability")
      ->check(NumberIn(0, false, 1));
  c.add_option("--min-p", o->min_p, "Drop what is less likely than this share of the likeliest")
      ->check(NumberIn(0, true, 1));
  c.add_option("--repetition-penalty", o->repetition_penalty, "Divide the logits of tokens seen by it; 1: off")
      ->check(NumberIn(0, false, 100));
  c.add_option("--presence-penalty", o->presence_penalty, "Take this from the logits of tokens of the output so far")
      ->check(NumberIn(-2, true, 2))
      ->capture_default_str();
  c.add_option("--frequency-penalty", o->frequency_penalty, "Take it once for each time that the token stands there")
      ->check(NumberIn(-2, true, 2))
      ->capture_default_str();
  AddDraftFlags(c, o);
  c.add_option("--seed", o->seed, "Of the draws: the same seed draws the same on every run")
      ->check(WholeIn(0, UINT64_MAX))
      ->capture_default_str();
}

void AddRunFlags(CLI::App& command, RunOptions* options) {
  AddPromptFlags(command, options);
  AddComputeFlags(command, options);
  AddSamplingFlags(command, options);
  AddCacheFlags(command, options);
  command.add_flag("--json", options->json, "Print one JSON object in place of the stream");
  command
      .add_flag("--prompt-logprobs", options->prompt_logprobs,
                "With --json: log-probability of each prompt token but the first")
      ->needs("--json")
      ->excludes("--load-cache");
  command.add_flag("--quiet,-q", options->quiet, "No progress, no summary");
}

SamplingParams Sampling(const RunOptions& options, const SamplingParams& defaults) {
  SamplingParams s = defaults;
  s.temperature = options.temperature.value_or(s.temperature);
  s.top_k = options.top_k.value_or(s.top_k);
  s.top_p = options.top_p.value_or(s.top_p);
  s.min_p = options.min_p.value_or(s.min_p);
  s.repetition_penalty = options.repetition_penalty.value_or(s.repetition_penalty);
  s.presence_penalty = options.presence_penalty;
  s.frequency_penalty = options.frequency_penalty;
  s.seed = options.seed;
  return s;
}

Result<std::vector<std::int32_t>> PromptIds(const RunOptions& options, const Tokenizer* tokenizer,
                                            const ModelInfo& model) {
  if (options.ids) {
    MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, ParseIds(*options.ids));
    if (ids.empty() && model.bos_id) ids.push_back(*model.bos_id);
    return ids;
  }
  MLA_ASSIGN_OR_RETURN(const std::string text, PromptText(options));
  MLA_RETURN_IF_ERROR(MayFit(text, *tokenizer, model));
  return EncodeText(text, options.special, *tokenizer, model);
}

}  // namespace mla::cli
