#include "server/engine_loop.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"

namespace mla::server {

struct EngineLoop::Impl {
  struct Command {
    Ticket ticket = 0;
    std::optional<ScheduledRequest> request;  // nothing: cancel
  };
  struct Known {
    RequestId id = 0;
    std::int64_t samples = 0;  // that have not ended
  };

  Impl(Engine& e, std::int64_t max_waiting, Deliver d)
      : engine(e),
        scheduler(e, {.max_waiting = max_waiting, .now = [begin = begin] { return Since(begin); }}),
        deliver(std::move(d)) {
    now.pages = engine.pages();
  }

  void Loop();
  void Apply(Command& command, std::vector<LoopEvent>* out);
  void Collect(std::vector<LoopEvent>* out);
  void Note(double seconds);

  const Clock::time_point begin = Clock::now();
  Engine& engine;
  Scheduler scheduler;
  Deliver deliver;
  std::map<Ticket, Known> known;
  std::map<RequestId, Ticket> tickets;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Command> commands;  // under the mutex, as what follows
  bool stop = false;
  LoopSnapshot now;
  std::thread thread;
};

EngineLoop::EngineLoop(Engine& engine, std::int64_t max_waiting, Deliver deliver)
    : impl_(std::make_unique<Impl>(engine, max_waiting, std::move(deliver))) {
  impl_->thread = std::thread([this] { impl_->Loop(); });
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake.notify_one();
  impl_->thread.join();
}

void EngineLoop::Submit(Ticket ticket, ScheduledRequest request, double seconds) {
  if (seconds > 0) request.deadline = Since(impl_->begin) + seconds;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->commands.push_back({ticket, std::move(request)});
  }
  impl_->wake.notify_one();
}

void EngineLoop::Cancel(Ticket ticket) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->commands.push_back({ticket, std::nullopt});
  }
  impl_->wake.notify_one();
}

LoopSnapshot EngineLoop::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->now;
}

void EngineLoop::Impl::Apply(Command& command, std::vector<LoopEvent>* out) {
  if (!command.request) {
    if (const auto found = known.find(command.ticket); found != known.end()) scheduler.Cancel(found->second.id);
    return;
  }
  LoopEvent event;
  event.ticket = command.ticket;
  const auto submitted = scheduler.Submit(*command.request);
  if (!submitted.ok()) {
    event.kind = LoopEvent::Kind::kRefused;
    event.message = submitted.error().message;
  } else if (!submitted->has_value()) {
    event.kind = LoopEvent::Kind::kFull;
  } else {
    event.kind = LoopEvent::Kind::kAccepted;
    known[command.ticket] = {**submitted, command.request->samples};
    tickets[**submitted] = command.ticket;
  }
  out->push_back(std::move(event));
}

void EngineLoop::Impl::Collect(std::vector<LoopEvent>* out) {
  for (const SchedulerEvent& e : scheduler.events()) {
    const auto ticket = tickets.find(e.request);
    if (ticket == tickets.end()) continue;
    LoopEvent event;
    event.kind = e.kind == SchedulerEvent::Kind::kToken      ? LoopEvent::Kind::kToken
                 : e.kind == SchedulerEvent::Kind::kAdmitted ? LoopEvent::Kind::kAdmitted
                                                             : LoopEvent::Kind::kFinished;
    event.ticket = ticket->second;
    event.sample = e.sample;
    event.id = e.id;
    event.logprob = e.logprob;
    event.top.assign(e.top.begin(), e.top.end());
    event.finish = e.finish;
    event.prompt_logprobs.assign(e.prompt_logprobs.begin(), e.prompt_logprobs.end());
    event.top_of_prompt.assign(e.top_of_prompt.begin(), e.top_of_prompt.end());
    event.cached_tokens = e.cached_tokens;
    out->push_back(std::move(event));
    if (e.kind != SchedulerEvent::Kind::kFinished) continue;
    const auto request = known.find(ticket->second);
    if (--request->second.samples > 0) continue;
    known.erase(request);
    tickets.erase(ticket);
  }
}

void EngineLoop::Impl::Note(double seconds) {
  const EngineStats stats = engine.stats();
  const std::lock_guard lock(mutex);
  const bool mha = stats.mha_steps > now.engine.mha_steps;
  const bool absorbed = stats.absorbed_steps > now.engine.absorbed_steps;
  if (mha || absorbed) {
    if (now.forms.size() >= LoopSnapshot::kFormsKept) now.forms.erase(0, 1);
    now.forms += mha && absorbed ? 'b' : mha ? 'm' : 'a';
  }
  now.engine = stats;
  now.scheduler = scheduler.stats();
  now.pages = engine.pages();
  if (seconds > 0) now.step_seconds = seconds;
}

void EngineLoop::Impl::Loop() {
  std::vector<Command> taken;
  for (;;) {
    taken.clear();
    {
      std::unique_lock lock(mutex);
      if (!scheduler.busy()) wake.wait(lock, [this] { return stop || !commands.empty(); });
      if (stop) return;
      taken.swap(commands);
    }
    std::vector<LoopEvent> events;
    for (Command& command : taken) Apply(command, &events);
    const EngineStats before = engine.stats();
    const auto step_begin = Clock::now();
    if (scheduler.Step()) Collect(&events);
    StepSeconds seconds;
    // Telling of what has ended is no step.
    if (engine.stats().steps > before.steps) {
      seconds.step = Since(step_begin);
      seconds.mha_attention = engine.stats().attention.mha_seconds - before.attention.mha_seconds;
      seconds.absorbed_attention = engine.stats().attention.absorbed_seconds - before.attention.absorbed_seconds;
    }
    Note(seconds.step);
    if (seconds.step > 0 || !events.empty()) deliver(std::move(events), seconds);
  }
}

}  // namespace mla::server
