#include "mla/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/no_throw.h"
#include "engine/engine_impl.h"

namespace mla {

const char* ModeName(Mode mode) {
  switch (mode) {
    case Mode::kAuto: return "auto";
    case Mode::kRole: return "role";
    case Mode::kMha: return "mha";
    case Mode::kAbsorb: return "absorb";
  }
  return "?";
}

const char* PrefixReuseName(PrefixReuse reuse) {
  switch (reuse) {
    case PrefixReuse::kOff: return "off";
    case PrefixReuse::kPrompt: return "prompt";
    case PrefixReuse::kAll: return "all";
  }
  return "?";
}

const char* DrafterName(Drafter drafter) {
  switch (drafter) {
    case Drafter::kNone: return "none";
    case Drafter::kNgram: return "ngram";
    case Drafter::kMtp: return "mtp";
  }
  return "?";
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "";
    case FinishReason::kEos: return "stop";
    case FinishReason::kMaxTokens: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kNotFinite: return "not finite";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kDeadline: return "deadline";
  }
  return "?";
}

using engine::Sequence;

Engine::Impl::Impl(const Model& m, Executor& e, const engine::Sizes& s, std::unique_ptr<layers::Transformer> t,
                   LatentCache c, Buffer l)
    : model(m),
      executor(e),
      sizes(s),
      transformer(std::move(t)),
      cache(std::move(c)),
      pages(engine::PageLimits(s)),
      sampler(m.info().vocab_size),
      logits(std::move(l)) {
  const auto rows = static_cast<std::size_t>(s.step.max_rows);
  plan.Reserve(s);
  sequences.reserve(static_cast<std::size_t>(s.options.max_sequences));
  logit_rows.reserve(rows);
  logit_wants.reserve(rows);
  if (s.options.drafter == Drafter::kMtp) mtp.Reserve(s);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Result<MemoryPlan> Engine::Plan(const Model& model, const EngineOptions& options, int workers) {
  MLA_ASSIGN_OR_RETURN(const engine::Sizes sizes, engine::Resolve(model.impl().config, options, workers));
  MemoryPlan plan = engine::Planned(model.impl().config, sizes);
  plan.weights = model.weight_bytes();
  return plan;
}

Result<Engine> Engine::Create(const Model& model, const EngineOptions& options, Executor& executor) {
  const contract::ModelConfig& config = model.impl().config;
  MLA_ASSIGN_OR_RETURN(const engine::Sizes sizes, engine::Resolve(config, options, executor.workers()));
  MLA_ASSIGN_OR_RETURN(auto transformer,
                       layers::Transformer::Create(config, model.impl().weights, sizes.step, sizes.options.kernels));
  MLA_ASSIGN_OR_RETURN(LatentCache cache,
                       LatentCache::Create(sizes.layout, sizes.options.cache_pages, options.huge_pages));
  MLA_ASSIGN_OR_RETURN(
      Buffer logits, Buffer::Allocate(engine::kLogitRows * config.vocab_size * static_cast<std::int64_t>(sizeof(float)),
                                      "logits", options.huge_pages));
  transformer->FirstTouch(executor);
  FirstTouch(logits, executor);
  cache.FirstTouch(std::max<std::int64_t>(1, engine::kTouchedCache / sizes.layout.StorageBytes(1)), executor);
  return WithoutThrow("engine", [&]() -> Result<Engine> {
    return Engine(
        std::make_unique<Impl>(model, executor, sizes, std::move(transformer), std::move(cache), std::move(logits)));
  });
}

Sequence* Engine::Impl::Find(SequenceId id) {
  const auto found = std::lower_bound(sequences.begin(), sequences.end(), id,
                                      [](const auto& held, SequenceId wanted) { return held->id < wanted; });
  MLA_CHECK(found != sequences.end() && (*found)->id == id);
  return found->get();
}

Status Engine::Impl::Check(const Request& request) const {
  const auto size = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t vocab = model.info().vocab_size;
  if (size == 0) return Error{"prompt: expected at least one token, found none"};
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) return Error{fmt::format("prompt: expected ids from 0 to {}, found {}", vocab - 1, id)};
  }
  if (request.continued < 0 || request.continued >= size) {
    return Error{fmt::format("continued: expected 0 to {} of the prompt's {} tokens, found {}", size - 1, size,
                             request.continued)};
  }
  if (request.max_tokens < 0) return Error{fmt::format("max tokens: expected 0 or more, found {}", request.max_tokens)};
  const std::int64_t least_room = request.max_tokens > 0 ? 1 : 0;
  if (size + least_room > sizes.options.context) {
    return Error{fmt::format("prompt: {} tokens and room for {} more don't fit the context of {} tokens", size,
                             least_room, sizes.options.context)};
  }
  if (sizes.layout.PagesFor(size) > pages.total()) {
    return Error{fmt::format("prompt: {} tokens need {} cache pages, and the cache has {}", size,
                             sizes.layout.PagesFor(size), pages.total())};
  }
  MLA_RETURN_IF_ERROR(sampler::ValidateBias(request.logit_bias, vocab));
  MLA_RETURN_IF_ERROR(sampler::ValidateTopLogprobs(request.top_logprobs));
  return sampler::Validate(request.sampling);
}

Status Engine::Impl::HasSlot() const {
  if (static_cast<std::int64_t>(sequences.size()) < sizes.options.max_sequences) return {};
  return Error{fmt::format("engine: holds {} sequences already, as many as it was made for", sequences.size())};
}

Status Engine::Check(const Request& request) const { return impl_->Check(request); }

Result<SequenceId> Engine::Submit(const Request& request) {
  return WithoutThrow("sequence", [&] { return impl_->Admit(request); });
}

Result<SequenceId> Engine::Fork(SequenceId id, std::uint64_t sample) {
  return WithoutThrow("sequence", [&] { return impl_->AdmitFork(impl_->Find(id), sample); });
}

std::unique_ptr<Sequence> Engine::Impl::NewSequence(const Request& request, std::span<const std::int32_t> prompt) {
  auto s = std::make_unique<Sequence>();
  s->id = next_id;
  s->request = request;
  std::vector<std::int32_t>().swap(s->request.prompt);  // it moves to `ids`
  s->prompt_size = static_cast<std::int64_t>(prompt.size());
  // A sequence alone never waits for a page: it ends where the context does, or the whole cache.
  const std::int64_t context = std::min(sizes.options.context, pages.total() * sizes.layout.page_tokens);
  const auto most_output =
      static_cast<std::size_t>(std::min(std::max<std::int64_t>(context - s->prompt_size, 1), request.max_tokens));
  s->most = s->prompt_size + static_cast<std::int64_t>(most_output);
  s->ids.reserve(prompt.size() + most_output);
  s->ids.assign(prompt.begin(), prompt.end());
  s->logprobs.reserve(most_output);
  const auto top = static_cast<std::size_t>(request.top_logprobs);
  s->top.reserve(most_output * top);
  if (request.prompt_logprobs) {
    s->prompt_logprobs.reserve(prompt.size() - 1);
    s->top_of_prompt.reserve((prompt.size() - 1) * top);
  }
  s->drafts.reserve(static_cast<std::size_t>(sizes.options.draft_tokens));
  s->pages.reserve(static_cast<std::size_t>(sizes.layout.PagesFor(s->most)));
  return s;
}

// A sequence that begins, or begins again.
void Engine::Impl::Adopt(Sequence* s) {
  const std::span<const engine::FormLabel> found = pages.Adopt(s);
  const EngineOptions& o = sizes.options;
  if (!s->forms.empty()) return;
  s->forms = engine::AssignForms(o.mode, o.form_table, model.info().dims, s->output_begin(), found);
  s->cached_tokens = s->computed;
  stats.hits += s->computed > 0 ? 1 : 0;
  stats.cached_tokens += s->computed;
}

Result<SequenceId> Engine::Impl::Admit(const Request& request) {
  MLA_RETURN_IF_ERROR(Check(request));
  MLA_RETURN_IF_ERROR(HasSlot());
  std::unique_ptr<Sequence> s = NewSequence(request, request.prompt);
  Adopt(s.get());
  sequences.push_back(std::move(s));
  return next_id++;
}

Result<SequenceId> Engine::Impl::AdmitFork(Sequence* parent, std::uint64_t sample) {
  MLA_RETURN_IF_ERROR(HasSlot());
  if (parent->request.max_tokens == 0) return Error{"samples: expected max tokens above 0, found 0"};
  const auto prompt = std::span<const std::int32_t>(parent->ids).first(static_cast<std::size_t>(parent->prompt_size));
  std::unique_ptr<Sequence> s = NewSequence(parent->request, prompt);
  s->request.sampling.sample = sample;
  s->request.prompt_logprobs = false;
  s->forms = parent->forms;
  if (parent->logprobs.empty()) {
    s->parent = parent->parent != nullptr ? parent->parent : parent;
  } else {
    pages.Share(*parent, parent->prompt_size - 1, s.get());
    s->cached_tokens = s->computed;
  }
  sequences.push_back(std::move(s));
  return next_id++;
}

void Engine::Impl::HandDownPrompt(Sequence* s) {
  Sequence* heir = nullptr;
  for (const auto& other : sequences) {
    if (other->parent != s) continue;
    other->parent = heir;
    if (heir != nullptr) continue;
    heir = other.get();
    if (!heir->parked) pages.Share(*s, s->prompt_size - 1, heir);
  }
}

void Engine::Impl::ForgetKept(Sequence* s) {
  if (s->keeps) transformer->Forget(static_cast<std::uint64_t>(s->id));
  s->keeps = false;
}

void Engine::Park(SequenceId id) {
  Sequence* s = impl_->Find(id);
  impl_->ForgetKept(s);
  impl_->pages.Release(s);
  s->parked = true;
}

void Engine::Resume(SequenceId id) {
  Sequence* s = impl_->Find(id);
  MLA_CHECK(s->parked);
  s->parked = false;
  if (s->finish == FinishReason::kNone && s->parent == nullptr) impl_->Adopt(s);
}

void Engine::Preempt(SequenceId id) {
  Park(id);
  Resume(id);
}

void Engine::Release(SequenceId id) {
  Sequence* s = impl_->Find(id);
  impl_->HandDownPrompt(s);
  impl_->ForgetKept(s);
  impl_->pages.Release(s);
  std::erase_if(impl_->sequences, [&](const auto& held) { return held.get() == s; });
#ifndef NDEBUG
  if (impl_->sequences.empty()) CheckPages();
#endif
}

std::int64_t Engine::missing_pages() const {
  return engine::MissingPages(impl_->sizes, impl_->sequences, impl_->pages);
}

std::int64_t Engine::PagesNeeded(std::span<const std::int32_t> prompt) const {
  return std::min(impl_->pages.Needed(prompt), impl_->pages.total());
}

std::int64_t Engine::pages_to_spare() const {
  const CacheLayout& layout = impl_->sizes.layout;
  std::int64_t spare = impl_->pages.free() + impl_->pages.idle();
  for (const auto& s : impl_->sequences) {
    if (!s->runs()) continue;
    const std::int64_t to_take = std::min(s->size() + 1, s->most);
    spare -= std::max<std::int64_t>(0, layout.PagesFor(to_take) - static_cast<std::int64_t>(s->pages.size()));
  }
  return spare;
}

SequenceView Engine::Get(SequenceId id) const {
  const Sequence& s = *impl_->Find(id);
  SequenceView view;
  view.ids = s.ids;
  view.prompt_size = s.prompt_size;
  view.logprobs = s.logprobs;
  view.prompt_logprobs = s.prompt_logprobs;
  view.top = s.top;
  view.top_of_prompt = s.top_of_prompt;
  view.finish = s.finish;
  view.cached_tokens = s.cached_tokens;
  view.parked = s.parked;
  view.prompt_form = s.FormAt(s.prompt_size - 1);
  return view;
}

Result<Engine::Completion> Engine::Generate(const Request& request, const TokenSink& sink) {
  MLA_ASSIGN_OR_RETURN(const SequenceId id, Submit(request));
  std::size_t delivered = 0;
  bool wanted = true;
  while (wanted && Get(id).finish == FinishReason::kNone) {
    if (!Step()) {
      Release(id);
      return Error{fmt::format("cache: no page is left after {} tokens", delivered)};
    }
    const SequenceView view = Get(id);
    for (; wanted && delivered < view.logprobs.size(); ++delivered) {
      if (sink) wanted = sink(view.output()[delivered], view.logprobs[delivered]);
    }
  }
  const SequenceView view = Get(id);
  if (view.finish == FinishReason::kNotFinite) {
    const auto tokens = static_cast<std::int64_t>(view.ids.size());
    Release(id);
    return engine::NotFiniteError(tokens);
  }
  Completion completion;
  completion.ids.assign(view.output().begin(), view.output().end());
  completion.logprobs.assign(view.logprobs.begin(), view.logprobs.end());
  completion.prompt_logprobs.assign(view.prompt_logprobs.begin(), view.prompt_logprobs.end());
  completion.finish = wanted ? view.finish : FinishReason::kNone;
  completion.prompt_form = view.prompt_form;
  Release(id);
  return completion;
}

const EngineStats& Engine::stats() const {
  // Every layer does the same: of the counts, one layer's share is the step's. What is kept may have room in some of
  // them alone, and is the mean.
  const AttentionCounters& all = impl_->transformer->counters();
  const std::int64_t layers = impl_->model.info().layers;
  impl_->stats.attention = {all.absorbed_rows / layers, all.mha_rows / layers, all.mha_one_shot / layers,
                            all.mha_in_pieces / layers, all.pieces / layers,   all.keys_expanded / layers,
                            all.keys_kept / layers,     all.absorbed_seconds,  all.mha_seconds};
  impl_->stats.copied_pages = impl_->pages.copied();
  impl_->stats.evicted_pages = impl_->pages.evicted();
  return impl_->stats;
}

StepProfile Engine::profile() const {
  StepProfile profile = impl_->transformer->profile();
  profile.steps = impl_->profiled_steps;
  profile.seconds = impl_->profiled_seconds;
  return profile;
}

void Engine::ResetProfile() {
  impl_->transformer->ResetProfile();
  impl_->profiled_steps = 0;
  impl_->profiled_seconds = 0;
}

MemoryPlan Engine::memory() const {
  const layers::Transformer::Memory transformer = impl_->transformer->memory();
  MemoryPlan memory;
  memory.weights = impl_->model.weight_bytes();
  memory.cache = impl_->cache.bytes();
  memory.workspace =
      transformer.workspace + impl_->logits.bytes() + sampler::Sampler::Bytes(impl_->model.info().vocab_size);
  memory.tables = transformer.tables + engine::Pages::Bytes(engine::PageLimits(impl_->sizes));
  return memory;
}

std::int64_t Engine::context() const { return impl_->sizes.options.context; }
std::uint64_t Engine::rope_fingerprint() const { return RopeFingerprint(impl_->model.impl().config.rope, context()); }
std::int64_t Engine::cache_bytes_per_token() const { return impl_->sizes.layout.bytes_per_token(); }
std::int64_t Engine::free_pages() const { return impl_->pages.free() + impl_->pages.idle(); }
PageUse Engine::pages() const {
  return {impl_->pages.total(), impl_->pages.free(), impl_->pages.idle(), impl_->pages.shared()};
}
void Engine::CheckPages() const { impl_->pages.CheckHolders(impl_->sequences); }
const char* Engine::kernels() const { return impl_->transformer->kernels(); }
const std::vector<RejectedKernels>& Engine::rejected_kernels() const { return impl_->transformer->rejected_kernels(); }
const EngineOptions& Engine::options() const { return impl_->sizes.options; }

}  // namespace mla
