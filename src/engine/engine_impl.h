// What an engine is made of: for engine.cc (sequences come and go), engine_step.cc (sequences move) and engine_save.cc
// (rows come from files and go to them).
#ifndef MLA_ENGINE_ENGINE_IMPL_H_
#define MLA_ENGINE_ENGINE_IMPL_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "engine/cache_file.h"
#include "engine/limits.h"
#include "engine/mtp_rows.h"
#include "engine/pages.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"
#include "mla/engine.h"
#include "model/model.h"
#include "sampler/sampler.h"

namespace mla {

struct Engine::Impl {
  using Sequence = engine::Sequence;

  Impl(const Model& m, Executor& e, const engine::Sizes& s, std::unique_ptr<layers::Transformer> t, LatentCache c,
       Buffer l);

  // A row of logits that is wanted, and by whom: the log-probability of the next prompt token, or the next token
  // itself. `id` is the row's own token.
  struct LogitWant {
    Sequence* sequence;
    std::int64_t position;
    std::int32_t id;
  };

  Sequence* Find(SequenceId id);
  Status Check(const Request& request) const;
  Status HasSlot() const;
  Result<SequenceId> Admit(const Request& request);
  Result<SequenceId> AdmitFork(Sequence* parent, std::uint64_t sample);
  std::unique_ptr<Sequence> NewSequence(const Request& request, std::span<const std::int32_t> prompt);
  void Adopt(Sequence* s);
  // Attention keeps nothing of the sequence any longer.
  void ForgetKept(Sequence* s);
  // What waits for the prompt of `s` waits for another, which has what it has computed.
  void HandDownPrompt(Sequence* s);

  engine::CacheSchema Schema() const;
  // Where the rows of pages that hold positions from 0 on lie.
  engine::RowsAt RowsOf(std::span<const std::int32_t> held, std::int64_t rows) const;
  Result<SavedCache> Save(std::span<const std::int32_t> ids, std::int64_t output, const std::string& path);
  Result<LoadedCache> Load(const std::string& path);

  bool Step();
  void Draft();
  // Most guesses that max_tokens and context allow.
  std::int64_t DraftLimit(const Sequence& s) const;
  void DraftByMtp();
  void CollectMtpRows();
  void CollectNextGuesses();
  void RunMtpRows();
  void GuessByMtp();
  void CollectLogits(const AttentionSequence& part, Sequence* s);
  void RunLogits();
  static float Measure(const Sequence& s, std::span<const float> row, std::int32_t id, std::vector<TokenLogprob>* top);
  void DeliverPrompt(const LogitWant& want, std::span<const float> row);
  void DeliverToken(const LogitWant& want, std::span<const float> row);
  void DeliverForks(Sequence* parent, const LogitWant& want, std::span<const float> row);
  void Settle(Sequence* s);

  const Model& model;
  Executor& executor;
  const engine::Sizes sizes;
  std::unique_ptr<layers::Transformer> transformer;
  LatentCache cache;
  engine::Pages pages;
  sampler::Sampler sampler;
  Buffer logits;                                     // [kLogitRows, vocab] floats
  std::vector<std::unique_ptr<Sequence>> sequences;  // in order of admission, so of ids
  SequenceId next_id = 1;
  EngineStats stats;
  // Of the profile.
  std::int64_t profiled_steps = 0;
  double profiled_seconds = 0;
  // The step at hand; reserved once.
  engine::StepPlan plan;
  std::vector<std::int32_t> logit_rows;
  std::vector<LogitWant> logit_wants;
  engine::MtpRows mtp;  // reserved where it drafts
};

}  // namespace mla

#endif  // MLA_ENGINE_ENGINE_IMPL_H_
