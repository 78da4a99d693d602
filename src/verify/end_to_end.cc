#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "reference/routing.h"
#include "reference/streamed.h"
#include "verify/levels.h"
#include "verify/pass.h"

namespace mla::verify {
namespace {

constexpr double kSpreads = 4;  // a bound, in root mean squares of the rounded runs' distances

// The experts of the float64 run at each position. Production's own choice and weights stand where they agree.
layers::RouteFn ForcedRoute(const contract::ModelConfig& c, const std::vector<reference::Choice>& choices,
                            layers::RouteFn own) {
  return [&c, &choices, own = std::move(own)](const layers::RouteCall& call) {
    own(call);
    const std::int64_t k = call.spec.top_k;
    const auto& forced = choices[static_cast<std::size_t>(call.layer)][static_cast<std::size_t>(call.position)];
    std::vector<std::int64_t> found(call.index, call.index + k);
    std::vector<std::int64_t> wanted = forced;
    std::sort(found.begin(), found.end());
    std::sort(wanted.begin(), wanted.end());
    if (found == wanted) return;
    const std::vector<double> logits(call.logits, call.logits + call.spec.experts);
    const reference::Routing routing = reference::WeighExperts(reference::GateScores(logits, *c.moe), forced, *c.moe);
    for (std::int64_t i = 0; i < k; ++i) {
      call.index[i] = static_cast<std::int32_t>(routing.experts[static_cast<std::size_t>(i)]);
      call.weight[i] = static_cast<float>(routing.weights[static_cast<std::size_t>(i)]);
    }
  };
}

layers::RouteFn OwnRoute(const Subject& subject) {
  return subject.parts.route ? subject.parts.route : layers::RouteByOps;
}

std::int64_t ArgMax(const double* row, std::int64_t n) { return std::max_element(row, row + n) - row; }

class EndToEnd {
 public:
  EndToEnd(const Subject& subject, std::span<const std::int32_t> ids, const reference::StreamedResult& exact)
      : subject_(subject), c_(subject.config), ids_(ids), exact_(exact) {}

  const double* ExactRow(std::int64_t t) const { return exact_.logits.data() + t * c_.vocab_size; }

  // A path with the float64 run's experts: distance of each row's logits, and the token that is likeliest.
  Status Path(const std::string& name, Pass pass, Report* report) const {
    Subject forced = subject_;
    if (c_.moe) forced.parts.route = ForcedRoute(c_, exact_.choices, OwnRoute(subject_));
    pass.ids = ids_;
    pass.logits = true;
    MLA_ASSIGN_OR_RETURN(const PassResult result, RunPass(forced, pass));
    Tally logits(6, "logits, " + name);
    Tally tokens(6, "greedy tokens, " + name);
    for (std::int64_t t = 0; t < result.logits.rows; ++t) {
      const double* found = result.logits.row(t);
      const double* exact = ExactRow(t);
      double squares = 0;
      for (std::int64_t i = 0; i < c_.vocab_size; ++i) squares += std::pow(found[i] - exact[i], 2);
      const double bound = kSpreads * exact_.spread[static_cast<std::size_t>(t)];
      const double size = std::sqrt(reference::Dot(exact, exact, c_.vocab_size));
      logits.Add(std::sqrt(squares), bound, size, {-1, t});
      // Two logits that are off by |d|_2 together may change places where they are no more than sqrt(2) |d|_2 apart.
      const double lead = exact[ArgMax(exact, c_.vocab_size)] - exact[ArgMax(found, c_.vocab_size)];
      tokens.Add(lead, std::numbers::sqrt2 * bound, size, {-1, t});
    }
    report->Add(logits.Finish());
    report->Add(tokens.Finish());
    return {};
  }

  // Production's own choice of experts: no verdict, since a near tie may fall either way.
  Status Unforced(Form form, Report* report) const {
    Pass pass;
    pass.ids = ids_;
    pass.forms = {{std::ssize(ids_), form}};
    pass.logits = true;
    pass.trace = true;
    MLA_ASSIGN_OR_RETURN(const PassResult result, RunPass(subject_, pass));
    double kl = 0;
    double worst = 0;
    for (std::int64_t t = 0; t < result.logits.rows; ++t) {
      const double row = Divergence(ExactRow(t), result.logits.row(t));
      kl += row / static_cast<double>(result.logits.rows);
      worst = std::max(worst, row);
    }
    const auto [flips, choices] = Flips(result);
    Check check;
    check.level = 6;
    check.name = fmt::format("unforced, {}", FormName(form));
    check.verdict = Verdict::kInfo;
    check.values = result.logits.rows;
    check.note = fmt::format("KL from float64 {:.2e} nats a token, {:.2e} at most; {} of {} choices of experts differ",
                             kl, worst, flips, choices);
    report->Add(std::move(check));
    return {};
  }

 private:
  // KL(softmax(p) || softmax(q)), nats.
  double Divergence(const double* p, const double* q) const {
    const auto log_sum = [&](const double* x) {
      const double largest = x[ArgMax(x, c_.vocab_size)];
      double sum = 0;
      for (std::int64_t i = 0; i < c_.vocab_size; ++i) sum += std::exp(x[i] - largest);
      return largest + std::log(sum);
    };
    const double p_sum = log_sum(p);
    const double q_sum = log_sum(q);
    double kl = 0;
    for (std::int64_t i = 0; i < c_.vocab_size; ++i) kl += std::exp(p[i] - p_sum) * ((p[i] - p_sum) - (q[i] - q_sum));
    return kl;
  }

  // Experts that production chose otherwise, of all.
  std::pair<std::int64_t, std::int64_t> Flips(const PassResult& result) const {
    std::int64_t flips = 0;
    std::int64_t all = 0;
    for (std::size_t layer = 0; layer < exact_.choices.size(); ++layer) {
      for (std::size_t t = 0; t < exact_.choices[layer].size(); ++t) {
        const auto& exact = exact_.choices[layer][t];
        const auto k = std::ssize(exact);
        const auto* found = result.layers[layer].expert.data() + static_cast<std::ptrdiff_t>(t) * k;
        for (const std::int64_t e : exact) flips += std::find(found, found + k, e) == found + k ? 1 : 0;
        all += k;
      }
    }
    return {flips, all};
  }

  const Subject& subject_;
  const contract::ModelConfig& c_;
  std::span<const std::int32_t> ids_;
  const reference::StreamedResult& exact_;
};

Status ProvePaths(const EndToEnd& proof, std::int64_t total, Report* report) {
  const std::int64_t half = std::max<std::int64_t>(1, total / 2);
  Pass absorbed;
  absorbed.forms = {{total, Form::kAbsorbed}};
  Pass mha;
  mha.forms = {{total, Form::kMha}};
  Pass role;
  role.forms = {{half, Form::kMha}, {total, Form::kAbsorbed}};
  role.decode_from = half;
  Pass chunked = absorbed;
  chunked.chunk = 5;
  Pass mha_chunked = mha;
  mha_chunked.chunk = 5;
  Pass paged = absorbed;
  paged.page_tokens = 3;
  paged.shuffle = 4;
  MLA_RETURN_IF_ERROR(proof.Path("absorbed", absorbed, report));
  MLA_RETURN_IF_ERROR(proof.Path("mha", mha, report));
  MLA_RETURN_IF_ERROR(proof.Path("mha, then absorbed one by one", role, report));
  MLA_RETURN_IF_ERROR(proof.Path("absorbed in chunks of 5", chunked, report));
  MLA_RETURN_IF_ERROR(proof.Path("mha in chunks of 5", mha_chunked, report));
  return proof.Path("absorbed in shuffled pages of 3", paged, report);
}

}  // namespace

Status ProveEndToEnd(const Subject& subject, const Scope& scope, const Budget& budget, Report* report) {
  const std::int64_t total = scope.end_to_end;
  if (total == 0) {
    report->NotRun(6, "whole model in float64", "the budget has no room for it: --budget gives it more");
    return {};
  }
  const auto ids = std::span(scope.ids).first(static_cast<std::size_t>(total));
  reference::StreamedOptions options;
  MLA_ASSIGN_OR_RETURN(const bool bf16_inputs, Bf16Inputs(subject));
  MLA_ASSIGN_OR_RETURN(const bool bf16_attention, Bf16Attention(subject));
  options.bf16 = {subject.kv_dtype == DType::kBF16, subject.weight_dtype != WeightDType::kF32, bf16_inputs,
                  bf16_attention};
  options.context = total;
  options.stop = [&] { return budget.Cancelled(); };
  const auto exact = reference::RunStreamed(subject.config, subject.checkpoint, ids, options, subject.executor);
  if (!exact) return {};
  if (total < std::ssize(scope.ids)) {
    report->sampled.push_back(fmt::format("level 6, whole model: {} of {} tokens", total, scope.ids.size()));
  }
  const EndToEnd proof(subject, ids, *exact);
  MLA_RETURN_IF_ERROR(ProvePaths(proof, total, report));
  for (const Form form : {Form::kAbsorbed, Form::kMha}) MLA_RETURN_IF_ERROR(proof.Unforced(form, report));
  return {};
}

}  // namespace mla::verify
