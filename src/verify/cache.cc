#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "mla/engine.h"
#include "verify/levels.h"
#include "verify/pass.h"

namespace mla::verify {
namespace {

constexpr std::int64_t kEngineOutput = 4;
constexpr std::int64_t kEnginePage = 8;

// Equal bits pass; a difference is told relative to the row.
void CompareBits(const Matrix& found, const Matrix& expected, Tally* tally) {
  for (std::int64_t t = 0; t < expected.rows; ++t) {
    const double size = RootMeanSquare(expected.row(t), expected.cols);
    Place place{-1, t};
    for (place.channel = 0; place.channel < expected.cols; ++place.channel) {
      tally->Add(std::abs(found.row(t)[place.channel] - expected.row(t)[place.channel]), 0, size, place);
    }
  }
}

// Pages of several sizes, in any order, of a cache full of NaN, whole and in chunks, against one page.
Status ProvePages(const Subject& subject, const Scope& scope, Form form, Report* report) {
  const auto total = std::ssize(scope.ids);
  Pass pass;
  pass.ids = scope.ids;
  pass.forms = {{total, form}};
  pass.logits = true;
  pass.page_tokens = total;
  MLA_ASSIGN_OR_RETURN(const PassResult whole, RunPass(subject, pass));
  struct Variant {
    std::int64_t page_tokens;
    std::int64_t chunk;
  };
  for (const Variant& v : {Variant{64, 0}, Variant{16, 0}, Variant{7, 5}, Variant{1, 0}}) {
    Tally tally(4, fmt::format("{}: pages of {}, shuffled{}", FormName(form), v.page_tokens,
                               v.chunk > 0 ? fmt::format(", chunks of {}", v.chunk) : std::string()));
    pass.page_tokens = v.page_tokens;
    pass.chunk = v.chunk;
    pass.shuffle = 3;
    MLA_ASSIGN_OR_RETURN(const PassResult paged, RunPass(subject, pass));
    CompareBits(paged.logits, whole.logits, &tally);
    report->Add(tally.Finish());
  }
  return {};
}

// A sequence's output and log-probabilities.
struct Outcome {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
};

Result<Outcome> Finish(Engine* engine, SequenceId id) {
  while (engine->Get(id).finish == FinishReason::kNone) {
    if (!engine->Step()) return Error{"cache: no page is left"};
  }
  const SequenceView view = engine->Get(id);
  return Outcome{{view.output().begin(), view.output().end()}, {view.logprobs.begin(), view.logprobs.end()}};
}

void CompareOutcomes(const Outcome& found, const Outcome& expected, Tally* tally) {
  const bool same = found.ids == expected.ids && found.logprobs.size() == expected.logprobs.size();
  tally->Add(same ? 0 : 1, 0, 0, {.what = "token ids"});
  for (std::size_t i = 0; same && i < expected.logprobs.size(); ++i) {
    const auto a = static_cast<double>(found.logprobs[i]);
    const auto b = static_cast<double>(expected.logprobs[i]);
    tally->Add(std::abs(a - b), 0, std::abs(b), {-1, static_cast<std::int64_t>(i), -1, -1, "output's log-probability"});
  }
}

class EngineProof {
 public:
  EngineProof(const Subject& subject, const Scope& scope, Mode mode) : subject_(subject), mode_(mode) {
    const std::int64_t room = subject.config.max_position_embeddings - kEngineOutput;
    const std::int64_t prompt = std::clamp<std::int64_t>(std::ssize(scope.ids), 1, std::max<std::int64_t>(room, 1));
    request_.prompt.assign(scope.ids.begin(), scope.ids.begin() + static_cast<std::ptrdiff_t>(prompt));
    request_.max_tokens = kEngineOutput;
    options_.mode = mode;
    options_.kv_dtype = subject.kv_dtype;
    options_.context = std::min(subject.config.max_position_embeddings, prompt + kEngineOutput);
    options_.max_sequences = 2;
    options_.page_tokens = kEnginePage;
    options_.prefill_chunk = 12;
    options_.kernels = subject.kernels;
  }

  Status Run(Report* report) {
    MLA_ASSIGN_OR_RETURN(const Outcome alone, Alone());
    Tally hit(4, fmt::format("engine, {}: prefix hit", ModeName(mode_)));
    Tally preempted(4, fmt::format("engine, {}: preemption", ModeName(mode_)));
    MLA_RETURN_IF_ERROR(Hit(alone, &hit));
    MLA_RETURN_IF_ERROR(Preempted(alone, &preempted));
    report->Add(hit.Finish("the sequence is shorter than a page"));
    report->Add(preempted.Finish());
    return {};
  }

 private:
  Result<Outcome> Alone() {
    MLA_ASSIGN_OR_RETURN(Engine engine, Engine::Create(subject_.model, options_, subject_.executor));
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request_));
    return Finish(&engine, id);
  }

  // A second sequence takes over the first one's pages; then a third those that the first two gave back.
  Status Hit(const Outcome& alone, Tally* tally) {
    if (std::ssize(request_.prompt) <= kEnginePage) return {};
    MLA_ASSIGN_OR_RETURN(Engine engine, Engine::Create(subject_.model, options_, subject_.executor));
    MLA_ASSIGN_OR_RETURN(const SequenceId giver, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const Outcome first, Finish(&engine, giver));
    MLA_ASSIGN_OR_RETURN(const SequenceId taker, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const Outcome second, Finish(&engine, taker));
    CompareOutcomes(first, alone, tally);
    CompareOutcomes(second, alone, tally);
    engine.Release(giver);
    engine.Release(taker);
    MLA_ASSIGN_OR_RETURN(const SequenceId after, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const Outcome third, Finish(&engine, after));
    CompareOutcomes(third, alone, tally);
    return {};
  }

  // Beside another sequence, it loses its pages in the middle of its prompt and again in the middle of its output.
  Status Preempted(const Outcome& alone, Tally* tally) {
    MLA_ASSIGN_OR_RETURN(Engine engine, Engine::Create(subject_.model, options_, subject_.executor));
    MLA_ASSIGN_OR_RETURN(const SequenceId other, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request_));
    engine.Step();
    engine.Preempt(id);
    while (engine.Get(id).logprobs.size() < kEngineOutput / 2 && engine.Step()) {
    }
    engine.Preempt(id);
    MLA_ASSIGN_OR_RETURN(const Outcome found, Finish(&engine, id));
    MLA_ASSIGN_OR_RETURN(const Outcome beside, Finish(&engine, other));
    CompareOutcomes(found, alone, tally);
    CompareOutcomes(beside, alone, tally);
    return {};
  }

  const Subject& subject_;
  Mode mode_;
  Request request_;
  EngineOptions options_;
};

}  // namespace

Status ProveCache(const Subject& subject, const Scope& scope, Report* report) {
  for (const Form form : {Form::kAbsorbed, Form::kMha}) MLA_RETURN_IF_ERROR(ProvePages(subject, scope, form, report));
  for (const Mode mode : {Mode::kAbsorb, Mode::kMha, Mode::kRole}) {
    MLA_RETURN_IF_ERROR(EngineProof(subject, scope, mode).Run(report));
  }
  return {};
}

}  // namespace mla::verify
