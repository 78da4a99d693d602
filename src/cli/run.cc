// mla run MODEL [PROMPT]: the continuation of a prompt, streamed.
#include <chrono>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "cli/app.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/run_cache.h"
#include "cli/run_explicit.h"
#include "cli/run_options.h"
#include "cli/streamer.h"
#include "engine/limits.h"
#include "mla/engine.h"
#include "mla/tokenizer.h"
#include "model/model.h"
#include "sampler/sampler.h"
#include "text/prompt.h"

namespace mla::cli {
namespace {

// The context of a run: as asked, or what the prompt and the output need, as far as the model goes.
Result<std::int64_t> Context(const RunOptions& o, const ModelInfo& info, std::int64_t prompt) {
  const std::int64_t most = info.max_position_embeddings;
  MLA_RETURN_IF_ERROR(CheckContext(o.ctx, most));
  const std::int64_t context = o.ctx > 0 ? o.ctx : std::min(most, prompt + o.max_tokens);
  const std::int64_t needed = prompt + (o.max_tokens > 0 ? 1 : 0);
  if (needed > context) {
    return Error{fmt::format("prompt: {} tokens{} don't fit the context of {} tokens{}", prompt,
                             o.max_tokens > 0 ? " and room for one more" : "", context, o.ctx > 0 ? " (--ctx)" : "")};
  }
  return context;
}

// Steps the engine to the request's end, or until interrupted. True where it was interrupted.
Result<bool> Drive(Engine& engine, SequenceId id, const InterruptScope& interrupt, Streamer& streamer,
                   RunReport* report) {
  const auto begin = Clock::now();
  auto first_token = begin;
  std::size_t delivered = 0;
  while (engine.Get(id).finish == FinishReason::kNone && !interrupt.Requested()) {
    if (!engine.Step()) return Error{fmt::format("cache: no page is left after {} tokens", delivered)};
    const SequenceView view = engine.Get(id);
    if (delivered == 0) first_token = Clock::now();
    for (; delivered < view.logprobs.size(); ++delivered) {
      MLA_RETURN_IF_ERROR(streamer.Push(view.output()[delivered]));
    }
  }
  report->prompt_seconds = std::chrono::duration<double>(first_token - begin).count();
  report->decode_seconds = Since(first_token);
  const SequenceView view = engine.Get(id);
  report->ids.assign(view.output().begin(), view.output().end());
  report->logprobs.assign(view.logprobs.begin(), view.logprobs.end());
  report->prompt_logprobs.assign(view.prompt_logprobs.begin(), view.prompt_logprobs.end());
  report->finish_reason = FinishReasonName(view.finish);
  report->prompt_form = FormName(view.prompt_form);
  if (view.finish == FinishReason::kNotFinite) {
    return engine::NotFiniteError(view.prompt_size + static_cast<std::int64_t>(report->ids.size()));
  }
  if (view.finish == FinishReason::kNone) report->finish_reason = "interrupt";
  return view.finish == FinishReason::kNone;
}

Request RequestOf(const RunOptions& o, const model::Opened& opened, const Tokenizer* tokenizer,
                  const RunPrompt& prompt) {
  Request request;
  request.prompt = prompt.ids;
  request.continued = prompt.continued;
  request.max_tokens = o.max_tokens;
  request.sampling = Sampling(o, opened.info.sampling);
  request.prompt_logprobs = o.prompt_logprobs;
  if (!o.ignore_eos) request.eos_ids = text::EosIds(opened.info.eos_ids, tokenizer);
  return request;
}

// Loads, runs, streams. True where it was interrupted.
Result<bool> RunEngine(const RunOptions& o, const model::Opened& opened, const Request& request,
                       InterruptScope& interrupt, Streamer& streamer, const Log& log, RunReport* report) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t context,
                       Context(o, opened.info, static_cast<std::int64_t>(request.prompt.size())));
  const auto begin = Clock::now();
  MLA_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(o, opened, context, report->threads, "--ctx", log));
  Engine& engine = *loaded.engine;
  report->load_seconds = Since(begin);
  report->kernels_rejected = WarnOfRejectedKernels(engine, log);
  report->numa_nodes = loaded.pool->nodes();
  report->threads = loaded.pool->workers();  // fewer than asked where the system gives no more

  interrupt.Defer();
  MLA_RETURN_IF_ERROR(LoadCacheOf(o, &engine, report));
  MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request));
  MLA_ASSIGN_OR_RETURN(const bool interrupted, Drive(engine, id, interrupt, streamer, report));
  report->save_status = SaveCacheOf(o, request, id, &engine, report);
  report->stats = engine.stats();
  report->memory = engine.memory();
  if (o.json || !o.quiet) report->huge_pages = ReadHugePageUse();
  report->kernels = engine.kernels();
  report->form_table = engine.options().form_table.id;
  report->cache_bytes_per_token = engine.cache_bytes_per_token();
  report->context = context;
  report->rope_fingerprint = engine.rope_fingerprint();
  return interrupted;
}

Result<int> Run(RunOptions o, const Log& log) {
  if (o.is_explicit() && !(o.load_cache.empty() && o.save_cache.empty())) {
    return Error{"--mode explicit: has no cache to load or save"};
  }
  InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  o.weights = KeptWeights(o, opened.config);
  std::optional<Tokenizer> tokenizer;
  if (!o.ids) {
    MLA_ASSIGN_OR_RETURN(tokenizer, Tokenizer::Load(o.model));
  } else if (auto found = Tokenizer::Load(o.model); found.ok()) {
    tokenizer = std::move(found).value();  // only to show text; --ids needs none
  } else if (std::filesystem::exists(o.model + "/tokenizer.json") ||
             std::filesystem::exists(o.model + "/tiktoken.model")) {
    log->warn("ids are shown in place of text: {}", found.error().message);
  }
  const Tokenizer* text = tokenizer ? &*tokenizer : nullptr;
  RunReport report;
  MLA_ASSIGN_OR_RETURN(const RunPrompt prompt, PromptOf(o, text, opened.info));
  MLA_RETURN_IF_ERROR(CanSave(o));
  report.prompt_ids = prompt.ids;
  report.has_text = text != nullptr;
  report.threads = ThreadCount(o, log);
  const Request request = RequestOf(o, opened, text, prompt);
  MLA_RETURN_IF_ERROR(sampler::Validate(request.sampling));

  Streamer streamer(text, !o.json);
  bool interrupted = false;
  if (o.is_explicit()) {
    MLA_ASSIGN_OR_RETURN(const std::int64_t context,
                         Context(o, opened.info, static_cast<std::int64_t>(request.prompt.size())));
    interrupt.Defer();
    MLA_ASSIGN_OR_RETURN(interrupted,
                         RunExplicit(
                             {o, opened, request, context}, [&] { return interrupt.Requested(); }, streamer, &report));
  } else {
    MLA_ASSIGN_OR_RETURN(interrupted, RunEngine(o, opened, request, interrupt, streamer, log, &report));
  }
  MLA_RETURN_IF_ERROR(streamer.Finish());
  report.text = streamer.text();
  if (o.json) MLA_RETURN_IF_ERROR(WriteJson(o, report));
  if (!o.quiet) WriteSummary(o, report);
  MLA_RETURN_IF_ERROR(report.save_status);
  return interrupted ? kInterrupted : kDone;
}

}  // namespace

Action AddRun(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand("run", "Continue a prompt");
  auto options = std::make_shared<RunOptions>();
  AddRunFlags(*command, options.get());
  return [options, log] { return Run(*options, log); };
}

}  // namespace mla::cli
