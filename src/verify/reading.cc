#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sampler/sampler.h"
#include "verify/levels.h"
#include "verify/pass.h"

namespace mla::verify {
namespace {

using contract::ModelConfig;
using contract::MoeConfig;

constexpr std::int64_t kMostTokens = 1024;
constexpr std::int64_t kLeastTokens = 32;
constexpr double kErrors = 2;  // standard errors that decide

struct Reading {
  std::string name;
  ModelConfig config;
};

class Readings {
 public:
  explicit Readings(const ModelConfig& config) : config_(config) {}

  std::vector<Reading> All() {
    Rope();
    if (config_.moe) Experts(*config_.moe);
    return std::move(readings_);
  }

 private:
  void Add(std::string name, const std::function<void(ModelConfig&)>& change) {
    Reading reading{std::move(name), config_};
    change(reading.config);
    readings_.push_back(std::move(reading));
  }

  void Rope() {
    const RopeSpec& rope = config_.rope;
    if (rope.dim == 0) return;
    if (rope.layout != RopeLayout::kInterleaved) {
      Add("interleaved rope", [](ModelConfig& c) { c.rope.layout = RopeLayout::kInterleaved; });
    }
    if (rope.layout != RopeLayout::kHalfSplit) {
      Add("half-split rope", [](ModelConfig& c) { c.rope.layout = RopeLayout::kHalfSplit; });
    }
    if (rope.layout != RopeLayout::kNone) {
      Add("no rotation", [](ModelConfig& c) { c.rope.layout = RopeLayout::kNone; });
    }
    if (rope.layout == RopeLayout::kNone || rope.scaling != RopeScaling::kYarn || rope.factor <= 1) return;
    // The softmax scale's m^2 is of mscale_all_dim alone; cos and sin have the ratio of both.
    if (rope.mscale_all_dim != 0) {
      Add("no mscale in the softmax scale", [](ModelConfig& c) { c.rope.mscale = c.rope.mscale_all_dim = 0; });
    } else {
      Add("mscale 1 in the softmax scale", [](ModelConfig& c) { c.rope.mscale = c.rope.mscale_all_dim = 1; });
    }
    if (rope.mscale != rope.mscale_all_dim) {
      Add("cos and sin unscaled", [](ModelConfig& c) { c.rope.mscale = c.rope.mscale_all_dim; });
    } else if (rope.mscale != 0) {
      Add("cos and sin scaled by 1 / mscale", [](ModelConfig& c) { c.rope.mscale = 0; });
    }
  }

  void Experts(const MoeConfig& moe) {
    const bool sigmoid = moe.scoring_func == contract::ScoringFunc::kSigmoid;
    Add(sigmoid ? "softmax scores" : "sigmoid scores", [sigmoid](ModelConfig& c) {
      c.moe->scoring_func = sigmoid ? contract::ScoringFunc::kSoftmax : contract::ScoringFunc::kSigmoid;
    });
    Add(moe.norm_topk_prob ? "weights of experts not normalised" : "weights of experts normalised",
        [](ModelConfig& c) { c.moe->norm_topk_prob = !c.moe->norm_topk_prob; });
    if (moe.routed_scaling_factor != 1) {
      Add("routed experts unscaled", [](ModelConfig& c) { c.moe->routed_scaling_factor = 1; });
    } else {
      Add("routed experts scaled by 2", [](ModelConfig& c) { c.moe->routed_scaling_factor = 2; });
    }
    if (moe.topk_method == contract::TopkMethod::kGreedy) return;
    if (moe.n_group > 1 && moe.topk_group < moe.n_group) {
      Add("experts ungrouped", [](ModelConfig& c) { c.moe->n_group = c.moe->topk_group = 1; });
    } else {
      Grouped(moe);
    }
  }

  // As published models group theirs, where the experts can be.
  void Grouped(const MoeConfig& moe) {
    for (const auto& [groups, kept] : {std::pair{8, 4}, {4, 2}, {8, 3}}) {
      const std::int64_t size = moe.n_routed_experts / groups;
      if (moe.n_routed_experts % groups != 0 || size < 2 || size * kept < moe.num_experts_per_tok) continue;
      Add(fmt::format("experts in {} groups, {} kept", groups, kept), [groups = groups, kept = kept](ModelConfig& c) {
        c.moe->n_group = groups;
        c.moe->topk_group = kept;
      });
      return;
    }
  }

  const ModelConfig& config_;
  std::vector<Reading> readings_;
};

// -ln p of each token but the first.
Result<std::vector<double>> Losses(const Subject& subject, std::span<const std::int32_t> ids) {
  std::vector<double> losses;
  Pass pass;
  pass.ids = ids;
  pass.forms = {{std::ssize(ids), Form::kAbsorbed}};
  pass.chunk = 128;
  pass.sink = [&](std::int64_t row, std::span<const float> logits) {
    if (row + 1 == std::ssize(ids)) return;
    losses.push_back(-sampler::LogProbability(logits, ids[static_cast<std::size_t>(row + 1)]));
  };
  const Result<PassResult> done = RunPass(subject, pass);
  if (!done.ok()) return done.error();
  return losses;
}

double Mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value;
  return sum / static_cast<double>(x.size());
}

// Token by token, the two readings' losses are of the same text: their differences decide.
Check Decide(const std::string& name, const std::vector<double>& read, const std::vector<double>& other) {
  std::vector<double> gain;
  for (std::size_t i = 0; i < read.size(); ++i) gain.push_back(other[i] - read[i]);
  const double mean = Mean(gain);
  double squares = 0;
  for (const double g : gain) squares += (g - mean) * (g - mean);
  const auto n = static_cast<double>(gain.size());
  const double error = std::sqrt(squares / (n - 1) / n);
  Check check;
  check.level = 7;
  check.name = "against: " + name;
  check.values = std::ssize(gain);
  check.error = Mean(read);
  check.bound = Mean(other);
  check.ratio = check.error / check.bound;
  check.where = fmt::format("nats a token; {:+.4f} +/- {:.4f} from it", mean, error);
  check.verdict = mean > kErrors * error ? Verdict::kPass : Verdict::kNotRun;
  // A loss that is no number beats nothing.
  if (mean < -kErrors * error || !std::isfinite(check.error)) check.verdict = Verdict::kFail;
  if (!std::isfinite(check.bound) && std::isfinite(check.error)) check.verdict = Verdict::kPass;
  if (check.verdict == Verdict::kNotRun) check.note = "the text does not tell the two apart: a longer one may";
  return check;
}

}  // namespace

Status ProveReading(const Subject& subject, std::span<const std::int32_t> ids, const Budget& budget, Report* report) {
  if (ids.empty()) {
    report->NotRun(7, "reading of the config", "needs a text that the model should know: --text");
    return {};
  }
  const std::int64_t most = std::min({std::ssize(ids), kMostTokens, subject.config.max_position_embeddings});
  if (most < kLeastTokens) {
    report->NotRun(7, "reading of the config",
                   fmt::format("the text has {} tokens, and at least {} are needed", most, kLeastTokens));
    return {};
  }
  const std::vector<Reading> readings = Readings(subject.config).All();
  // As many tokens as the time for all readings allows, by a few of them.
  const auto first = ids.first(static_cast<std::size_t>(kLeastTokens));
  const double begin = budget.Spent();
  const auto timed = Losses(subject, first);
  if (!timed.ok()) return timed.error();
  const double a_token = (budget.Spent() - begin) / static_cast<double>(kLeastTokens);
  const double room = std::max(0.0, budget.seconds() - budget.Spent());
  const double affordable = 0.8 * room / (a_token * static_cast<double>(readings.size() + 1));
  const auto tokens =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min(affordable, 1e9)), kLeastTokens, most);
  ids = ids.first(static_cast<std::size_t>(tokens));
  MLA_ASSIGN_OR_RETURN(const std::vector<double> read, Losses(subject, ids));
  for (const Reading& reading : readings) {
    if (budget.Cancelled()) return {};
    MLA_ASSIGN_OR_RETURN(const std::vector<double> other, Losses(Subject(subject, reading.config), ids));
    report->Add(Decide(reading.name, read, other));
  }
  report->sampled.push_back(fmt::format("level 7: the text's first {} tokens", tokens));
  return {};
}

}  // namespace mla::verify
