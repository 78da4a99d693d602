// Attention by AVX-512 BF16's dot products, over the tiles that AMX takes. Empty where the build leaves the instruction
// set out.
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
#include <immintrin.h>

#include "attention/kernels.h"
#define MLA_SIMD_AVX512
#include "base/bf16_lanes.h"
#include "base/simd.h"

// Scores: a cached pair of elements is broadcast against 16 rows of queries. Values: a pair of weights is broadcast
// against 16 columns.
namespace mla::attention {
namespace {
// Keys by which two tiles of rows make 16 sums, in registers with what they are multiplied by, and rows that make 16
// with two tiles of columns.
constexpr auto kAheadHint = _MM_HINT_T0;
constexpr int kKeys = 8;
constexpr int kKeysOfOne = 16;  // of one tile alone
constexpr int kStates = 8;
constexpr int kRowsByKey = 4;
static_assert(kBf16Tile % kStates == 0);
}  // namespace
}  // namespace mla::attention

#include "attention/kernels_bf16.inl"

namespace mla::attention {
namespace {

MLA_INLINE __m512bh LoadPairs(const char* p) { return (__m512bh)_mm512_loadu_si512(p); }
MLA_INLINE __m512bh BroadcastPair(const char* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  return (__m512bh)_mm512_set1_epi32(pair);
}

// Scores of keys [key, key + N) of one run by G tiles of rows.
template <int N, int G>
MLA_INLINE void Scores(const Bf16Block& b, int64_t tile, int64_t key, float* scores, Ahead* ahead) {
  const Bf16Keys& k = b.keys;
  const int64_t tile_bytes = QueryTileBytes(k);
  const char* q = b.q + tile * tile_bytes;
  __m512 sum[N][G];
  for (int i = 0; i < N; ++i) {
    for (int g = 0; g < G; ++g) sum[i][g] = _mm512_setzero_ps();
  }
  for (int part = 0; part < 2; ++part) {
    if (k.steps[part] == 0) continue;
    // Four keys to a pointer: a pointer each would not fit the registers.
    const int64_t stride = k.stride[part];
    const int64_t stride3 = stride * 3;
    const char* rows[(N + 3) / 4];
    for (int i = 0; i < N; i += 4) {
      rows[i / 4] = k.runs[part][key / kBf16Tile] + (key % kBf16Tile + i) * stride;
    }
    for (int64_t pair = 0; pair < k.steps[part] * kBf16Tile; ++pair) {
      __m512bh queries[G];
      for (int g = 0; g < G; ++g) queries[g] = LoadPairs(q + g * tile_bytes);
      for (int i = 0; i < N; ++i) {
        const char* at = rows[i / 4] + (i % 4 == 3 ? stride3 : i % 4 * stride);
        const __m512bh x = BroadcastPair(at);
        for (int g = 0; g < G; ++g) sum[i][g] = _mm512_dpbf16_ps(sum[i][g], queries[g], x);
      }
      q += 64;
      for (int i = 0; i < N; i += 4) {
        rows[i / 4] += 4;
        asm volatile("" : "+r"(rows[i / 4]));
      }
      if (pair % kBf16Tile == 0) Step(ahead);
    }
  }
  for (int i = 0; i < N; ++i) {
    for (int g = 0; g < G; ++g) _mm512_store_ps(scores + (key + i) * kLdScores + g * kBf16Tile, sum[i][g]);
  }
}

template <int G>
void ScoreTiles(const Bf16Block& b, int64_t tile, float* scores, Ahead* ahead) {
  constexpr int kMost = G == 1 ? kKeysOfOne : kKeys;
  int64_t key = 0;
  for (; key + kMost <= b.keys.count; key += kMost) Scores<kMost, G>(b, tile, key, scores, ahead);
  for (; key + 4 <= b.keys.count; key += 4) Scores<4, G>(b, tile, key, scores, ahead);
  for (; key < b.keys.count; ++key) Scores<1, G>(b, tile, key, scores, ahead);
}

// N rows of a tile from `row` on, by C tiles of columns.
template <int N, int C>
MLA_INLINE void Values(const Bf16Block& b, int64_t row, const char* weights, int64_t column, Ahead* ahead) {
  __m512 sum[N][C];
  for (int r = 0; r < N; ++r) {
    const float* acc = b.state.acc + (row + r) * b.state.ld + column * kBf16Tile;
    for (int c = 0; c < C; ++c) sum[r][c] = b.first ? _mm512_setzero_ps() : _mm512_loadu_ps(acc + c * kBf16Tile);
  }
  for (int64_t s = 0; s < Ceil(b.keys.count, kBf16Step); ++s) {
    const char* v = b.keys.values + s * b.keys.value_step + column * kBf16TileBytes;
    const char* w = weights + s * kBf16TileBytes;
    Step(ahead);
    for (int64_t pair = 0; pair < kBf16Tile; ++pair) {
      __m512bh values[C];
      for (int c = 0; c < C; ++c) values[c] = LoadPairs(v + c * kBf16TileBytes + pair * 64);
      for (int r = 0; r < N; ++r) {
        const __m512bh x = BroadcastPair(w + r * 64 + pair * 4);
        for (int c = 0; c < C; ++c) sum[r][c] = _mm512_dpbf16_ps(sum[r][c], values[c], x);
      }
    }
  }
  for (int r = 0; r < N; ++r) {
    float* acc = b.state.acc + (row + r) * b.state.ld + column * kBf16Tile;
    for (int c = 0; c < C; ++c) _mm512_storeu_ps(acc + c * kBf16Tile, sum[r][c]);
  }
}

// N rows from `row` on by C times 32 columns from `column` on, values taken from the keys' own rows.
template <int N, int C>
MLA_INLINE void ValuesByKey(const Bf16Block& b, int64_t row, const char* weights, int64_t column, Ahead* ahead) {
  const Bf16Keys& k = b.keys;
  const int64_t left = b.value_dim - column;
  __m512 sum[N][2 * C];
  for (int r = 0; r < N; ++r) {
    const float* acc = b.state.acc + (row + r) * b.state.ld + column;
    for (int c = 0; c < 2 * C; ++c) {
      const bool there = c * kBf16Tile < left && !b.first;
      sum[r][c] = there ? _mm512_loadu_ps(acc + c * kBf16Tile) : _mm512_setzero_ps();
    }
  }
  for (int64_t pair = 0; 2 * pair < k.count; ++pair) {
    const int64_t key = 2 * pair;
    const char* even = k.runs[0][key / kBf16Tile] + key % kBf16Tile * k.stride[0] + column * 2;
    const char* odd = key + 1 < k.count ? even + k.stride[0] : nullptr;
    const char* w = weights + pair / kBf16Tile * kBf16TileBytes + pair % kBf16Tile * 4;
    for (int c = 0; c < C; ++c) {
      const KeyPairs values = PairKeys(even + c * 64, odd == nullptr ? odd : odd + c * 64, left - c * 32);
      for (int r = 0; r < N; ++r) {
        const __m512bh x = BroadcastPair(w + r * 64);
        sum[r][2 * c] = _mm512_dpbf16_ps(sum[r][2 * c], (__m512bh)values.low, x);
        sum[r][2 * c + 1] = _mm512_dpbf16_ps(sum[r][2 * c + 1], (__m512bh)values.high, x);
      }
    }
    if (pair % kBf16Tile == 0) Step(ahead);
  }
  for (int r = 0; r < N; ++r) {
    float* acc = b.state.acc + (row + r) * b.state.ld + column;
    for (int c = 0; c < 2 * C && c * kBf16Tile < left; ++c) _mm512_storeu_ps(acc + c * kBf16Tile, sum[r][c]);
  }
}

// Tiles of columns by so many rows: at least twelve sums, which otherwise wait for one another.
constexpr int ColumnsOf(int64_t rows) { return rows <= 2 ? 8 : rows <= 5 ? 4 : 2; }
// ... of columns by key, up to kRowsByKey: a multiple of two.
constexpr int ColumnsByKey(int64_t rows) { return rows == 1 ? 16 : rows == 2 ? 8 : 4; }

template <int N>
MLA_INLINE void ValueColumns(const Bf16Block& b, int64_t row, const char* weights, Ahead* ahead) {
  if constexpr (N <= kRowsByKey) {
    if (b.keys.values == nullptr) {
      constexpr int kTimes = ColumnsByKey(N) / 2;
      for (int64_t at = 0; at < b.value_dim; at += kTimes * 32) ValuesByKey<N, kTimes>(b, row, weights, at, ahead);
      return;
    }
  }
  constexpr int kColumns = ColumnsOf(N);
  const int64_t columns = Ceil(b.value_dim, kBf16Tile);
  int64_t column = 0;
  for (; column + kColumns <= columns; column += kColumns) Values<N, kColumns>(b, row, weights, column, ahead);
  for (; column < columns; ++column) Values<N, 1>(b, row, weights, column, ahead);
}

// `rows` of them, N at most.
template <int N>
MLA_INLINE void LastRows(const Bf16Block& b, int64_t row, int64_t rows, const char* weights, Ahead* ahead) {
  if constexpr (N > 0) {
    if (rows == N) return ValueColumns<N>(b, row, weights, ahead);
    LastRows<N - 1>(b, row, rows, weights, ahead);
  }
}

template <int G>
void ValueTiles(const Bf16Block& b, int64_t tile, const char* weights, Ahead* ahead) {
  for (int64_t g = 0; g < G; ++g) {
    const int64_t first = (tile + g) * kBf16Tile;
    const int64_t rows = Min(kBf16Tile, b.rows - first);
    const char* w = weights + g * (kBlockKeys / kBf16Step) * kBf16TileBytes;
    int64_t r = 0;
    for (; r + kStates <= rows; r += kStates) ValueColumns<kStates>(b, first + r, w + r * 64, ahead);
    LastRows<kStates - 1>(b, first + r, rows - r, w + r * 64, ahead);
  }
}

int64_t AheadSteps(const Bf16Block& b) {
  const int64_t steps = b.keys.steps[0] + b.keys.steps[1];
  const int64_t tiles = Ceil(b.rows, kBf16Tile);
  const int64_t scores =
      (tiles / kBf16Group * Ceil(b.keys.count, kKeys) + tiles % kBf16Group * Ceil(b.keys.count, kKeysOfOne)) * steps;
  const int64_t columns = Ceil(b.value_dim, kBf16Tile);
  const auto values_of = [&](int64_t rows) {
    if (b.keys.values == nullptr) return Ceil(columns, ColumnsByKey(rows));
    return columns / ColumnsOf(rows) + columns % ColumnsOf(rows);
  };
  const int64_t last = b.rows % kStates;
  const int64_t values = b.rows / kStates * values_of(kStates) + (last > 0 ? values_of(last) : 0);
  return scores + values * Ceil(b.keys.count, kBf16Step);
}

void Attend(const Bf16Block& b) { AttendTiles(b); }

}  // namespace

extern const Bf16Kernels kBf16Avx512;
const Bf16Kernels kBf16Avx512 = {kRowsByKey, Attend, PackQueries, Interleave, RoundValues, RoundRow, AllFinite};

}  // namespace mla::attention

#endif
