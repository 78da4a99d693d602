// Level 4, of the engine: rows that sequences share, give up and take over again, in memory and through a file.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "mla/engine.h"
#include "verify/levels.h"

namespace mla::verify {
namespace {

constexpr std::int64_t kOutput = 4;
constexpr std::int64_t kPage = 8;

// A sequence's output and log-probabilities.
struct Outcome {
  std::vector<std::int32_t> ids;
  std::vector<float> logprobs;
};

Outcome OutcomeOf(const Engine& engine, SequenceId id) {
  const SequenceView view = engine.Get(id);
  return {{view.output().begin(), view.output().end()}, {view.logprobs.begin(), view.logprobs.end()}};
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

// A file of a folder that goes with it; no path where the system gives none.
class PassingFile {
 public:
  PassingFile() {
    std::error_code none;
    std::string folder = (std::filesystem::temp_directory_path(none) / "mla-verify-XXXXXX").string();
    if (!none && ::mkdtemp(folder.data()) != nullptr) folder_ = folder;
  }
  PassingFile(const PassingFile&) = delete;
  PassingFile& operator=(const PassingFile&) = delete;
  ~PassingFile() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  bool exists() const { return !folder_.empty(); }
  std::string path() const { return folder_ + "/cache"; }

 private:
  std::string folder_;
};

class SharingProof {
 public:
  SharingProof(const Subject& subject, const Scope& scope, Mode mode) : subject_(subject), mode_(mode) {
    const std::int64_t room = subject.config.max_position_embeddings - kOutput;
    const std::int64_t prompt = std::clamp<std::int64_t>(std::ssize(scope.ids), 1, std::max<std::int64_t>(room, 1));
    request_.prompt.assign(scope.ids.begin(), scope.ids.begin() + static_cast<std::ptrdiff_t>(prompt));
    request_.max_tokens = kOutput;
    request_.sampling.temperature = 1;  // so that samples part
    options_.mode = mode;
    options_.kv_dtype = subject.kv_dtype;
    options_.context = std::min(subject.config.max_position_embeddings, prompt + kOutput);
    options_.max_sequences = 2;
    options_.page_tokens = kPage;
    options_.prefill_chunk = 12;
    options_.kernels = subject.kernels;
  }

  Status Run(Report* report) {
    MLA_ASSIGN_OR_RETURN(alone_, Alone(0));
    MLA_RETURN_IF_ERROR(Check("prefix hit", &SharingProof::Hit, report));
    MLA_RETURN_IF_ERROR(Check("fork", &SharingProof::Forked, report));
    MLA_RETURN_IF_ERROR(Check("preemption", &SharingProof::Preempted, report));
    MLA_RETURN_IF_ERROR(Check("eviction", &SharingProof::Evicted, report));
    return Check("restored from a file", &SharingProof::Restored, report);
  }

 private:
  // Tells why where it compares nothing.
  using Proof = Result<std::string> (SharingProof::*)(Tally* tally);
  Status Check(const char* name, Proof proof, Report* report) {
    Tally tally(4, fmt::format("engine, {}: {}", ModeName(mode_), name));
    MLA_ASSIGN_OR_RETURN(const std::string why_empty, (this->*proof)(&tally));
    report->Add(tally.Finish(why_empty));
    return {};
  }

  Result<Engine> Make() const { return Engine::Create(subject_.model, options_, subject_.executor); }
  bool Step(Engine* engine) const {
    if (subject_.faults.before_step) subject_.faults.before_step(engine);
    return engine->Step();
  }
  // Steps until a sequence has so many tokens of output, or has ended.
  Status RunTo(Engine* engine, SequenceId id, std::size_t output) const {
    while (engine->Get(id).finish == FinishReason::kNone && engine->Get(id).logprobs.size() < output) {
      if (!Step(engine)) return Error{"cache: no page is left"};
    }
    return {};
  }
  Result<Outcome> Finish(Engine* engine, SequenceId id) const {
    MLA_RETURN_IF_ERROR(RunTo(engine, id, kOutput));
    return OutcomeOf(*engine, id);
  }
  bool shorter_than_a_page() const { return std::ssize(request_.prompt) <= kPage; }
  bool ends_early() const { return std::ssize(alone_.ids) < kOutput; }

  // Nothing shared, and nothing disturbed.
  Result<Outcome> Alone(std::uint64_t sample) const {
    MLA_ASSIGN_OR_RETURN(Engine engine, Make());
    Request request = request_;
    request.sampling.sample = sample;
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request));
    while (engine.Get(id).finish == FinishReason::kNone) {
      if (!engine.Step()) return Error{"cache: no page is left"};
    }
    return OutcomeOf(engine, id);
  }

  // A second sequence takes over the first one's pages; then a third those that the first two gave back.
  Result<std::string> Hit(Tally* tally) {
    if (shorter_than_a_page()) return std::string("the sequence is shorter than a page");
    MLA_ASSIGN_OR_RETURN(Engine engine, Make());
    MLA_ASSIGN_OR_RETURN(const SequenceId giver, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const Outcome first, Finish(&engine, giver));
    MLA_ASSIGN_OR_RETURN(const SequenceId taker, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const Outcome second, Finish(&engine, taker));
    CompareOutcomes(first, alone_, tally);
    CompareOutcomes(second, alone_, tally);
    engine.Release(giver);
    engine.Release(taker);
    MLA_ASSIGN_OR_RETURN(const SequenceId after, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const Outcome third, Finish(&engine, after));
    CompareOutcomes(third, alone_, tally);
    return std::string();
  }

  // Two samples of one prompt, parted before it is run to its end; then one that comes from the other's output.
  Result<std::string> Forked(Tally* tally) {
    if (ends_early()) return std::string("the output ends early");
    MLA_ASSIGN_OR_RETURN(const Outcome other, Alone(1));
    MLA_ASSIGN_OR_RETURN(Engine engine, Make());
    for (const std::size_t output : {0, 2}) {
      MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request_));
      Step(&engine);
      MLA_RETURN_IF_ERROR(RunTo(&engine, id, output));
      MLA_ASSIGN_OR_RETURN(const SequenceId fork, engine.Fork(id, 1));
      MLA_ASSIGN_OR_RETURN(const Outcome found, Finish(&engine, id));
      MLA_ASSIGN_OR_RETURN(const Outcome forked, Finish(&engine, fork));
      CompareOutcomes(found, alone_, tally);
      CompareOutcomes(forked, other, tally);
      engine.Release(id);
      engine.Release(fork);
    }
    return std::string();
  }

  // Beside another sequence, it loses its pages in the middle of its prompt and, for a while, of its output.
  Result<std::string> Preempted(Tally* tally) {
    MLA_ASSIGN_OR_RETURN(Engine engine, Make());
    MLA_ASSIGN_OR_RETURN(const SequenceId other, engine.Submit(request_));
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request_));
    Step(&engine);
    engine.Preempt(id);
    MLA_RETURN_IF_ERROR(RunTo(&engine, id, kOutput / 2));
    engine.Park(id);
    Step(&engine);
    engine.Resume(id);
    MLA_ASSIGN_OR_RETURN(const Outcome found, Finish(&engine, id));
    MLA_ASSIGN_OR_RETURN(const Outcome beside, Finish(&engine, other));
    CompareOutcomes(found, alone_, tally);
    CompareOutcomes(beside, alone_, tally);
    return std::string();
  }

  // In a cache with a page more than one sequence takes, another one's rows replace the first one's, all but some.
  Result<std::string> Evicted(Tally* tally) {
    if (shorter_than_a_page()) return std::string("the sequence is shorter than a page");
    EngineOptions options = options_;
    options.cache_pages = (options.context + kPage - 1) / kPage + 1;
    MLA_ASSIGN_OR_RETURN(Engine engine, Engine::Create(subject_.model, options, subject_.executor));
    Request other = request_;
    std::reverse(other.prompt.begin(), other.prompt.end());
    for (const Request* request : {&request_, &other, &request_}) {
      MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(*request));
      MLA_ASSIGN_OR_RETURN(const Outcome found, Finish(&engine, id));
      if (request == &request_) CompareOutcomes(found, alone_, tally);
      engine.Release(id);
    }
    return std::string();
  }

  // Saved in the middle of its output, it goes on in an engine that never saw it.
  Result<std::string> Restored(Tally* tally) {
    if (ends_early()) return std::string("the output ends early");
    const PassingFile file;
    if (!file.exists()) return std::string("no folder for a passing file");
    Request rest = request_;
    {
      MLA_ASSIGN_OR_RETURN(Engine engine, Make());
      MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(request_));
      MLA_RETURN_IF_ERROR(RunTo(&engine, id, kOutput / 2));
      const SequenceView view = engine.Get(id);
      rest.prompt.assign(view.ids.begin(), view.ids.end());
      rest.continued = std::ssize(view.output());
      const Result<SavedCache> saved = engine.SaveCache(rest.prompt, rest.continued, file.path());
      if (!saved.ok()) return saved.error().message;
    }
    if (subject_.faults.on_file) subject_.faults.on_file(file.path());
    rest.max_tokens = kOutput - rest.continued;
    MLA_ASSIGN_OR_RETURN(Engine engine, Make());
    const Result<LoadedCache> loaded = engine.LoadCache(file.path());
    tally->Add(loaded.ok() && loaded->ids == rest.prompt ? 0 : 1, 0, 0, {.what = "what the file says"});
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine.Submit(rest));
    MLA_ASSIGN_OR_RETURN(const Outcome found, Finish(&engine, id));
    Outcome expected = alone_;
    expected.ids.erase(expected.ids.begin(), expected.ids.begin() + rest.continued);
    expected.logprobs.erase(expected.logprobs.begin(), expected.logprobs.begin() + rest.continued);
    CompareOutcomes(found, expected, tally);
    return std::string();
  }

  const Subject& subject_;
  Mode mode_;
  Request request_;
  EngineOptions options_;
  Outcome alone_;
};

}  // namespace

Status ProveSharing(const Subject& subject, const Scope& scope, Mode mode, Report* report) {
  return SharingProof(subject, scope, mode).Run(report);
}

}  // namespace mla::verify
