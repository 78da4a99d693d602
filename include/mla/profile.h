// Where a call's or a step's time goes, and what it moved: filled only where it is asked for
// (MlaAttention::Options::profile, EngineOptions::profile).
#ifndef MLA_PROFILE_H_
#define MLA_PROFILE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace mla {

// Time of a phase, summed over the times that it ran.
struct PhaseTime {
  double seconds = 0;       // from its begin to its end
  double busy_seconds = 0;  // that workers were at work in it, all together
  double busy_largest = 0;  // ... and the one that worked longest, each time
  std::int64_t times = 0;

  PhaseTime& operator+=(const PhaseTime& other) {
    seconds += other.seconds;
    busy_seconds += other.busy_seconds;
    busy_largest += other.busy_largest;
    times += other.times;
    return *this;
  }
};

// Phases of both forms, in the order in which they run.
enum class AttentionPhase : std::uint8_t {
  kAbsorb,     // absorbed: q~ = q_nope w_kc, and q_pe beside it
  kPack,       // ... queries to where kernels of bf16 read them
  kAttend,     // ... rows over keys; one item's own segments are folded as it goes
  kMerge,      // ... segments that were kept apart, folded
  kProject,    // ... output latents through w_vc
  kLoad,       // mha: cache rows read back and widened
  kExpand,     // ... products with w_kc and w_vc
  kRound,      // ... to bf16, values interleaved
  kMhaAttend,  // ... rows over keys, folding and dividing included
};
inline constexpr std::size_t kAttentionPhases = 9;
// "absorb", "pack", "attend", "merge", "project", "load", "expand", "round", "mha attend".
const char* AttentionPhaseName(AttentionPhase phase);

// What calls of MlaAttention::Run did. A pair is a (row, head, key); bytes are of memory, from whichever cache they
// came. What a call needs at least is each cache row of its sequences and each weight of the forms at work, once.
struct AttentionProfile {
  std::int64_t calls = 0;
  double seconds = 0;  // of calls, whole: no less than the phases'
  std::array<PhaseTime, kAttentionPhases> phases;

  // Pairs that causality leaves, and those that kernels compute: whole tiles of 64 keys; in bf16 tiles of 16 rows by 32
  // keys, over the keys that a group of 32 rows sees.
  std::int64_t absorbed_pairs = 0;
  std::int64_t absorbed_computed = 0;
  std::int64_t mha_pairs = 0;
  std::int64_t mha_computed = 0;
  std::int64_t absorbed_rows = 0;  // rows, all heads
  std::int64_t expanded = 0;       // (position, head) expanded to a key and a value

  std::int64_t cache_bytes_needed = 0;
  std::int64_t cache_bytes_read = 0;  // again for each block of query rows, each group of heads
  std::int64_t weight_bytes_needed = 0;
  std::int64_t weight_bytes_read = 0;  // again for each product, each block of its rows
  // Written and read again between phases: states of segments that are kept apart, expanded keys and values.
  std::int64_t kept_bytes = 0;
  // Products with weights that are not as they were packed at load, but made in the call.
  std::int64_t weight_conversions = 0;

  const PhaseTime& operator[](AttentionPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  PhaseTime& operator[](AttentionPhase phase) { return phases[static_cast<std::size_t>(phase)]; }
};

// Phases of a step of a model, in the order in which they run; those between embed and final norm once a layer.
enum class StepPhase : std::uint8_t {
  kEmbed,
  kInputNorm,
  kQaKva,      // q_a (or q) and kv_a, one product
  kStore,      // norms of the latents, k_pe rotated, rows into the cache
  kQb,         // where there is q_lora_rank
  kRotate,     // ... queries; without it a part of kStore
  kAttention,  // MlaAttention::Run, whose phases AttentionProfile has
  kOutput,     // o_proj onto the residual
  kMlp,        // norm, feed-forward or experts, onto the residual
  kFinalNorm,
  kLogits,  // the head's product
};
inline constexpr std::size_t kStepPhases = 11;
// "embed", "input norm", "q_a+kv_a", "store", "q_b", "rotate", "attention", "o", "mlp", "final norm", "logits".
const char* StepPhaseName(StepPhase phase);

using StepTimes = std::array<PhaseTime, kStepPhases>;

// What steps did. Counts are of all layers, a multi-token-prediction layer's too where it drafts.
struct StepProfile {
  std::int64_t steps = 0;
  double seconds = 0;  // of steps, whole: planning, sampling and what else is between phases included
  StepTimes times;
  AttentionProfile attention;
  // Of products outside of attention, which are parts of the phases above.
  double product_seconds = 0;
  double product_operations = 0;          // a multiply-add is two
  std::int64_t product_weight_bytes = 0;  // read, as AttentionProfile::weight_bytes_read
  std::int64_t weight_conversions = 0;    // as AttentionProfile's, those of attention left out

  const PhaseTime& operator[](StepPhase phase) const { return times[static_cast<std::size_t>(phase)]; }
};

}  // namespace mla

#endif  // MLA_PROFILE_H_
