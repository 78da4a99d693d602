// Ids in, ids out: sequences over a paged latent cache, several in one step.
#ifndef MLA_ENGINE_H_
#define MLA_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mla/attention.h"
#include "mla/dtypes.h"
#include "mla/executor.h"
#include "mla/memory.h"
#include "mla/model.h"
#include "mla/profile.h"
#include "mla/result.h"
#include "mla/sampling.h"

namespace mla {

// Which form computes which rows. A row's form is fixed when its sequence is admitted, never by the step at hand.
enum class Mode : std::uint8_t {
  kAuto,    // role, with the prompt's form chosen by cost
  kRole,    // prompt rows MHA, generated rows absorbed
  kMha,     // all rows MHA
  kAbsorb,  // all rows absorbed
};

// "auto", "role", "mha", "absorb".
const char* ModeName(Mode mode);

// Which computed pages other sequences may take over. By promise (c) of docs/design.md no bit depends on it with `mha`,
// `absorb` and, for kPrompt, `role`.
enum class PrefixReuse : std::uint8_t {
  kOff,
  kPrompt,  // rows of prompts alone
  kAll,     // rows of output too: the next turn of a conversation
};
// "off", "prompt", "all".
const char* PrefixReuseName(PrefixReuse reuse);

// How tokens are guessed ahead. Guesses are checked in one step, in the request's own form: no bit depends on them.
enum class Drafter : std::uint8_t {
  kNone,
  kNgram,  // what followed the last tokens where they stood before, in prompt or output
  // By the checkpoint's first multi-token-prediction layer, which has a layer of the cache of its own. Rows that are
  // found, or shared by a fork, come with their rows of that layer, the last of them made for another next token.
  kMtp,
};
// "none", "ngram", "mtp".
const char* DrafterName(Drafter drafter);

struct EngineOptions {
  Mode mode = Mode::kAuto;
  DType kv_dtype = DType::kBF16;  // kBF16 or kF32
  // Most tokens of one sequence, prompt and output; 0: the model's. With LongRoPE it picks the factors, once and for
  // every position (RopeSpec::factors), so that a result depends on it as on a mode; elsewhere it is a bound alone.
  std::int64_t context = 0;
  std::int64_t max_sequences = 1;  // at a time
  PrefixReuse prefix_reuse = PrefixReuse::kAll;
  Drafter drafter = Drafter::kNone;
  std::int64_t draft_tokens = 4;     // most guesses a sequence and step; fewer where they don't pay
  std::int64_t prefill_chunk = 512;  // prompt rows of a step, of all sequences
  std::int64_t page_tokens = kDefaultPageTokens;
  std::int64_t cache_pages = 0;                        // 0: enough for max_sequences of full context
  std::int64_t expand_bytes = std::int64_t{64} << 20;  // of the MHA form's workspace
  // Beside it, to keep a prompt's expanded keys and values in from chunk to chunk (MlaAttention::Options); 0 or at
  // least a layer's 1,024 positions. The prompt that came first has it first. No bit depends on it.
  std::int64_t keep_bytes = 0;
  std::string kernels;                      // "" for the fastest that pass their self-test
  HugePages huge_pages = HugePages::kAuto;  // of cache, workspace and tables
  FormTable form_table;
  bool profile = false;  // fill profile(): clocks are read around each task; changes no bit
};

// Bytes by part. Planned before anything is allocated, and equal to what is.
struct MemoryPlan {
  std::int64_t weights = 0;
  std::int64_t cache = 0;
  std::int64_t workspace = 0;  // a step's, attention's, logits and sampling
  std::int64_t tables = 0;     // rope, page counts
  std::int64_t total() const { return weights + cache + workspace + tables; }
};

struct Request {
  std::vector<std::int32_t> prompt;  // at least one id, each in [0, vocab_size)
  std::int64_t max_tokens = 256;     // 0: only the prompt is run
  SamplingParams sampling;
  std::vector<std::int32_t> eos_ids;       // generation ends with the first of these; empty: never
  bool prompt_logprobs = false;            // log-probability of each prompt token but the first
  std::int64_t top_logprobs = 0;           // likeliest tokens to tell for each output token (and prompt token); 0 to 20
  std::vector<LogitBias> logit_bias = {};  // at most one an id
  // So many of the prompt's last ids, not all of them, are output of a request that goes on here. They have output's
  // form, and penalties count them as output: what comes next has the bits that it would have had without a break.
  std::int64_t continued = 0;
};

enum class FinishReason : std::uint8_t { kNone, kEos, kMaxTokens, kContext, kNotFinite, kCancelled, kDeadline };
// "stop" (an EOS id), "length" (max_tokens), "context" (the context is full), "not finite"
// (a row of logits holds NaN or only infinities: the weights do, or sums overflowed); "cancelled" and "deadline" are
// the scheduler's; kNone is "".
const char* FinishReasonName(FinishReason reason);

using SequenceId = std::int64_t;

// A sequence as it stands. Spans are valid until the next call on the engine.
struct SequenceView {
  std::span<const std::int32_t> ids;  // prompt, then output
  std::int64_t prompt_size = 0;
  std::span<const float> logprobs;         // of each output token: natural log, raw logits (no penalty, no temperature)
  std::span<const float> prompt_logprobs;  // of each prompt token but the first, as far as computed
  // The request's top_logprobs likeliest of each output token, likeliest first, and of each prompt token but the first.
  std::span<const TokenLogprob> top;
  std::span<const TokenLogprob> top_of_prompt;
  FinishReason finish = FinishReason::kNone;
  Form prompt_form = Form::kAbsorbed;  // of the prompt's last token
  std::int64_t cached_tokens = 0;      // positions whose rows were found in the cache at admission
  bool parked = false;
  std::span<const std::int32_t> output() const { return ids.subspan(static_cast<std::size_t>(prompt_size)); }
};

struct EngineStats {
  std::int64_t steps = 0;
  std::int64_t mha_steps = 0;  // steps with rows of that form
  std::int64_t absorbed_steps = 0;
  std::int64_t prompt_rows = 0;  // rows run, replayed ones included
  std::int64_t generated_rows = 0;
  std::int64_t draft_rows = 0;     // guesses that were checked
  std::int64_t accepted = 0;       // ... and held
  std::int64_t hits = 0;           // sequences admitted with rows found in the cache
  std::int64_t cached_tokens = 0;  // such rows
  std::int64_t copied_pages = 0;   // written where others read
  std::int64_t evicted_pages = 0;  // from the prefix index
  AttentionCounters attention;     // counts of one layer, since all do the same; seconds of all layers
};

// Pages of the cache, now.
struct PageUse {
  std::int64_t total = 0;
  std::int64_t free = 0;    // nobody's
  std::int64_t idle = 0;    // kept for their prefix alone, and given up when needed
  std::int64_t shared = 0;  // of several sequences
};

// A file that SaveCache has written.
struct SavedCache {
  std::int64_t rows = 0;  // of the first so many ids
  std::int64_t bytes = 0;
};
// One that LoadCache has read.
struct LoadedCache {
  std::vector<std::int32_t> ids;  // all that it was saved with
  std::int64_t output = 0;        // as it was saved with
  std::int64_t rows = 0;          // now in the cache, of the first so many ids
  std::int64_t bytes = 0;
};

// Sequences share the weights, the cache and each step. Not thread-safe: one caller at a time, and engines that share
// an executor take turns. An id that Submit did not give, or that was released, is a bug of the caller and aborts.
class Engine {
 public:
  // `model` and `executor` outlive the engine. The workspace's pages are taken from the system here, by all workers,
  // and those of the cache's first 256 MiB; the rest of a cache, which may never fill, as tokens come. Fails where an
  // option is out of its range, the kernels fail their self-test (MlaAttention::Create), or memory can't be had.
  static Result<Engine> Create(const Model& model, const EngineOptions& options, Executor& executor);
  // Bytes that Create will allocate, with the model's weights beside them.
  static Result<MemoryPlan> Plan(const Model& model, const EngineOptions& options, int workers);

  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  // Admits a sequence. Fails, saying what was expected, on an empty prompt, an id outside the vocabulary, a prompt that
  // leaves no room in the context, sampling values out of range, or where max_sequences are held already. The longest
  // prefix whose rows are in the cache, as far as options().prefix_reuse goes, is taken over with its forms; one row is
  // left to run. Not with prompt_logprobs, which need every row.
  Result<SequenceId> Submit(const Request& request);
  // Whether Submit would take it but for the number of sequences held.
  Status Check(const Request& request) const;
  // Another sample of a sequence that has not ended: the same request with another `sampling.sample`. It shares the
  // prompt's rows, which are run once, and from there on writes pages of its own. Fails as Submit does.
  Result<SequenceId> Fork(SequenceId id, std::uint64_t sample);

  // Runs one step: a row (and its drafts) of each sequence whose output has begun, then prompt rows of the others in
  // order of admission, prefill_chunk of them in all, as far as the pages go. False where there was nothing to run: all
  // are finished or parked, or wait for pages that others hold; whom to park or release then is the caller's choice
  // (Scheduler makes it).
  bool Step();
  // Pages that are wanting for the next step to run every sequence that decodes, and the oldest prompt.
  std::int64_t missing_pages() const;

  // Gives a sequence's pages back, and leaves it out of steps until Resume. Its rows are then found in the cache or
  // computed again, each in its own form: the same bits.
  void Park(SequenceId id);
  void Resume(SequenceId id);
  // Both at once.
  void Preempt(SequenceId id);

  // New pages that a prompt and one token of output would take now, those that it would share left out; and pages that
  // are free or idle and that no prompt admitted already has yet to take.
  std::int64_t PagesNeeded(std::span<const std::int32_t> prompt) const;
  std::int64_t pages_to_spare() const;

  // The sequence stays readable until released.
  SequenceView Get(SequenceId id) const;
  void Release(SequenceId id);

  // Writes the rows that the cache holds of the first of `ids` to a file (docs/cache-files.md): those of a sequence, or
  // of earlier ones that the prefix index keeps. The file has all of `ids`, of which the last `output`, not all, may be
  // output that is to go on (Request::continued). It appears whole, or leaves what was there. Fails, naming what was
  // expected, where no row is held, an id is none, or the file can't be written.
  Result<SavedCache> SaveCache(std::span<const std::int32_t> ids, std::int64_t output, const std::string& path);
  // Reads the rows of such a file to where the prefix index finds them: a prompt that begins with its ids then takes
  // them over, as it would from the sequence that made them, bit for bit. Until then they are idle pages, which others
  // may need. Fails, and nothing is kept, on a file that is damaged or was made under another model, rope, kind of row,
  // mode or kernels, naming the first difference; on more tokens than the context or the free and idle pages have; and
  // where prefix reuse is off.
  Result<LoadedCache> LoadCache(const std::string& path);

  // One request from admission to its end. `sink`, which does not throw, gets each output id with its log-probability
  // as it comes, and ends the generation by returning false (the finish reason is then kNone). Fails as Submit does,
  // where no page is left, and on kNotFinite. The sequence is released either way.
  struct Completion {
    std::vector<std::int32_t> ids;  // output
    std::vector<float> logprobs;
    std::vector<float> prompt_logprobs;
    FinishReason finish = FinishReason::kNone;
    Form prompt_form = Form::kAbsorbed;
  };
  using TokenSink = std::function<bool(std::int32_t id, float logprob)>;
  Result<Completion> Generate(const Request& request, const TokenSink& sink = {});

  const EngineStats& stats() const;
  // Of the steps since the last reset. Precondition: EngineOptions::profile.
  StepProfile profile() const;
  void ResetProfile();
  MemoryPlan memory() const;               // allocated
  std::int64_t context() const;            // most tokens of a sequence
  std::uint64_t rope_fingerprint() const;  // of the rows in its cache (mla/rope.h)
  std::int64_t cache_bytes_per_token() const;
  std::int64_t free_pages() const;  // that a step may take: idle ones too
  PageUse pages() const;
  // Aborts unless every page is held by exactly those that name it. For tests; debug builds do so when nothing runs.
  void CheckPages() const;
  const char* kernels() const;
  const std::vector<RejectedKernels>& rejected_kernels() const;  // faster ones that failed their self-test
  const EngineOptions& options() const;

  // The parts, for the library's own use: what Impl holds is not part of the interface.
  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla

#endif  // MLA_ENGINE_H_
