// Multi-head Latent Attention over a paged latent cache, as a library of its own: a runtime brings its queries, its
// cache rows and its executor, and gets outputs and log-sum-exps.
//
// T new rows of a sequence attend to its S keys (S counts the new ones: row t sees keys 0 .. S - T + t). Letters in
// shapes: H heads, N qk_nope_head_dim, P qk_rope_head_dim, V v_head_dim, R kv_lora_rank. Two forms, equal in algebra
// (docs/mla.md):
//   kMha       expand the latents to K [S, H, N+P] and V [S, H, V], then ordinary attention
//   kAbsorbed  q~ = q_nope w_kc [T, H, R]; rows of the cache are keys and values; the output goes through w_vc
#ifndef MLA_ATTENTION_H_
#define MLA_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mla/cache.h"
#include "mla/dtypes.h"
#include "mla/executor.h"
#include "mla/memory.h"
#include "mla/profile.h"
#include "mla/result.h"
#include "mla/rope.h"

namespace mla {

enum class Form : std::uint8_t { kMha, kAbsorbed };

// "mha", "absorbed".
const char* FormName(Form form);

// All positive but P; a caller's dims that are not are a bug of the caller, and abort.
struct MlaDims {
  std::int64_t num_attention_heads = 0;  // H
  std::int64_t qk_nope_head_dim = 0;     // N
  std::int64_t qk_rope_head_dim = 0;     // P, 0 or even
  std::int64_t v_head_dim = 0;           // V
  std::int64_t kv_lora_rank = 0;         // R

  bool operator==(const MlaDims&) const = default;
};

// Cos and sin of every position, computed in float64 and rounded once.
class RopeTable {
 public:
  // Frequencies of YaRN (arXiv 2309.00071, section 3.2) with DeepSeek's ramp, of LongRoPE, or theta^(-2i/P).
  // `positions` is the context that is served, which decides LongRoPE's factors. Precondition: spec.dim is even and
  // positive unless the layout is kNone; LongRoPE's lists hold spec.dim / 2 numbers. Fails where memory can't be had.
  static Result<RopeTable> Create(const RopeSpec& spec, std::int64_t positions,
                                  HugePages huge_pages = HugePages::kAuto);
  // What Create will allocate.
  static std::int64_t Bytes(const RopeSpec& spec, std::int64_t positions);

  RopeTable(RopeTable&&) noexcept;
  RopeTable& operator=(RopeTable&&) noexcept;
  ~RopeTable();

  // Rotates P channels at x in place, as position `position` in [0, positions()).
  void Rotate(float* x, std::int64_t position) const;
  std::int64_t positions() const;
  std::int64_t bytes() const;

 private:
  struct Impl;
  explicit RopeTable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How weights are kept in memory. kFp8: products that the checkpoint has in blocks of fp8 stay so, all else is as with
// kBF16. What is computed with is the same by both, to the bit: each product of code and scale rounded to bf16.
enum class WeightDType : std::uint8_t { kF32, kBF16, kFp8 };

// kv_b_proj of one layer, split by head into w_kc [H, N, R] and w_vc [H, V, R] and packed: w_kc twice, since expanding
// contracts R and absorbing contracts N. Derived from the checkpoint's tensor each time, never from an earlier packing.
class KvBWeights {
 public:
  // kv_b_proj: [H * (N + V), R] row-major, dense, maybe unaligned. kF8E4M3 needs `scales` over the whole tensor, whose
  // blocks may pass from one head to the next; other dtypes have none. Fp8 is kept as its value times its scale, a
  // product rounded to float and then, unless for kF32, to nearest bf16, ties to even: kFp8 is kBF16 here. Fails where
  // memory can't be had, the dtypes and the scales don't fit together, a code is NaN, or a scale is negative, no
  // number, or so large that a product could be infinite.
  static Result<KvBWeights> Pack(const MlaDims& dims, DType dtype, const std::byte* kv_b_proj, WeightDType keep,
                                 Executor& executor, const BlockScales& scales = {},
                                 HugePages huge_pages = HugePages::kAuto);
  // What Pack will allocate.
  static std::int64_t Bytes(const MlaDims& dims, WeightDType keep);

  KvBWeights(KvBWeights&&) noexcept;
  KvBWeights& operator=(KvBWeights&&) noexcept;
  ~KvBWeights();
  std::int64_t bytes() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit KvBWeights(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A sequence's part in a call.
struct AttentionSequence {
  // Page ids: position p lies in page pages[p / page_tokens]; enough of them for the keys. Entries past the last key's
  // page are never read.
  std::span<const std::int32_t> pages;
  std::int64_t first_row = 0;  // its rows in q and out: [first_row, first_row + rows)
  std::int64_t rows = 0;       // T, may be 0
  std::int64_t keys = 0;       // S >= T
  Form form = Form::kAbsorbed;
  // Of kMha, with Options::keep_bytes: an id that is only this sequence's, for good, under which expanded keys and
  // values are kept from its calls over a layer for the next; 0: nothing is. A layer is known by CacheLayerView::data.
  // Of positions before its rows, those that an earlier call had as keys hold the rows that they held then: a caller
  // that writes them again otherwise than as rows of such calls forgets the sequence first.
  std::uint64_t kept_as = 0;
  // Whether what this call expands is kept too: there will be another. What was kept is found and used either way.
  bool keep = false;
};

// What calls did since the last reset, in counts and in wall time.
struct AttentionCounters {
  std::int64_t absorbed_rows = 0;
  std::int64_t mha_rows = 0;
  std::int64_t mha_one_shot = 0;   // (sequence, call) whose keys, but for kept ones, were expanded at once, all heads
  std::int64_t mha_in_pieces = 0;  // ... in pieces, for want of workspace
  std::int64_t pieces = 0;         // pieces of the latter
  std::int64_t keys_expanded = 0;  // positions that the MHA form expanded, for all heads, at each call again
  std::int64_t keys_kept = 0;      // ... and that it found kept from an earlier call
  double absorbed_seconds = 0;     // each form's part of Run, absorption and expansion included
  double mha_seconds = 0;
};

// Kernels that this machine could run, and that failed the self-test of Create: not used.
struct RejectedKernels {
  std::string name;   // "avx512"
  std::string fault;  // which kernel, what was expected, what was found
};

// The attention of one model on one machine: dims, kernels and workspace. One call at a time.
class MlaAttention {
 public:
  struct Options {
    MlaDims dims;
    double softmax_scale = 0;   // SoftmaxScale(N + P, rope)
    std::int64_t max_rows = 0;  // rows of all sequences of a call
    std::int64_t max_keys = 0;  // keys of one sequence
    int workers = 1;            // of the executor that calls will bring
    // Bytes that the MHA form may expand into at a time; at least one head's segment of 1,024 keys is always had.
    std::int64_t expand_bytes = std::int64_t{64} << 20;
    // Bytes that expanded keys and values are kept in from call to call (AttentionSequence::kept_as), beside those.
    // Room is had by segments of 1,024 positions in a layer, first come, first served, until their sequence is
    // forgotten; what has none is expanded at each call. Less than KeptSegmentBytes keeps nothing. No bit depends on
    // it.
    std::int64_t keep_bytes = 0;
    // "" for the fastest that pass, or "portable", "avx2", "avx512", "avx512bf16", "amx". The last two round to bf16
    // what meets weights kept in bf16; the others keep it in fp32.
    std::string kernels;
    HugePages huge_pages = HugePages::kAuto;  // of the workspace
    bool profile = false;                     // fill profile(): clocks are read around each task; changes no bit
  };

  // Runs the kernels over small cases with known results first (under a millisecond): where they fail, the next slower
  // ones are taken, and rejected_kernels() says so. Precondition: dims (P may be 0), max_rows, max_keys and workers are
  // positive. Fails where the kernels are unknown or not for this machine, where those asked for by name (or all) fail
  // their self-test, or memory can't be had.
  static Result<MlaAttention> Create(const Options& options);
  // What Create will allocate.
  static std::int64_t WorkspaceBytes(const Options& options);
  // Of Options::keep_bytes, what a segment takes of 1,024 positions of one sequence in one layer: with kernels that
  // take bf16 about half of it.
  static std::int64_t KeptSegmentBytes(const MlaDims& dims);

  MlaAttention(MlaAttention&&) noexcept;
  MlaAttention& operator=(MlaAttention&&) noexcept;
  ~MlaAttention();

  // For each row and head: out [rows, H, V] = softmax(scale q k^T) v, lse [rows, H] = natural log of the sum of
  // exponentials; an empty key set gives out 0 and lse -inf. q [rows, H, N + P] with its last P channels rotated.
  // lse may be null. Keys are read from their stored rows, the new rows' own included: they are written before.
  // The bits of a row depend on its query, its keys' stored bytes, its form and the kernels: not on the other rows, the
  // pages' ids or size, the workers, or where a chunk was cut. Allocates nothing.
  void Run(const CacheLayerView& cache, const KvBWeights& weights, std::span<const AttentionSequence> sequences,
           const float* q, float* out, float* lse, Executor& executor);

  // Gives back all room that a sequence has, in every layer: it ended, or its rows are written anew. An id that nothing
  // is kept for is fine.
  void Forget(std::uint64_t sequence);

  const AttentionCounters& counters() const;
  // Counts go on from `to`.
  void ResetCounters(const AttentionCounters& to = {});
  // Of the calls since the last reset. Precondition: Options::profile.
  const AttentionProfile& profile() const;
  void ResetProfile();
  // Takes the workspace's pages from the system, by all workers. Before the first Run.
  void FirstTouch(Executor& executor);
  const char* kernels() const;                                   // the table in use
  const std::vector<RejectedKernels>& rejected_kernels() const;  // faster ones; empty on a sound machine
  std::int64_t bytes() const;                                    // allocated

  // The parts, for the library's own use: what Impl holds is not part of the interface.
  struct Impl;
  explicit MlaAttention(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Multiply-adds of one layer's attention (docs/mla.md): keys S count the T rows; pairs = T(S-T) + T(T+1)/2.
struct FormWork {
  double projection = 0;  // expand: S R H (N+V); absorb, both sides: T R H (N+V)
  double attention = 0;   // H pairs (N+P+V), or H pairs (2R+P)
  double total() const { return projection + attention; }
};
FormWork WorkOf(Form form, const MlaDims& dims, std::int64_t rows, std::int64_t keys);

// What one layer's attention of a shape took on a machine, in seconds, projections included: T new rows of one sequence
// after so many cached positions.
struct MeasuredForms {
  MlaDims dims;
  std::vector<std::int64_t> rows;        // T, ascending from 1; two at least
  std::vector<std::int64_t> cached;      // S - T, ascending from 0; two at least
  std::vector<double> mha_seconds;       // [rows, cached], positive
  std::vector<double> absorbed_seconds;  // [rows, cached], positive
};

// What a machine makes of that work. Frozen before a request is admitted; its id goes into reports.
struct FormTable {
  std::string id = "analytic-1";  // equal rates: multiply-adds alone decide
  // Rows of the chunks that a prompt is priced in: expansion is paid again for each. Part of the table, not the chunk
  // that an engine happens to run, so that no bit depends on how a prompt is cut.
  std::int64_t chunk = 512;
  // Relative multiply-adds a second, all positive: what prices where nothing was measured.
  double expand_rate = 1;
  double absorb_rate = 1;
  double mha_rate = 1;
  double absorbed_rate = 1;
  // One entry a shape. Where there is any, a model is priced by the entry of the nearest shape, its seconds multiplied
  // by the ratio of both shapes' multiply-adds; the rates above are then not used.
  std::vector<MeasuredForms> measured;
};

// Fails, naming the field, where a table is not as its fields say, and on a number past what costs can be summed of.
Status CheckFormTable(const FormTable& table);

// What a prompt's rows [first, first + rows) cost in that form when they run in chunks of table.chunk rows: seconds of
// one layer, linear in T and in the cached positions between what was measured and beyond it; or multiply-adds over
// rates. A pure function of its arguments. Precondition: CheckFormTable holds, first and rows are not negative.
double FormCost(const FormTable& table, Form form, const MlaDims& dims, std::int64_t first, std::int64_t rows);

// The cheaper form of these rows; ties go to the absorbed form.
Form ChooseForm(const FormTable& table, const MlaDims& dims, std::int64_t first, std::int64_t rows);

}  // namespace mla

#endif  // MLA_ATTENTION_H_
