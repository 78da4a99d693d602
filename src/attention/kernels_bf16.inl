// What attention by products of bf16 does between them: packing, softmax, rescaling. Included by
// kernels_avx512bf16.cc and kernels_amx.cc, which define kAheadHint before it, and after it
//   ScoreTiles<G>(block, tile, scores, ahead)   scores [keys, 32] of G tiles of rows
//   ValueTiles<G>(block, tile, weights, ahead)  acc += weights values, of G tiles of rows
//   AheadSteps(block)                           how often they call Step(ahead), all tiles of rows together
// Compiled under their flags.

namespace mla::attention {
namespace {

using namespace simd::avx512;  // NOLINT(google-build-using-namespace): the vocabulary of this file

constexpr int64_t kLdScores = kBf16Group * kBf16Tile;

using bf16::Ceil;
using bf16::FirstLanes;
using bf16::Max;
using bf16::Min;
using bf16::RoundPairs;

MLA_INLINE int64_t QueryTileBytes(const Bf16Keys& k) { return (k.steps[0] + k.steps[1]) * kBf16TileBytes; }

// Asks for the next block's memory, a little at a time: what is at work leaves the way to memory idle.
struct Ahead {
  const char* const* next;  // of the run at hand
  const char* const* end;
  const char* at;
  const char* run_end;
  int64_t run_bytes;
  int64_t bytes;  // at a time, whole lines
};

MLA_INLINE void Step(Ahead* ahead) {
  if (ahead->at == nullptr) return;
  const char* at = ahead->at;
  const char* stop = at + ahead->bytes;
  for (; at < stop; at += 64) _mm_prefetch(at, kAheadHint);
  if (at >= ahead->run_end) {
    if (++ahead->next == ahead->end) {
      at = nullptr;
    } else {
      at = *ahead->next;
      ahead->run_end = at + ahead->run_bytes;
    }
  }
  ahead->at = at;
}

// Shared out over all that goes on: a run is asked for in whole steps.
int64_t AheadSteps(const Bf16Block& b);

MLA_INLINE Ahead AheadOf(const Bf16Block& b) {
  const Bf16Keys& k = b.keys;
  if (k.next_runs == 0) return {};
  const int64_t lines = Ceil(k.next_bytes, 64);
  const int64_t steps_of_run = Max(1, AheadSteps(b) / k.next_runs);
  return {k.next, k.next + k.next_runs, *k.next, *k.next + k.next_bytes, k.next_bytes, Ceil(lines, steps_of_run) * 64};
}

// a's sixteen and b's sixteen, rounded, as pairs (a, b).
MLA_INLINE __m512i RoundInterleaved(__m512 a, __m512 b) {
  const __m512i pairs = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(pairs, (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

// out[j][i] = in[i][j] of 16 by 16 pairs.
MLA_INLINE void TransposePairs(const __m512i* in, char* out) {
  Transpose16(reinterpret_cast<const float*>(in), 16, reinterpret_cast<float*>(out), 16);
}

void PackQueries(const float* q, int64_t ldq, int64_t rows, int64_t n0, int64_t n1, char* out) {
  const int64_t parts[2] = {n0, n1};
  for (int64_t tile = 0; tile < rows; tile += kBf16Tile) {
    const float* from = q + tile * ldq;
    for (const int64_t n : parts) {
      for (int64_t k = 0; k < n; k += kBf16Step) {
        __m512i pairs[kBf16Tile];
        for (int64_t r = 0; r < kBf16Tile; ++r) {
          pairs[r] = tile + r < rows ? RoundPairs(from + r * ldq + k, n - k) : _mm512_setzero_si512();
        }
        TransposePairs(pairs, out);
        out += kBf16TileBytes;
      }
      from += n;
    }
  }
}

// Two keys' bf16 of 32 columns, of which `left` are there, as pairs of keys: columns 0 to 15, and 16 to 31. Either key
// may be null: zeros.
struct KeyPairs {
  __m512i low;
  __m512i high;
};
MLA_INLINE KeyPairs PairKeys(const char* even, const char* odd, int64_t left) {
  const uint32_t lanes = FirstLanes(left, 32);
  const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
  const __m512i zero = _mm512_setzero_si512();
  const __m512i a = even == nullptr ? zero : _mm512_maskz_loadu_epi16(lanes, even);
  const __m512i b = odd == nullptr ? zero : _mm512_maskz_loadu_epi16(lanes, odd);
  // Unpacking works within 128 bits: lane i first gets the quarters i of either half.
  const __m512i c = _mm512_permutexvar_epi64(order, a);
  const __m512i d = _mm512_permutexvar_epi64(order, b);
  return {_mm512_unpacklo_epi16(c, d), _mm512_unpackhi_epi16(c, d)};
}

// ... as two rows of tiles that lie one after another.
MLA_INLINE void InterleaveRows(const char* even, const char* odd, int64_t left, char* out) {
  const KeyPairs pairs = PairKeys(even, odd, left);
  _mm512_storeu_si512(out, pairs.low);
  if (left > kBf16Tile) _mm512_storeu_si512(out + kBf16TileBytes, pairs.high);
}

// Keys that an interleaving asks for ahead: of rows that nothing has asked for, those of a call's first block, memory
// gives 11 GB/s without it.
constexpr int64_t kKeysAhead = 8;
MLA_INLINE void AskFor(const char* at, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(at + i, _MM_HINT_T0);
}

void Interleave(const char* const* runs, int64_t stride, int64_t count, int64_t columns, char* out,
                int64_t value_step) {
  for (int64_t pair = 0; pair < Ceil(count, kBf16Step) * kBf16Tile; ++pair) {
    const int64_t key = 2 * pair;
    const char* row = key < count ? runs[key / kBf16Tile] + key % kBf16Tile * stride : nullptr;
    const char* next = key + 1 < count ? row + stride : nullptr;
    if (const int64_t later = key + kKeysAhead; later + 1 < count) {
      AskFor(runs[later / kBf16Tile] + later % kBf16Tile * stride, 2 * stride);
    }
    char* to = out + pair / kBf16Tile * value_step + pair % kBf16Tile * 64;
    for (int64_t c = 0; c < columns; c += 32) {
      InterleaveRows(row == nullptr ? row : row + c * 2, next == nullptr ? next : next + c * 2, columns - c,
                     to + c / kBf16Tile * kBf16TileBytes);
    }
  }
}

void RoundValues(const float* v, int64_t ldv, int64_t count, int64_t columns, char* out, int64_t value_step) {
  for (int64_t pair = 0; pair < Ceil(count, kBf16Step) * kBf16Tile; ++pair) {
    const float* row = v + 2 * pair * ldv;
    char* to = out + pair / kBf16Tile * value_step + pair % kBf16Tile * 64;
    for (int64_t c = 0; c < columns; c += kBf16Tile) {
      const auto lanes = static_cast<__mmask16>(FirstLanes(columns - c, kBf16Tile));
      const __mmask16 even = 2 * pair < count ? lanes : 0;
      const __mmask16 odd = 2 * pair + 1 < count ? lanes : 0;
      _mm512_storeu_si512(
          to + c / kBf16Tile * kBf16TileBytes,
          RoundInterleaved(_mm512_maskz_loadu_ps(even, row + c), _mm512_maskz_loadu_ps(odd, row + ldv + c)));
    }
  }
}

void RoundRow(const float* from, int64_t n, char* out) {
  for (int64_t i = 0; i < n; i += 32) _mm512_storeu_si512(out + i * 2, RoundPairs(from + i, n - i));
}

bool AllFinite(const char* values, int64_t count) {
  const __m512i exponent = _mm512_set1_epi16(0x7f80);
  __mmask32 bad = 0;
  for (int64_t i = 0; i < count; i += 32) {
    bad |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(_mm512_loadu_si512(values + i * 2), exponent), exponent);
  }
  return bad == 0;
}

// 2^t for t <= 0 and NaN, to 2 ulp; 0 below 2^-125, since a result that is a denormal costs over a hundred cycles. The
// polynomial is a minimax fit of 2^f on [-1/2, 1/2] with value 1 at 0: off by 2^-23.4 of itself.
MLA_INLINE __m512 Exp2(__m512 t) {
  const __m512 low = _mm512_set1_ps(-125.0F);
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(t, n);
  __m512 p = _mm512_set1_ps(0.0013264727F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.009671513F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.055507336F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022242F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693147F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, low, _CMP_NLT_UQ), p, n);
}
MLA_INLINE __m512 Exp(__m512 x) { return Exp2(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F))); }

// What a tile's rows carry from the largest score to the weights.
struct RowLanes {
  __m512i visible;
  __m512 old_max;
  __m512 new_max;
  __m512 shift;
};

// Scores that a row does not see become -inf; finds each row's largest. A NaN is passed over here, and shows in the
// sum.
MLA_INLINE RowLanes MaskAndMax(const Bf16Block& b, int64_t row, float* scores) {
  const auto lanes = static_cast<__mmask16>(FirstLanes(b.rows - row, kBf16Tile));
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  RowLanes r;
  r.visible = _mm512_maskz_loadu_epi32(lanes, b.visible + row);
  r.old_max = _mm512_mask_loadu_ps(none, lanes, b.state.max + row);
  const int64_t end = Ceil(b.keys.count, kBf16Step) * kBf16Step;
  int64_t common = 0;
  if (lanes == 0xffff) common = _mm512_reduce_min_epi32(r.visible);
  __m512 largest[2] = {none, none};
  int64_t key = 0;
  for (; key + 2 <= common; key += 2) {
    largest[0] = _mm512_max_ps(_mm512_load_ps(scores + key * kLdScores), largest[0]);
    largest[1] = _mm512_max_ps(_mm512_load_ps(scores + (key + 1) * kLdScores), largest[1]);
  }
  for (; key < end; ++key) {
    const __mmask16 seen = _mm512_cmpgt_epi32_mask(r.visible, _mm512_set1_epi32(static_cast<int>(key)));
    const __m512 s = _mm512_mask_loadu_ps(none, seen, scores + key * kLdScores);
    _mm512_store_ps(scores + key * kLdScores, s);
    largest[0] = _mm512_max_ps(s, largest[0]);
  }
  const __m512 found = _mm512_mul_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_set1_ps(b.scale));
  r.new_max = _mm512_max_ps(found, r.old_max);  // of a NaN state, NaN
  // A row that has seen nothing has no maximum to subtract; one whose scores are all -inf is no number, and not empty.
  const __mmask16 blind =
      _mm512_cmpeq_epi32_mask(r.visible, _mm512_setzero_si512()) & _mm512_cmp_ps_mask(r.new_max, none, _CMP_EQ_OQ);
  r.shift = _mm512_mask_mov_ps(r.new_max, blind, _mm512_setzero_ps());
  return r;
}

// Scores of a tile of rows -> weights, as tiles of 16 rows by 32 keys; the states' maxima and sums. Returns what the
// rows' values are multiplied by.
MLA_INLINE __m512 Softmax(const Bf16Block& b, int64_t row, float* scores, char* weights) {
  const RowLanes r = MaskAndMax(b, row, scores);
  const __m512 scale = _mm512_set1_ps(b.scale);
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t step = 0; step < Ceil(b.keys.count, kBf16Step); ++step) {
    __m512i pairs[kBf16Tile];
    const float* s = scores + step * kBf16Step * kLdScores;
    for (int64_t i = 0; i < kBf16Tile; ++i) {
      const __m512 even = Exp(_mm512_fmsub_ps(_mm512_load_ps(s + 2 * i * kLdScores), scale, r.shift));
      const __m512 odd = Exp(_mm512_fmsub_ps(_mm512_load_ps(s + (2 * i + 1) * kLdScores), scale, r.shift));
      sum[0] = _mm512_add_ps(sum[0], even);
      sum[1] = _mm512_add_ps(sum[1], odd);
      pairs[i] = RoundInterleaved(even, odd);
    }
    TransposePairs(pairs, weights + step * kBf16TileBytes);
  }
  const auto lanes = static_cast<__mmask16>(FirstLanes(b.rows - row, kBf16Tile));
  const __m512 correction = Exp(_mm512_sub_ps(r.old_max, r.shift));
  const __m512 old_sum = _mm512_maskz_loadu_ps(lanes, b.state.sum + row);
  const __m512 total = _mm512_fmadd_ps(old_sum, correction, _mm512_add_ps(sum[0], sum[1]));
  // A maximum passes over a NaN: without this, a row that sees nothing but NaN would pass for an empty one.
  const __mmask16 number = _mm512_cmp_ps_mask(total, total, _CMP_ORD_Q);
  _mm512_mask_storeu_ps(b.state.sum + row, lanes, total);
  _mm512_mask_storeu_ps(b.state.max + row, lanes, _mm512_mask_mov_ps(total, number, r.new_max));
  return correction;
}

// acc *= correction, for the rows whose correction is not 1: the others keep their bits either way.
void Rescale(const Bf16Block& b, int64_t row, __m512 correction) {
  alignas(64) float by[kBf16Tile];
  _mm512_store_ps(by, correction);
  for (int64_t r = 0; r < Min(kBf16Tile, b.rows - row); ++r) {
    if (by[r] == 1.0F) continue;
    float* acc = b.state.acc + (row + r) * b.state.ld;
    const __m512 factor = _mm512_set1_ps(by[r]);
    for (int64_t c = 0; c < b.value_dim; c += 16)
      _mm512_storeu_ps(acc + c, _mm512_mul_ps(_mm512_loadu_ps(acc + c), factor));
  }
}

template <int G>
void ScoreTiles(const Bf16Block& b, int64_t tile, float* scores, Ahead* ahead);
template <int G>
void ValueTiles(const Bf16Block& b, int64_t tile, const char* weights, Ahead* ahead);

template <int G>
void AttendGroup(const Bf16Block& b, int64_t tile, Ahead* ahead) {
  auto* scores = reinterpret_cast<float*>(b.scratch);
  char* weights = b.scratch + kBf16Scores;
  ScoreTiles<G>(b, tile, scores, ahead);
  for (int64_t g = 0; g < G; ++g) {
    const int64_t row = (tile + g) * kBf16Tile;
    const __m512 correction =
        Softmax(b, row, scores + g * kBf16Tile, weights + g * (kBlockKeys / kBf16Step) * kBf16TileBytes);
    if (!b.first) Rescale(b, row, correction);
  }
  ValueTiles<G>(b, tile, weights, ahead);
}

// The keys that some of a group's rows see: weights of the others are 0, and add nothing.
MLA_INLINE int64_t Seen(const Bf16Block& b, int64_t tile, int64_t tiles) {
  int64_t seen = 0;
  for (int64_t r = tile * kBf16Tile; r < Min(b.rows, (tile + tiles) * kBf16Tile); ++r) seen = Max(seen, b.visible[r]);
  return seen;
}

template <int G>
MLA_INLINE void AttendSeen(const Bf16Block& b, int64_t tile, Ahead* ahead) {
  Bf16Keys keys = b.keys;
  keys.count = Seen(b, tile, G);
  AttendGroup<G>({b.q, b.rows, keys, b.visible, b.scale, b.value_dim, b.first, b.state, b.scratch}, tile, ahead);
}

MLA_INLINE void AttendTiles(const Bf16Block& b) {
  const int64_t tiles = Ceil(b.rows, kBf16Tile);
  Ahead ahead = AheadOf(b);
  int64_t tile = 0;
  for (; tile + kBf16Group <= tiles; tile += kBf16Group) AttendSeen<kBf16Group>(b, tile, &ahead);
  if (tile < tiles) AttendSeen<1>(b, tile, &ahead);
}

}  // namespace
}  // namespace mla::attention
