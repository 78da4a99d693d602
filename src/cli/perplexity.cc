// mla perplexity MODEL TEXT: the likelihood of a text.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <span>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "cli/app.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/perplexity_report.h"
#include "cli/text_input.h"
#include "engine/limits.h"
#include "sampler/sampler.h"

namespace mla::cli {
namespace {

struct PerplexityOptions : ComputeOptions {
  std::string text;  // a path, or "-"
  bool special = false;
  std::int64_t window = 0;  // 0: kDefaultWindow, as far as the model goes
  std::int64_t stride = 0;  // 0: the window
};

constexpr std::int64_t kDefaultWindow = 2048;

// Runs a window's ids and appends the log-probability of each but the first. Calls `step` now and then with the number
// of log-probabilities so far; false from it ends the call early, and what was appended then counts for nothing.
using Step = std::function<bool(std::int64_t)>;
using Scorer = std::function<Status(std::span<const std::int32_t> ids, const Step& step, std::vector<double>* out)>;

// How wide windows are and how far apart they begin. Fails where the model has no such positions.
Status ChooseWindows(const PerplexityOptions& o, const ModelInfo& info, PerplexityReport* report) {
  const std::int64_t most = info.max_position_embeddings;
  if (o.window > most) {
    return Error{fmt::format("--window: expected at most the model's {} positions, found {}", most, o.window)};
  }
  report->window = o.window > 0 ? o.window : std::min(most, kDefaultWindow);
  report->stride = o.stride > 0 ? o.stride : report->window;
  if (report->stride > report->window) {
    return Error{fmt::format("--stride: expected at most the window of {} tokens, found {}", report->window, o.stride)};
  }
  return {};
}

// Scores window after window, until interrupted.
Status Score(const Scorer& scorer, const std::vector<std::int32_t>& ids, const Tokenizer& tokenizer, bool show_progress,
             const InterruptScope& interrupt, PerplexityReport* report) {
  const auto begin = Clock::now();
  ProgressLine progress(show_progress, "scoring tokens", ProgressLine::Unit::kCount);
  std::vector<double> logprobs;
  for (const Window& w : CutWindows(report->tokens, report->window, report->stride)) {
    logprobs.clear();
    const Step step = [&](std::int64_t done) {
      progress.Update(std::max(w.first_scored, w.begin + done), report->tokens);
      return !interrupt.Requested();
    };
    if (!step(0)) break;
    const std::span<const std::int32_t> part =
        std::span(ids).subspan(static_cast<std::size_t>(w.begin), static_cast<std::size_t>(w.end - w.begin));
    MLA_RETURN_IF_ERROR(scorer(part, step, &logprobs));
    if (interrupt.Requested()) break;
    for (std::int64_t i = w.first_scored; i < w.end; ++i) {
      report->losses.Add(-logprobs[static_cast<std::size_t>(i - w.begin - 1)]);
      report->bytes += static_cast<std::int64_t>(tokenizer.TokenBytes(ids[static_cast<std::size_t>(i)]).size());
    }
    ++report->windows;
    report->rows += w.end - w.begin;
  }
  report->interrupted = interrupt.Requested();
  report->seconds = Since(begin);
  return {};
}

Scorer EngineScorer(Engine& engine, PerplexityReport* report) {
  return [&engine, report](std::span<const std::int32_t> ids, const Step& step, std::vector<double>* out) -> Status {
    Request request;
    request.prompt.assign(ids.begin(), ids.end());
    request.max_tokens = 0;
    request.prompt_logprobs = true;
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request));
    bool go_on = true;
    while (go_on && engine.Get(id).finish == FinishReason::kNone) {
      if (!engine.Step()) return Error{"cache: no page is left"};
      go_on = step(static_cast<std::int64_t>(engine.Get(id).prompt_logprobs.size()));
    }
    const SequenceView view = engine.Get(id);
    out->assign(view.prompt_logprobs.begin(), view.prompt_logprobs.end());
    if (view.finish == FinishReason::kNotFinite) {
      return engine::NotFiniteError(static_cast<std::int64_t>(out->size()) + 1);
    }
    if (go_on && view.prompt_form == Form::kMha) ++report->mha_windows;
    engine.Release(id);
    return {};
  };
}

Scorer ReferenceScorer(const reference::ReferenceModel& model, std::int64_t chunk) {
  return [&model, chunk](std::span<const std::int32_t> ids, const Step& step, std::vector<double>* out) -> Status {
    auto state = model.NewState();
    const auto vocab = static_cast<std::size_t>(model.config().vocab_size);
    const auto stop = [&] { return !step(static_cast<std::int64_t>(out->size())); };
    for (std::size_t at = 0; at + 1 < ids.size();) {
      // The last token's row predicts nothing of the window.
      const std::size_t count = std::min(ids.size() - 1 - at, static_cast<std::size_t>(chunk));
      const std::vector<double> logits = model.Append(state, ids.subspan(at, count), nullptr, stop);
      if (logits.empty()) return {};
      for (std::size_t i = 0; i < count; ++i) {
        out->push_back(sampler::LogProbability(std::span(logits).subspan(i * vocab, vocab), ids[at + i + 1]));
        if (!std::isfinite(out->back())) return engine::NotFiniteError(static_cast<std::int64_t>(out->size()));
      }
      at += count;
    }
    return {};
  };
}

Status ScoreByEngine(const PerplexityOptions& o, const model::Opened& opened, const std::vector<std::int32_t>& ids,
                     const Tokenizer& tokenizer, InterruptScope& interrupt, const Log& log, PerplexityReport* report) {
  const auto begin = Clock::now();
  const std::int64_t context = report->window;  // whatever the text: LongRoPE's factors follow from it
  MLA_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(o, opened, context, report->threads, "--window", log));
  report->load_seconds = Since(begin);
  report->threads = loaded.pool->workers();
  report->memory = loaded.engine->memory();
  report->kernels = loaded.engine->kernels();
  report->kernels_rejected = WarnOfRejectedKernels(*loaded.engine, log);
  report->form_table = loaded.engine->options().form_table.id;
  interrupt.Defer();
  return Score(EngineScorer(*loaded.engine, report), ids, tokenizer, !o.quiet, interrupt, report);
}

Status ScoreByReference(const PerplexityOptions& o, const model::Opened& opened, const std::vector<std::int32_t>& ids,
                        const Tokenizer& tokenizer, InterruptScope& interrupt, PerplexityReport* report) {
  const auto begin = Clock::now();
  const std::int64_t context = report->window;  // whatever the text: LongRoPE's factors follow from it
  MLA_ASSIGN_OR_RETURN(const LoadedReference loaded, LoadReference(o, opened, context));
  report->load_seconds = Since(begin);
  report->threads = 1;
  report->memory = loaded.plan;
  report->kernels = "float64 reference";
  interrupt.Defer();
  return Score(ReferenceScorer(loaded.model, o.prefill_chunk), ids, tokenizer, !o.quiet, interrupt, report);
}

Result<int> Run(PerplexityOptions o, const Log& log) {
  InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  o.weights = KeptWeights(o, opened.config);
  MLA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(o.model));
  PerplexityReport report;
  MLA_RETURN_IF_ERROR(ChooseWindows(o, opened.info, &report));
  std::vector<std::int32_t> ids;
  {
    MLA_ASSIGN_OR_RETURN(const std::string text, o.text == "-" ? ReadStdin("text") : ReadTextFile(o.text, "text"));
    MLA_ASSIGN_OR_RETURN(ids, EncodeText(text, o.special, tokenizer, opened.info));
  }
  report.tokens = static_cast<std::int64_t>(ids.size());
  const auto bos = tokenizer.bos_id() ? tokenizer.bos_id() : opened.info.bos_id;
  report.bos = bos && !ids.empty() && ids.front() == *bos;
  if (report.tokens < 2) {
    return Error{fmt::format("{}: expected at least two tokens, one to be scored after another, found {}",
                             o.text == "-" ? "stdin" : o.text, report.tokens)};
  }
  report.threads = ThreadCount(o, log);
  MLA_RETURN_IF_ERROR(o.is_explicit() ? ScoreByReference(o, opened, ids, tokenizer, interrupt, &report)
                                      : ScoreByEngine(o, opened, ids, tokenizer, interrupt, log, &report));
  if (report.losses.count() > 0) {
    MLA_RETURN_IF_ERROR(WriteOut(o.json ? PerplexityJson(o, report) : PerplexityText(o, report)));
    MLA_RETURN_IF_ERROR(FlushOut());
  }
  if (report.interrupted) {
    log->warn("interrupted after {} of {} tokens", report.losses.count(), report.tokens);
    return kInterrupted;
  }
  return kDone;
}

void AddFlags(CLI::App& c, PerplexityOptions* o) {
  AddModelArgument(c, o);
  c.add_option("TEXT", o->text, "File with the text, or - for stdin")->required();
  c.add_option("--window", o->window,
               "Tokens that are run together: the most context a token has; default: the model's positions, at most "
               "2048")
      ->check(WholeIn(2, std::uint64_t{1} << 31));
  c.add_option("--stride", o->stride,
               "Tokens between the beginnings of windows; a smaller one gives tokens more context, and takes longer; "
               "default: the window")
      ->check(WholeIn(1, std::uint64_t{1} << 31));
  c.add_flag("--special", o->special, "Parse added tokens, such as <|User|>'s, in the text; else they are plain text");
  AddComputeFlags(c, o);
  c.add_flag("--json", o->json, "Print one JSON object");
  c.add_flag("--quiet,-q", o->quiet, "No progress");
  c.footer(
      "The text is cut into tokens once, with BOS in front where the tokenizer asks for it: only the text's first "
      "window begins with it. Each token is scored in the first window that holds it, with the window's tokens before "
      "it as context; a window's first token has none there, and is left out where no window before it held it. The "
      "same windows as in Hugging Face's guide to perplexity of fixed-length models. Standard errors are sd / sqrt(n) "
      "of token losses, taken as independent; neighbours in a text are not, so the true ones are somewhat larger.");
  c.callback([o] {
    if (o->window > 0 && o->stride > o->window) {
      throw CLI::ValidationError("--stride",
                                 fmt::format("expected at most --window {}, found {}", o->window, o->stride));
    }
  });
}

}  // namespace

Action AddPerplexity(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand("perplexity", "Score a text: its likelihood under the model");
  auto options = std::make_shared<PerplexityOptions>();
  AddFlags(*command, options.get());
  return [options, log] { return Run(*options, log); };
}

}  // namespace mla::cli
