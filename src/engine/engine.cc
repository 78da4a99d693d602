#include "mla/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/buffer.h"
#include "base/check.h"
#include "base/no_throw.h"
#include "engine/limits.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "sampler/sampler.h"

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

struct Engine::Impl {
  Impl(const Model& m, Executor& e, const engine::Sizes& s, std::unique_ptr<layers::Transformer> t, LatentCache c,
       Buffer l)
      : model(m),
        executor(e),
        sizes(s),
        transformer(std::move(t)),
        cache(std::move(c)),
        pool(s.options.cache_pages),
        sampler(m.info().vocab_size),
        logits(std::move(l)) {
    const auto rows = static_cast<std::size_t>(s.step.max_rows);
    plan.Reserve(s);
    sequences.reserve(static_cast<std::size_t>(s.options.max_sequences));
    logit_rows.reserve(rows);
    logit_wants.reserve(rows);
  }

  // A row of logits that is wanted, and by whom: the log-probability of the next prompt token, or the next token
  // itself.
  struct LogitWant {
    Sequence* sequence;
    std::int64_t position;
  };

  Sequence* Find(SequenceId id);
  Status Check(const Request& request) const;
  Result<SequenceId> Admit(const Request& request, std::optional<SequenceId> donor);
  void CollectLogits(const AttentionSequence& part, Sequence* s);
  void Deliver(const LogitWant& want, std::span<const float> row);

  const Model& model;
  Executor& executor;
  const engine::Sizes sizes;
  std::unique_ptr<layers::Transformer> transformer;
  LatentCache cache;
  PagePool pool;
  sampler::Sampler sampler;
  Buffer logits;                                     // [kLogitRows, vocab] floats
  std::vector<std::unique_ptr<Sequence>> sequences;  // in order of admission
  SequenceId next_id = 1;
  EngineStats stats;
  // The step at hand; reserved once.
  engine::StepPlan plan;
  std::vector<std::int32_t> logit_rows;
  std::vector<LogitWant> logit_wants;
};

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
  for (const auto& s : sequences) {
    if (s->id == id) return s.get();
  }
  MLA_CHECK(false && "no such sequence");
  return nullptr;
}

Status Engine::Impl::Check(const Request& request) const {
  const auto size = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t vocab = model.info().vocab_size;
  if (size == 0) return Error{"prompt: expected at least one token, found none"};
  for (const std::int32_t id : request.prompt) {
    if (id < 0 || id >= vocab) return Error{fmt::format("prompt: expected ids from 0 to {}, found {}", vocab - 1, id)};
  }
  if (request.max_tokens < 0) return Error{fmt::format("max tokens: expected 0 or more, found {}", request.max_tokens)};
  const std::int64_t least_room = request.max_tokens > 0 ? 1 : 0;
  if (size + least_room > sizes.options.context) {
    return Error{fmt::format("prompt: {} tokens and room for {} more don't fit the context of {} tokens", size,
                             least_room, sizes.options.context)};
  }
  if (sizes.layout.PagesFor(size) > pool.pages()) {
    return Error{fmt::format("prompt: {} tokens need {} cache pages, and the cache has {}", size,
                             sizes.layout.PagesFor(size), pool.pages())};
  }
  if (static_cast<std::int64_t>(sequences.size()) >= sizes.options.max_sequences) {
    return Error{fmt::format("engine: holds {} sequences already, as many as it was made for", sequences.size())};
  }
  MLA_RETURN_IF_ERROR(sampler::Validate(request.sampling));
  MLA_RETURN_IF_ERROR(sampler::ValidateBias(request.logit_bias, vocab));
  return sampler::ValidateTopLogprobs(request.top_logprobs);
}

Result<SequenceId> Engine::Submit(const Request& request, std::optional<SequenceId> donor) {
  return WithoutThrow("sequence", [&] { return impl_->Admit(request, donor); });
}

Result<SequenceId> Engine::Impl::Admit(const Request& request, std::optional<SequenceId> donor) {
  MLA_RETURN_IF_ERROR(Check(request));
  if (donor && request.prompt_logprobs) return Error{"prompt logprobs need every row run: not with a shared prefix"};
  const EngineOptions& o = sizes.options;
  auto s = std::make_unique<Sequence>();
  s->id = next_id++;
  s->request = request;
  s->request.prompt.clear();
  s->prompt_size = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t room = o.context - s->prompt_size;
  const auto most_output = static_cast<std::size_t>(std::min(room, request.max_tokens));
  s->ids.reserve(request.prompt.size() + most_output);
  s->ids.assign(request.prompt.begin(), request.prompt.end());
  s->logprobs.reserve(most_output);
  if (request.prompt_logprobs) s->prompt_logprobs.reserve(request.prompt.size() - 1);
  s->pages.reserve(static_cast<std::size_t>(sizes.layout.PagesFor(static_cast<std::int64_t>(s->ids.capacity()))));
  const Sequence* giver = donor ? Find(*donor) : nullptr;
  const std::int64_t common = giver != nullptr ? engine::CommonPrefix(*giver, *s) : 0;
  s->forms = engine::AssignForms(o.mode, o.form_table, model.info().dims, s->prompt_size, giver, common);
  if (giver != nullptr) engine::SharePages(*giver, common, sizes.layout.page_tokens, &pool, s.get());
  sequences.push_back(std::move(s));
  return sequences.back()->id;
}

void Engine::Impl::CollectLogits(const AttentionSequence& part, Sequence* s) {
  const std::int64_t first_position = part.keys - part.rows;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const std::int64_t position = first_position + row;
    // A replay after preemption delivers again only what had not been delivered.
    const bool wanted = s->request.prompt_logprobs && position + 1 < s->prompt_size &&
                        position >= static_cast<std::int64_t>(s->prompt_logprobs.size());
    const bool last = position + 1 == s->size() && s->request.max_tokens > 0;
    if (!wanted && !last) continue;
    logit_rows.push_back(static_cast<std::int32_t>(part.first_row + row));
    logit_wants.push_back({s, position});
  }
}

void Engine::Impl::Deliver(const LogitWant& want, std::span<const float> row) {
  Sequence* s = want.sequence;
  if (s->finish == FinishReason::kNotFinite) return;
  const std::int64_t next = want.position + 1;
  const bool is_prompt = next < s->prompt_size;
  const std::int32_t id = is_prompt ? s->ids[static_cast<std::size_t>(next)]
                                    : sampler.Choose(s->request.sampling, s->request.logit_bias, row, s->ids,
                                                     s->prompt_size, static_cast<std::uint64_t>(next));
  const auto logprob = static_cast<float>(sampler::LogProbability(row, id));
  if (std::isnan(logprob)) {
    s->finish = FinishReason::kNotFinite;
    return;
  }
  if (is_prompt) {
    s->prompt_logprobs.push_back(logprob);
    return;
  }
  s->ids.push_back(id);
  s->logprobs.push_back(logprob);
  const std::vector<std::int32_t>& eos = s->request.eos_ids;
  if (std::find(eos.begin(), eos.end(), id) != eos.end()) {
    s->finish = FinishReason::kEos;
  } else if (static_cast<std::int64_t>(s->logprobs.size()) >= s->request.max_tokens) {
    s->finish = FinishReason::kMaxTokens;
  } else if (s->size() >= sizes.options.context) {
    s->finish = FinishReason::kContext;
  }
}

bool Engine::Step() {
  Impl& impl = *impl_;
  engine::StepPlan& plan = impl.plan;
  engine::PlanStep(impl.sizes, impl.sequences, &impl.pool, &plan);
  impl.logit_rows.clear();
  impl.logit_wants.clear();
  if (plan.in_step.empty()) return false;
  const layers::Batch batch{plan.ids, plan.positions, plan.slots, plan.sequences};
  impl.transformer->Forward(batch, impl.cache, impl.executor);
  bool mha = false;
  bool absorbed = false;
  for (std::size_t i = 0; i < plan.in_step.size(); ++i) {
    const AttentionSequence& part = plan.sequences[i];
    Sequence* s = plan.in_step[i];
    (part.form == Form::kMha ? mha : absorbed) = true;
    impl.CollectLogits(part, s);
    s->computed = part.keys;
    if (s->request.max_tokens == 0 && part.keys == s->size()) s->finish = FinishReason::kMaxTokens;
  }
  ++impl.stats.steps;
  impl.stats.prompt_rows += plan.prompt_rows;
  impl.stats.generated_rows += plan.generated_rows;
  impl.stats.mha_steps += mha ? 1 : 0;
  impl.stats.absorbed_steps += absorbed ? 1 : 0;
  const auto vocab = static_cast<std::size_t>(impl.model.info().vocab_size);
  auto* logits = reinterpret_cast<float*>(impl.logits.data());
  for (std::size_t at = 0; at < impl.logit_rows.size();) {
    const std::size_t count = std::min<std::size_t>(engine::kLogitRows, impl.logit_rows.size() - at);
    impl.transformer->Logits(std::span<const std::int32_t>(impl.logit_rows).subspan(at, count), logits, impl.executor);
    for (std::size_t i = 0; i < count; ++i) {
      impl.Deliver(impl.logit_wants[at + i], std::span<const float>(logits + i * vocab, vocab));
    }
    at += count;
  }
  return true;
}

void Engine::Preempt(SequenceId id) { engine::ReleasePages(&impl_->pool, impl_->Find(id)); }

void Engine::Release(SequenceId id) {
  Sequence* s = impl_->Find(id);
  engine::ReleasePages(&impl_->pool, s);
  std::erase_if(impl_->sequences, [&](const auto& held) { return held.get() == s; });
}

SequenceView Engine::Get(SequenceId id) const {
  const Sequence& s = *impl_->Find(id);
  SequenceView view;
  view.ids = s.ids;
  view.prompt_size = s.prompt_size;
  view.logprobs = s.logprobs;
  view.prompt_logprobs = s.prompt_logprobs;
  view.finish = s.finish;
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
  // Every layer does the same: one layer's share is the step's.
  const AttentionCounters& all = impl_->transformer->counters();
  const std::int64_t layers = impl_->model.info().layers;
  impl_->stats.attention = {all.absorbed_rows / layers, all.mha_rows / layers, all.mha_one_shot / layers,
                            all.mha_in_pieces / layers, all.pieces / layers};
  return impl_->stats;
}

MemoryPlan Engine::memory() const {
  const layers::Transformer::Memory transformer = impl_->transformer->memory();
  MemoryPlan memory;
  memory.weights = impl_->model.weight_bytes();
  memory.cache = impl_->cache.bytes();
  memory.workspace =
      transformer.workspace + impl_->logits.bytes() + sampler::Sampler::Bytes(impl_->model.info().vocab_size);
  memory.tables = transformer.tables + PagePool::Bytes(impl_->sizes.options.cache_pages);
  return memory;
}

std::int64_t Engine::context() const { return impl_->sizes.options.context; }
std::uint64_t Engine::rope_fingerprint() const { return RopeFingerprint(impl_->model.impl().config.rope, context()); }
std::int64_t Engine::cache_bytes_per_token() const { return impl_->sizes.layout.bytes_per_token(); }
std::int64_t Engine::free_pages() const { return impl_->pool.free_pages(); }
const char* Engine::kernels() const { return impl_->transformer->kernels(); }
const std::vector<RejectedKernels>& Engine::rejected_kernels() const { return impl_->transformer->rejected_kernels(); }
const EngineOptions& Engine::options() const { return impl_->sizes.options; }

}  // namespace mla
