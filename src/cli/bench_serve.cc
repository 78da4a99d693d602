// mla bench serve: a load of requests over the engine's scheduler, and what its clients would have seen.
#include "cli/bench_serve.h"

#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/cpu_info.h"
#include "cli/app.h"
#include "cli/bench_options.h"
#include "cli/flags.h"
#include "cli/html_page.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/serve_bench_report.h"
#include "cli/serving_options.h"
#include "cli/text_input.h"
#include "model/model.h"

namespace mla::cli {
namespace {

struct BenchServeOptions : ComputeOptions {
  ServingOptions serving;
  bench::LoadOptions load;
  std::string trace;
  std::string arrivals = "poisson";
  std::string lengths = "uniform";
  std::string prompt_tokens = "64:256";
  std::string output_tokens = "32:128";
  std::string html;
  double first_token_limit = 1;
  double token_limit = 0.1;
};

Result<std::vector<bench::LoadRequest>> LoadOf(BenchServeOptions& o) {
  if (!o.trace.empty()) {
    MLA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(o.trace, "trace"));
    return bench::ParseTrace(text, o.trace);
  }
  o.load.arrivals = o.arrivals == "even" ? bench::Arrivals::kEven : bench::Arrivals::kPoisson;
  o.load.lengths = o.lengths == "loguniform" ? bench::Lengths::kLogUniform : bench::Lengths::kUniform;
  MLA_ASSIGN_OR_RETURN(o.load.prompt, ParseLengthRange(o.prompt_tokens));
  MLA_ASSIGN_OR_RETURN(o.load.output, ParseLengthRange(o.output_tokens));
  return bench::MakeLoad(o.load);
}

Result<int> Run(BenchServeOptions o, const Log& log) {
  const InterruptScope interrupt;
  ServeBenchReport report;
  MLA_ASSIGN_OR_RETURN(report.options.load, LoadOf(o));
  report.drawn = o.load;
  report.trace = o.trace;
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  MLA_ASSIGN_OR_RETURN(const EngineOptions engine,
                       ServingEngineOptions(o.serving, o, opened.info.max_position_embeddings));
  MLA_ASSIGN_OR_RETURN(const LoadedEngine loaded,
                       LoadEngine(o, opened, engine, ThreadCount(o, log), kServingSizeFlags, log));
  WarnOfRejectedKernels(*loaded.engine, log);
  report.machine = {DetectCpu().model, loaded.engine->kernels(), loaded.pool->workers()};
  report.model = o.model;
  report.weights = KeptWeights(o, opened.config);
  report.engine = loaded.engine->options();
  report.memory = loaded.engine->memory();
  report.cache_bytes_per_token = loaded.engine->cache_bytes_per_token();
  report.pages = loaded.engine->pages().total;
  report.options.vocab_size = opened.info.vocab_size;
  report.options.seed = o.load.seed;
  report.options.first_token_limit = o.first_token_limit;
  report.options.token_limit = o.token_limit;
  ProgressLine progress(!o.quiet, "serving", ProgressLine::Unit::kCount);
  report.options.progress = [&](std::int64_t ended, std::int64_t all) { progress.Update(ended, all); };
  report.resident_begin = ResidentBytes();
  MLA_ASSIGN_OR_RETURN(report.result, bench::BenchServe(*loaded.engine, report.options));
  report.resident_end = ResidentBytes();
  if (!o.html.empty()) MLA_RETURN_IF_ERROR(WritePage(o.html, ServeBenchHtml(report)));
  MLA_RETURN_IF_ERROR(WriteOut(o.json ? ServeBenchJson(report) : ServeBenchText(report)));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

void AddLoadFlags(CLI::App& c, BenchServeOptions* o) {
  bench::LoadOptions& l = o->load;
  c.add_option("--requests", l.requests, "How many")->check(WholeIn(1, 10'000'000))->capture_default_str();
  c.add_option("--rate", l.rate, "Requests a second; 0: all at once")
      ->check(NumberIn(0, true, 1e6))
      ->capture_default_str();
  c.add_option("--arrivals", o->arrivals, "How they come at that rate: poisson or even")
      ->check(CLI::IsMember({"poisson", "even"}))
      ->capture_default_str();
  c.add_option("--prompt-tokens", o->prompt_tokens, "Tokens of a prompt, or LOW:HIGH")
      ->check(Checked(ParseLengthRange))
      ->capture_default_str();
  c.add_option("--output-tokens", o->output_tokens, "Tokens of output, or LOW:HIGH")
      ->check(Checked(ParseLengthRange))
      ->capture_default_str();
  c.add_option("--lengths", o->lengths,
               "How lengths are drawn between the two: uniform, or loguniform (short ones prevail)")
      ->check(CLI::IsMember({"uniform", "loguniform"}))
      ->capture_default_str();
  c.add_option("--prefix-tokens", l.prefix_tokens, "Tokens that prompts share at their beginning, before their own")
      ->check(WholeIn(0, 1 << 24))
      ->capture_default_str();
  c.add_option("--prefix-share", l.prefix_share, "Share of the requests that have such a beginning")
      ->check(NumberIn(0, true, 1))
      ->capture_default_str();
  c.add_option("--prefixes", l.prefixes, "Different beginnings")->check(WholeIn(1, 1 << 24))->capture_default_str();
  c.add_option("--cancelled", l.cancelled, "Share of the requests that is cancelled while its output comes")
      ->check(NumberIn(0, true, 1))
      ->capture_default_str();
  c.add_option("--seed", l.seed, "Of all that is drawn")->check(WholeIn(0, UINT64_MAX))->capture_default_str();
  c.add_option("--trace", o->trace,
               "A file to replay in their place: a line a request of {\"arrival\", \"prompt_tokens\", "
               "\"output_tokens\", \"prefix\", \"prefix_tokens\"}");
}

}  // namespace

Action AddBenchServe(CLI::App& bench, const Log& log) {
  CLI::App* c = bench.add_subcommand("serve", "Many requests at once: throughput, waiting, pages");
  auto options = std::make_shared<BenchServeOptions>();
  AddModelArgument(*c, options.get());
  AddLoadFlags(*c, options.get());
  c->add_option("--first-token-limit", options->first_token_limit,
                "Seconds to the first token within which a request counts as good")
      ->check(NumberIn(0, false, 1e6))
      ->capture_default_str();
  c->add_option("--token-limit", options->token_limit, "... and seconds from token to token, in the mean")
      ->check(NumberIn(0, false, 1e6))
      ->capture_default_str();
  c->add_option("--html", options->html, "Write a page with charts to this file");
  c->add_flag("--json", options->json, "Print one JSON object");
  AddServingFlags(*c, &options->serving, options.get());
  AddComputeFlags(*c, options.get());
  c->add_flag("--quiet,-q", options->quiet, "No progress");
  return [options, log]() -> Result<int> {
    if (options->is_explicit()) return Error{"--mode: the explicit reference serves one request at a time"};
    return Run(*options, log);
  };
}

}  // namespace mla::cli
