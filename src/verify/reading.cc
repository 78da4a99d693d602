#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "verify/levels.h"
#include "verify/pass.h"

namespace mla::verify {
namespace {

using contract::ModelConfig;
using contract::MoeConfig;

constexpr std::int64_t kWindow = 512;
constexpr std::int64_t kTextChunk = 128;
constexpr std::int64_t kLeastTextTokens = 32;
constexpr double kErrors = 2;  // standard errors that decide
// Nats a token by which another reading must do better to make this one wrong. On text that a model was not trained on
// it may prefer a reading that blurs it: the demo does, by 0.008 on its held-out text.
constexpr double kMargin = 0.01;

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

// What logits are divided by. A model that is over-sure of itself would else favour whichever reading blurs it: each
// reading is taken at the temperature that suits it best.
constexpr std::array<double, 4> kTemperatures = {1, 1.1, 1.2, 1.35};

// Losses of one reading, -ln p of each token that has one before it in its window: [temperature][token].
struct Losses {
  std::array<std::vector<double>, kTemperatures.size()> of;

  void Add(std::span<const float> logits, std::int32_t id) {
    const float largest = *std::max_element(logits.begin(), logits.end());
    for (std::size_t t = 0; t < kTemperatures.size(); ++t) {
      const auto scale = static_cast<float>(1 / kTemperatures[t]);
      double sum = 0;
      for (const float logit : logits) sum += static_cast<double>(std::exp((logit - largest) * scale));
      const double own = static_cast<double>((logits[static_cast<std::size_t>(id)] - largest) * scale);
      of[t].push_back(std::log(sum) - own);
    }
  }

  static double Mean(const std::vector<double>& x) {
    double sum = 0;
    for (const double value : x) sum += value;
    return sum / static_cast<double>(x.size());
  }

  const std::vector<double>& Best() const {
    return *std::min_element(of.begin(), of.end(), [](const auto& a, const auto& b) { return Mean(a) < Mean(b); });
  }
};

Status AddWindow(const Subject& subject, std::span<const std::int32_t> ids, Losses* losses) {
  Pass pass;
  pass.ids = ids;
  pass.forms = {{std::ssize(ids), Form::kMha}};
  pass.chunk = kTextChunk;
  pass.sink = [&](std::int64_t row, std::span<const float> logits) {
    if (row + 1 < std::ssize(ids)) losses->Add(logits, ids[static_cast<std::size_t>(row + 1)]);
  };
  const Result<PassResult> done = RunPass(subject, pass);
  return done.ok() ? Status() : Status(done.error());
}

// Two readings' losses are of the same tokens: their differences decide.
struct Difference {
  double read = 0;  // mean losses
  double other = 0;
  double mean = 0;   // other - read
  double error = 0;  // its standard error, tokens taken as independent
  std::int64_t tokens = 0;

  bool Clear(double errors) const { return std::abs(mean) > errors * error; }
};

Difference Compare(const Losses& read, const Losses& other) {
  // The text of an alternative that was decided early is the beginning of the other's.
  const std::size_t n = other.of[0].size();
  Losses same;
  for (std::size_t t = 0; t < kTemperatures.size(); ++t)
    same.of[t].assign(read.of[t].begin(), read.of[t].begin() + static_cast<std::ptrdiff_t>(n));
  const std::vector<double>& a = same.Best();
  const std::vector<double>& b = other.Best();
  Difference d{Losses::Mean(a), Losses::Mean(b), 0, 0, static_cast<std::int64_t>(n)};
  d.mean = d.other - d.read;
  double squares = 0;
  for (std::size_t i = 0; i < n; ++i) squares += std::pow(b[i] - a[i] - d.mean, 2);
  d.error = std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
  return d;
}

Check CheckOf(const std::string& name, const Difference& d) {
  Check check;
  check.level = 7;
  check.name = "against: " + name;
  check.values = d.tokens;
  check.error = d.read;
  check.bound = d.other;
  check.ratio = d.read / d.other;
  check.where = fmt::format("nats a token over {}; {:+.4f} +/- {:.4f} from it", d.tokens, d.mean, d.error);
  if (!std::isfinite(d.read) || (std::isfinite(d.other) && d.mean < -kMargin && d.Clear(kErrors))) {
    check.verdict = Verdict::kFail;
  } else if (!std::isfinite(d.other) || (d.mean > 0 && d.Clear(kErrors))) {
    check.verdict = Verdict::kPass;
  } else {
    check.verdict = Verdict::kNotRun;
    check.note = "not told apart: a longer text, or one nearer to the training's, may";
  }
  return check;
}

// Window after window, the reading of the config and those that are not decided yet.
class Contest {
 public:
  explicit Contest(const Subject& subject)
      : subject_(subject),
        readings_(Readings(subject.config).All()),
        losses_(readings_.size()),
        done_(readings_.size()) {}

  // All are, or one was against the config.
  bool Decided() const {
    return lost_ || std::all_of(done_.begin(), done_.end(), [](char done) { return done != 0; });
  }
  std::int64_t tokens() const { return std::ssize(read_.of[0]); }

  Status Add(std::span<const std::int32_t> window) {
    MLA_RETURN_IF_ERROR(AddWindow(subject_, window, &read_));
    for (std::size_t i = 0; i < readings_.size(); ++i) {
      if (done_[i] != 0) continue;
      MLA_RETURN_IF_ERROR(AddWindow(Subject(subject_, readings_[i].config), window, &losses_[i]));
      const Difference d = Compare(read_, losses_[i]);
      // Looked at after every window: more is asked of an early decision.
      done_[i] = d.tokens >= kWindow - 1 && d.Clear(2 * kErrors) && std::abs(d.mean) > kMargin ? 1 : 0;
      lost_ |= done_[i] != 0 && d.mean < 0;
    }
    return {};
  }

  void Tell(Report* report) const {
    for (std::size_t i = 0; i < readings_.size(); ++i) {
      report->Add(CheckOf(readings_[i].name, Compare(read_, losses_[i])));
    }
  }

 private:
  const Subject& subject_;
  std::vector<Reading> readings_;
  Losses read_;
  std::vector<Losses> losses_;
  std::vector<char> done_;
  bool lost_ = false;
};

}  // namespace

Status ProveReading(const Subject& subject, std::span<const std::int32_t> ids, const Budget& budget, Report* report) {
  if (ids.empty()) {
    report->NotRun(7, "reading of the config", "needs a text that the model should know: --text");
    return {};
  }
  const std::int64_t window = std::min({kWindow, subject.config.max_position_embeddings, std::ssize(ids)});
  if (window < kLeastTextTokens) {
    report->NotRun(7, "reading of the config",
                   fmt::format("{} tokens of text, and at least {} are needed", window, kLeastTextTokens));
    return {};
  }
  Contest contest(subject);
  // What other levels left, and half of the budget at least: close readings take thousands of tokens to tell.
  const double end = std::max(budget.seconds(), budget.Spent() + budget.seconds() / 2);
  for (std::int64_t first = 0; first + window <= std::ssize(ids) && !contest.Decided(); first += window) {
    if (budget.Cancelled() || (first > 0 && budget.Spent() > end)) break;
    MLA_RETURN_IF_ERROR(contest.Add(ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(window))));
  }
  if (contest.tokens() == 0) return {};
  contest.Tell(report);
  report->sampled.push_back(fmt::format("level 7: {} of the text's {} tokens", contest.tokens(), ids.size()));
  return {};
}

}  // namespace mla::verify
