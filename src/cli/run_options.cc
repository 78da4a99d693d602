#include "cli/run_options.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/cpu_info.h"

namespace mla::cli {
namespace {

constexpr std::size_t kMostPromptBytes = std::size_t{64} << 20;  // what is read; PromptIds says what can fit

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

// A flag's check out of a parser's verdict: its message, or nothing where the text is right.
template <class Parse>
auto Checked(const Parse& parse) {
  return [&parse](const std::string& text) {
    const auto parsed = parse(text);
    return parsed.ok() ? std::string() : parsed.error().message;
  };
}

// A whole decimal number in [low, high]: CLI11 itself would read 010 as octal and wrap -1.
auto WholeIn(std::uint64_t low, std::uint64_t high) {
  return [=](const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = fault == std::errc() && end == text.data() + text.size() && (text == "0" || text[0] != '0');
    if (whole && value >= low && value <= high) return std::string();
    return fmt::format("expected a whole number from {} to {}, found '{}'", low, high, text);
  };
}

// A number from low (itself allowed only where `closed`) to high; NaN is none.
auto NumberIn(double low, bool closed, double high) {
  return [=](const std::string& text) {
    double value = 0;
    const bool read = CLI::detail::lexical_cast(text, value);
    if (read && (closed ? value >= low : value > low) && value <= high) return std::string();
    return fmt::format("expected a number {} {} and at most {}, found '{}'", closed ? "from" : "above", low, high,
                       text);
  };
}

void AddPromptFlags(CLI::App& c, RunOptions* o) {
  c.add_option("MODEL", o->model, "Folder with config.json, *.safetensors and tokenizer.json")->required();
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

void AddComputeFlags(CLI::App& c, RunOptions* o) {
  c.add_option(
       "--mode", o->mode,
       "Form of the attention: auto (prompt by cost, output absorbed), role (prompt mha, output absorbed), mha, "
       "absorb, or explicit (the slow float64 reference)")
      ->check(CLI::IsMember({"auto", "role", "mha", "absorb", "explicit"}))
      ->capture_default_str();
  c.add_option("--threads", o->threads, "Threads; 0: what affinity and cgroups leave")
      ->check(WholeIn(0, 4096))
      ->capture_default_str();
  c.add_option("--weights", o->weights, "How weights are kept: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  c.add_option("--kv-dtype", o->kv_dtype, "How cache rows are kept: bf16 or f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  c.add_option("--kernels", o->kernels, "Kernels to use instead of the fastest")
      ->check(CLI::IsMember({"portable", "avx2", "avx512"}));
  c.add_option("--prefill-chunk", o->prefill_chunk, "Prompt tokens a step; no result depends on it")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--ctx", o->ctx, "Most tokens, prompt and output; 0: prompt and --max-tokens, as far as the model goes")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_option("--memory", o->memory,
               "Bytes that weights, cache and workspace may take, as 8G or 512MiB; else what the machine leaves")
      ->check(Checked(ParseSize));
}

void AddSamplingFlags(CLI::App& c, RunOptions* o) {
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
  c.add_option("--seed", o->seed, "Of the draws: the same seed draws the same on every run")
      ->check(WholeIn(0, UINT64_MAX))
      ->capture_default_str();
}

Result<std::string> ReadAll(std::FILE* in, const std::string& name) {
  std::string text;
  char block[1 << 16];
  for (;;) {
    const std::size_t got = std::fread(block, 1, sizeof(block), in);
    text.append(block, got);
    if (text.size() > kMostPromptBytes)
      return Error{fmt::format("{}: a prompt of more than {} bytes", name, kMostPromptBytes)};
    if (got == sizeof(block)) continue;
    if (std::ferror(in) != 0) return Error{fmt::format("{}: {}", name, std::strerror(errno))};
    return text;
  }
}

Result<std::string> PromptText(const RunOptions& o) {
  if (o.prompt) return *o.prompt;
  if (o.prompt_file.empty()) {
    if (isatty(STDIN_FILENO) != 0)
      std::fputs("mla: reading the prompt from the terminal; end it with Ctrl-D\n", stderr);
    return ReadAll(stdin, "stdin");
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(o.prompt_file.c_str(), "rb"), std::fclose);
  if (!file) return Error{fmt::format("{}: {}", o.prompt_file, std::strerror(errno))};
  return ReadAll(file.get(), o.prompt_file);
}

}  // namespace

void AddRunFlags(CLI::App& command, RunOptions* options) {
  AddPromptFlags(command, options);
  AddComputeFlags(command, options);
  AddSamplingFlags(command, options);
  command.add_flag("--json", options->json, "Print one JSON object in place of the stream");
  command
      .add_flag("--prompt-logprobs", options->prompt_logprobs,
                "With --json: log-probability of each prompt token but the first")
      ->needs("--json");
  command.add_flag("--quiet,-q", options->quiet, "No progress, no summary");
}

Mode EngineMode(const RunOptions& options) {
  for (const Mode mode : {Mode::kRole, Mode::kMha, Mode::kAbsorb}) {
    if (options.mode == ModeName(mode)) return mode;
  }
  return Mode::kAuto;
}

SamplingParams Sampling(const RunOptions& options, const SamplingParams& defaults) {
  SamplingParams s = defaults;
  s.temperature = options.temperature.value_or(s.temperature);
  s.top_k = options.top_k.value_or(s.top_k);
  s.top_p = options.top_p.value_or(s.top_p);
  s.min_p = options.min_p.value_or(s.min_p);
  s.repetition_penalty = options.repetition_penalty.value_or(s.repetition_penalty);
  s.seed = options.seed;
  return s;
}

Result<std::int64_t> ParseSize(const std::string& text) {
  double number = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(rest, text.data() + text.size());
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  for (int i = 0; i < 4; ++i) {
    const std::string letter(1, "KMGT"[i]);
    if (unit == letter || unit == letter + "iB" || unit == letter + "i") scale = std::pow(1024.0, i + 1);
    if (unit == letter + "B") scale = std::pow(1000.0, i + 1);
  }
  if (fault != std::errc() || scale == 0 || !(number * scale >= 1) || number * scale > 1e18) {
    return Error{fmt::format("--memory: expected a size such as 8G, 512MiB or 2000000000, found '{}'", text)};
  }
  return static_cast<std::int64_t>(number * scale);
}

Result<std::int64_t> MemoryLimit(const RunOptions& options) {
  if (options.memory.empty()) return UsableMemory();
  MLA_ASSIGN_OR_RETURN(const std::int64_t asked, ParseSize(options.memory));
  return std::min(asked, UsableMemory());
}

namespace {

// No token covers more bytes than the longest: a text past that can be refused before it is cut into tokens, which
// takes tens of bytes of memory for each of its own.
Status MayFit(const std::string& text, const Tokenizer& tokenizer, const ModelInfo& model) {
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.TokenBytes(id).size());
  if (text.size() / longest <= static_cast<std::size_t>(model.max_position_embeddings)) return {};
  return Error{fmt::format("prompt: {} bytes are at least {} tokens, and don't fit the model's {} positions",
                           text.size(), text.size() / longest, model.max_position_embeddings)};
}

}  // namespace

Result<std::vector<std::int32_t>> PromptIds(const RunOptions& options, const Tokenizer* tokenizer,
                                            const ModelInfo& model) {
  if (options.ids) {
    MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, ParseIds(*options.ids));
    if (ids.empty() && model.bos_id) ids.push_back(*model.bos_id);
    return ids;
  }
  MLA_ASSIGN_OR_RETURN(const std::string text, PromptText(options));
  MLA_RETURN_IF_ERROR(MayFit(text, *tokenizer, model));
  const auto added = options.special ? Tokenizer::AddedTokens::kParse : Tokenizer::AddedTokens::kAsText;
  MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer->Encode(text, added));
  for (const std::int32_t id : ids) {
    if (id < model.vocab_size) continue;
    return Error{
        fmt::format("tokenizer.json: gives token id {}, and the model's vocabulary has {}", id, model.vocab_size)};
  }
  const auto bos = tokenizer->bos_id() ? tokenizer->bos_id() : model.bos_id;
  // One BOS, never two: a template's text may bring its own.
  const bool has_bos = bos && !ids.empty() && ids.front() == *bos;
  if (bos && !has_bos && (tokenizer->add_bos() || ids.empty())) ids.insert(ids.begin(), *bos);
  return ids;
}

}  // namespace mla::cli
