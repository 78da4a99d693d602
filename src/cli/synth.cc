// mla synth --like NAME OUT: a random checkpoint of a model's shape.
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "base/clock.h"
#include "base/cpu_info.h"
#include "bench/published_configs.h"
#include "bench/synthetic.h"
#include "cli/app.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "contract/tensors.h"
#include "io/quote.h"

namespace mla::cli {
namespace {

struct SynthOptions {
  bench::SyntheticOptions synthetic;
  std::string out;
  std::string dtype;  // "" for the config's
  std::string shard_size = "4G";
  int threads = 0;
  bool quiet = false;
};

std::optional<bench::SyntheticDType> DTypeOf(const std::string& word) {
  if (word == "bf16") return bench::SyntheticDType::kBF16;
  if (word == "fp8") return bench::SyntheticDType::kFP8;
  if (word == "f32") return bench::SyntheticDType::kF32;
  return std::nullopt;
}

const char* Word(bench::SyntheticDType dtype) {
  switch (dtype) {
    case bench::SyntheticDType::kBF16: return "bf16";
    case bench::SyntheticDType::kFP8: return "fp8";
    case bench::SyntheticDType::kF32: return "f32";
  }
  return "?";
}

std::string Summary(const bench::SyntheticPlan& plan, const std::string& out, double seconds) {
  const contract::ModelConfig& c = plan.config.config;
  const auto count = static_cast<double>(contract::CountParameters(c).total);
  return fmt::format("{}: {}, {} layers, {:.3g} billion parameters in {}; {} in {} file{}, {:.1f} s, {:.0f} MB/s\n",
                     io::Printable(out), c.model_type, c.num_hidden_layers, count / 1e9, Word(plan.config.dtype),
                     HumanBytes(plan.bytes), plan.shards.size(), plan.shards.size() == 1 ? "" : "s", seconds,
                     seconds > 0 ? static_cast<double>(plan.bytes) / 1e6 / seconds : 0);
}

Result<int> Run(const SynthOptions& o, const Log& log) {
  InterruptScope interrupt;
  bench::SyntheticOptions options = o.synthetic;
  options.dtype = DTypeOf(o.dtype);
  MLA_ASSIGN_OR_RETURN(const std::int64_t shard_bytes, ParseSize(o.shard_size));
  MLA_ASSIGN_OR_RETURN(const bench::SyntheticPlan plan, bench::PlanSynthetic(options, shard_bytes));
  const std::unique_ptr<Executor> pool = MakeThreadPool(o.threads > 0 ? o.threads : UsableCpus());
  interrupt.Defer();  // what is half written is removed first
  const auto begin = Clock::now();
  bool stopped = false;
  {
    ProgressLine progress(!o.quiet, "writing");
    MLA_ASSIGN_OR_RETURN(stopped, bench::WriteSynthetic(plan, o.out, *pool, [&](std::int64_t done, std::int64_t total) {
                           progress.Update(done, total);
                           return !interrupt.Requested();
                         }));
  }
  if (stopped) {
    log->warn("interrupted: nothing was made");
    return kInterrupted;
  }
  if (o.quiet) return kDone;
  MLA_RETURN_IF_ERROR(WriteOut(Summary(plan, o.out, Since(begin))));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

void AddFlags(CLI::App& c, SynthOptions* o) {
  std::vector<std::string_view> names;
  for (const bench::PublishedConfig& config : bench::PublishedConfigs()) names.push_back(config.name);
  c.add_option("--like", o->synthetic.like,
               fmt::format("Whose shape: {}, or the path of a config.json", fmt::join(names, ", ")))
      ->required();
  c.add_option("OUT", o->out, "Folder to make; must not be there yet")->required();
  c.add_option("--layers", o->synthetic.layers, "Layers in place of the model's; a dense one and one with experts stay")
      ->check(WholeIn(1, 1 << 16));
  c.add_option("--vocab", o->synthetic.vocab, "Token ids in place of the model's")->check(WholeIn(1, 1U << 31));
  c.add_option("--experts", o->synthetic.experts, "Routed experts a layer in place of the model's")
      ->check(WholeIn(1, 1 << 16));
  c.add_option("--mtp-layers", o->synthetic.mtp_layers, "Layers for multi-token prediction in place of the model's")
      ->check(WholeIn(0, 64));
  c.add_option("--dtype", o->dtype, "How products are stored: bf16, fp8 or f32; default: as the config says")
      ->check(CLI::IsMember({"bf16", "fp8", "f32"}));
  c.add_option("--seed", o->synthetic.seed, "Of the weights: the same seed gives the same bytes")
      ->check(WholeIn(0, UINT64_MAX))
      ->capture_default_str();
  c.add_option("--shard-size", o->shard_size, "Most bytes of tensors in a file")
      ->check(Checked(ParseSize))
      ->capture_default_str();
  c.add_option("--threads", o->threads, "Threads; 0: what affinity and cgroups leave")
      ->check(WholeIn(0, 4096))
      ->capture_default_str();
  c.add_flag("--quiet,-q", o->quiet, "No progress, no summary");
  c.footer(
      "The weights are random, yet scaled as a network's: activations stay finite, attention is not flat, experts lie "
      "apart. The tokenizer knows 256 bytes, begin and end. For sizing a machine before a download.");
}

}  // namespace

Action AddSynth(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand("synth", "Make a random checkpoint of a model's shape");
  auto options = std::make_shared<SynthOptions>();
  AddFlags(*command, options.get());
  return [options, log] { return Run(*options, log); };
}

}  // namespace mla::cli
