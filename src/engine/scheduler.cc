#include "mla/scheduler.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/no_throw.h"

namespace mla {
namespace {

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A continuation of a request, in the engine from admission to its end.
struct Sample {
  SequenceId sequence = 0;
  std::int64_t told = 0;  // tokens of output
  bool ended = false;
};

struct Entry {
  RequestId id = 0;
  ScheduledRequest asked;  // the prompt is given up at admission
  std::vector<Sample> samples;

  bool ended() const {
    return std::all_of(samples.begin(), samples.end(), [](const Sample& s) { return s.ended; });
  }
};

// A list of values of an event, in Impl's storage while that grows.
struct Stored {
  std::size_t begin = 0;
  std::size_t size = 0;
};

struct Pending {
  SchedulerEvent event;
  Stored top;
  Stored prompt_logprobs;
  Stored top_of_prompt;
};

}  // namespace

struct Scheduler::Impl {
  Impl(Engine& e, Options o) : engine(e), options(std::move(o)) {
    if (!options.now) options.now = SteadySeconds;
  }

  std::int64_t held() const;
  void Leave(Sample* sample);
  void End(Entry* entry, FinishReason reason);
  void Expire();
  void Admit();
  bool ResumeParked();
  void MakeRoom();
  void Tell();
  void TellSample(Entry* entry, std::size_t index);
  Pending& Add(SchedulerEvent::Kind kind, const Entry& entry, std::size_t sample);
  void Publish();
  template <class T>
  static Stored Store(std::span<const T> values, std::vector<T>* storage);

  Engine& engine;
  Options options;
  SchedulerStats stats;
  RequestId next_id = 1;
  std::deque<Entry> waiting;
  std::vector<Entry> running;      // in order of arrival
  std::vector<SequenceId> parked;  // in order of arrival
  // Events since the last Publish, then as they are shown.
  std::vector<Pending> pending;
  std::vector<TokenLogprob> tops;
  std::vector<float> logprobs;
  bool shown = false;  // what is stored has been published: the next event begins anew
  std::vector<SchedulerEvent> events;
};

Scheduler::Scheduler(Engine& engine, Options options) : impl_(std::make_unique<Impl>(engine, std::move(options))) {}

Scheduler::~Scheduler() {
  for (const Entry& entry : impl_->running) {
    for (const Sample& sample : entry.samples) {
      if (!sample.ended) impl_->engine.Release(sample.sequence);
    }
  }
}

Result<std::optional<RequestId>> Scheduler::Submit(const ScheduledRequest& request) {
  using Answer = std::optional<RequestId>;
  return WithoutThrow("request", [&]() -> Result<Answer> {
    Impl& impl = *impl_;
    MLA_RETURN_IF_ERROR(impl.engine.Check(request.request));
    const std::int64_t most = impl.engine.options().max_sequences;
    if (request.samples < 1 || request.samples > most) {
      return Error{fmt::format("samples: expected a number from 1 to {}, found {}", most, request.samples)};
    }
    if (request.samples > 1 && request.request.max_tokens == 0) {
      return Error{"samples: expected max tokens above 0 for more than one, found 0"};
    }
    if (static_cast<std::int64_t>(impl.waiting.size()) >= impl.options.max_waiting) return Answer{};
    Entry entry;
    entry.id = impl.next_id++;
    entry.asked = request;
    entry.samples.resize(static_cast<std::size_t>(request.samples));
    impl.waiting.push_back(std::move(entry));
    ++impl.stats.submitted;
    return Answer{impl.waiting.back().id};
  });
}

Pending& Scheduler::Impl::Add(SchedulerEvent::Kind kind, const Entry& entry, std::size_t sample) {
  if (shown) {
    pending.clear();
    tops.clear();
    logprobs.clear();
    shown = false;
  }
  Pending& added = pending.emplace_back();
  added.event.kind = kind;
  added.event.request = entry.id;
  added.event.sample = static_cast<std::int64_t>(sample);
  return added;
}

template <class T>
Stored Scheduler::Impl::Store(std::span<const T> values, std::vector<T>* storage) {
  const Stored stored{storage->size(), values.size()};
  storage->insert(storage->end(), values.begin(), values.end());
  return stored;
}

// Samples in the engine.
std::int64_t Scheduler::Impl::held() const {
  std::int64_t held = 0;
  for (const Entry& entry : running) {
    held += std::count_if(entry.samples.begin(), entry.samples.end(), [](const Sample& s) { return !s.ended; });
  }
  return held;
}

// Out of the engine, where the sample is in it.
void Scheduler::Impl::Leave(Sample* sample) {
  sample->ended = true;
  if (sample->sequence == 0) return;
  std::erase(parked, sample->sequence);
  engine.Release(sample->sequence);
}

// Ends those samples of a request that have not ended by themselves.
void Scheduler::Impl::End(Entry* entry, FinishReason reason) {
  for (std::size_t i = 0; i < entry->samples.size(); ++i) {
    Sample& sample = entry->samples[i];
    if (sample.ended) continue;
    Add(SchedulerEvent::Kind::kFinished, *entry, i).event.finish = reason;
    Leave(&sample);
  }
  ++stats.finished;
  ++(reason == FinishReason::kDeadline ? stats.expired : stats.cancelled);
}

void Scheduler::Cancel(RequestId id) {
  Impl& impl = *impl_;
  const auto is = [id](const Entry& e) { return e.id == id; };
  if (const auto it = std::find_if(impl.running.begin(), impl.running.end(), is); it != impl.running.end()) {
    impl.End(&*it, FinishReason::kCancelled);
    impl.running.erase(it);
  } else if (const auto at = std::find_if(impl.waiting.begin(), impl.waiting.end(), is); at != impl.waiting.end()) {
    impl.End(&*at, FinishReason::kCancelled);
    impl.waiting.erase(at);
  }
}

void Scheduler::Impl::Expire() {
  const double now = options.now();
  const auto late = [&](Entry& entry) {
    if (!entry.asked.deadline || now < *entry.asked.deadline) return false;
    End(&entry, FinishReason::kDeadline);
    return true;
  };
  std::erase_if(running, late);
  std::erase_if(waiting, late);
}

// The oldest that was parked goes first, and nobody passes it. False where it still has to wait.
bool Scheduler::Impl::ResumeParked() {
  while (!parked.empty()) {
    const SequenceId id = parked.front();
    const bool alone = engine.free_pages() == engine.options().cache_pages;
    if (!alone && engine.PagesNeeded(engine.Get(id).ids) > engine.pages_to_spare()) return false;
    engine.Resume(id);
    parked.erase(parked.begin());
  }
  return true;
}

void Scheduler::Impl::Admit() {
  if (!ResumeParked()) return;
  std::int64_t in_engine = held();
  while (!waiting.empty()) {
    Entry& entry = waiting.front();
    const auto samples = static_cast<std::int64_t>(entry.samples.size());
    if (in_engine + samples > engine.options().max_sequences) return;
    // Each sample beyond the first writes a copy of the prompt's last page.
    const bool alone = in_engine == 0;
    if (!alone && engine.PagesNeeded(entry.asked.request.prompt) + samples - 1 > engine.pages_to_spare()) return;
    const Result<SequenceId> first = engine.Submit(entry.asked.request);
    if (!first.ok()) return;  // memory is short: it is tried again with the next step
    entry.samples.front().sequence = first.value();
    std::size_t admitted = 1;
    for (; admitted < entry.samples.size(); ++admitted) {
      const Result<SequenceId> fork =
          engine.Fork(first.value(), entry.asked.request.sampling.sample + static_cast<std::uint64_t>(admitted));
      if (!fork.ok()) break;
      entry.samples[admitted].sequence = fork.value();
    }
    if (admitted < entry.samples.size()) {
      for (std::size_t i = 0; i < admitted; ++i) engine.Release(std::exchange(entry.samples[i].sequence, 0));
      return;
    }
    const SequenceView view = engine.Get(first.value());
    SchedulerEvent& event = Add(SchedulerEvent::Kind::kAdmitted, entry, 0).event;
    event.cached_tokens = view.cached_tokens;
    event.prompt_form = view.prompt_form;
    in_engine += samples;
    std::vector<std::int32_t>().swap(entry.asked.request.prompt);
    running.push_back(std::move(entry));
    waiting.pop_front();
  }
}

// Parks the youngest until the others can move. The oldest that runs is never parked.
void Scheduler::Impl::MakeRoom() {
  while (engine.missing_pages() > 0) {
    SequenceId youngest = 0;
    std::int64_t runs = 0;
    for (const Entry& entry : running) {
      for (const Sample& sample : entry.samples) {
        if (sample.ended || engine.Get(sample.sequence).parked) continue;
        ++runs;
        youngest = std::max(youngest, sample.sequence);
      }
    }
    if (runs < 2) return;
    engine.Park(youngest);
    parked.insert(std::lower_bound(parked.begin(), parked.end(), youngest), youngest);
    ++stats.preemptions;
  }
}

void Scheduler::Impl::TellSample(Entry* entry, std::size_t index) {
  Sample& sample = entry->samples[index];
  if (sample.ended) return;
  const SequenceView view = engine.Get(sample.sequence);
  const auto top = static_cast<std::size_t>(entry->asked.request.top_logprobs);
  for (; sample.told < static_cast<std::int64_t>(view.logprobs.size()); ++sample.told) {
    const auto at = static_cast<std::size_t>(sample.told);
    Pending& told = Add(SchedulerEvent::Kind::kToken, *entry, index);
    told.event.id = view.output()[at];
    told.event.logprob = view.logprobs[at];
    if (top > 0) told.top = Store(view.top.subspan(at * top, top), &tops);
  }
  if (view.finish == FinishReason::kNone) return;
  Pending& told = Add(SchedulerEvent::Kind::kFinished, *entry, index);
  told.event.finish = view.finish;
  told.event.cached_tokens = view.cached_tokens;
  if (index == 0) {
    told.prompt_logprobs = Store(view.prompt_logprobs, &logprobs);
    told.top_of_prompt = Store(view.top_of_prompt, &tops);
  }
  Leave(&sample);
}

void Scheduler::Impl::Tell() {
  for (Entry& entry : running) {
    for (std::size_t i = 0; i < entry.samples.size(); ++i) TellSample(&entry, i);
    if (entry.ended()) ++stats.finished;
  }
  std::erase_if(running, [](const Entry& entry) { return entry.ended(); });
}

// Storage no longer grows: spans into it stand.
void Scheduler::Impl::Publish() {
  if (shown) pending.clear();
  shown = true;
  events.clear();
  for (Pending& p : pending) {
    p.event.top = std::span<const TokenLogprob>(tops).subspan(p.top.begin, p.top.size);
    p.event.prompt_logprobs = std::span<const float>(logprobs).subspan(p.prompt_logprobs.begin, p.prompt_logprobs.size);
    p.event.top_of_prompt = std::span<const TokenLogprob>(tops).subspan(p.top_of_prompt.begin, p.top_of_prompt.size);
    events.push_back(p.event);
  }
}

bool Scheduler::Step() {
  Impl& impl = *impl_;
  impl.Expire();
  impl.Admit();
  impl.MakeRoom();
  const bool ran = impl.engine.Step();
  MLA_CHECK(ran || impl.running.empty());
  impl.Tell();
  impl.Publish();
  return ran || !impl.events.empty();
}

bool Scheduler::busy() const {
  const bool untold = !impl_->shown && !impl_->pending.empty();
  return untold || !impl_->waiting.empty() || !impl_->running.empty();
}

std::span<const SchedulerEvent> Scheduler::events() const { return impl_->events; }

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = impl_->stats;
  stats.waiting = static_cast<std::int64_t>(impl_->waiting.size());
  stats.running = impl_->held();
  return stats;
}

const Engine& Scheduler::engine() const { return impl_->engine; }

}  // namespace mla
