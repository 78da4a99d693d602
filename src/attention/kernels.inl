// The attention kernels over simd::V16; see kernels.h for what each promises. Included by kernels_ISA.cc, which defines
// MLA_SIMD_* and kRows, the rows of a register block.

namespace mla::attention {
namespace {

using namespace simd::MLA_SIMD_NS;  // NOLINT(google-build-using-namespace): the vocabulary of this file

constexpr int kTileVectors = static_cast<int>(kTileKeys) / kLanes;

// R rows x C vectors of: sum over k in [0, depth) of a[r][k] * b[k][...]. Starts from `sum`.
template <int R, int C>
MLA_INLINE void Multiply(const float* const (&a)[R], const float* b, int64_t ldb, int64_t begin, int64_t end,
                         V16 (&sum)[R][C]) {
  for (int64_t k = begin; k < end; ++k) {
    V16 v[C];
    for (int c = 0; c < C; ++c) v[c] = Load(b + k * ldb + c * kLanes);
    for (int r = 0; r < R; ++r) {
      const V16 x = Set1(a[r][k]);
      for (int c = 0; c < C; ++c) sum[r][c] = Fma(x, v[c], sum[r][c]);
    }
  }
}

template <int R>
void ScoreRows(const TileBlock& b, int64_t row) {
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = b.q + (row + r) * b.ldq;
  for (int c = 0; c < kTileVectors; c += kScoreVectors) {
    V16 sum[R][kScoreVectors];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < kScoreVectors; ++i) sum[r][i] = Zero();
    }
    Multiply<R, kScoreVectors>(q, b.keys + c * kLanes, kTileKeys, 0, b.key_dim, sum);
    for (int r = 0; r < R; ++r) {
      float* s = b.scores + (row + r) * kTileKeys + c * kLanes;
      for (int i = 0; i < kScoreVectors; ++i) Store(s + i * kLanes, Mul(sum[r][i], Set1(b.scale)));
    }
  }
}

// Scores -> probabilities relative to the new maximum, in place. Returns what the old sum and values are multiplied by.
float SoftmaxRow(float* scores, int64_t visible, float* max, float* sum) {
  for (int64_t i = visible; i < kTileKeys; ++i) scores[i] = -__builtin_inff();
  V16 s[kTileVectors];
  for (int c = 0; c < kTileVectors; ++c) s[c] = Load(scores + c * kLanes);
  V16 largest = s[0];
  for (int c = 1; c < kTileVectors; ++c) largest = Max(largest, s[c]);
  const float tile_max = ReduceMax(largest);
  const float new_max = *max > tile_max ? *max : tile_max;
  float correction[kLanes];
  Store(correction, Exp(Set1(*max - new_max)));
  const V16 shift = Set1(new_max);
  V16 total = Zero();
  for (int c = 0; c < kTileVectors; ++c) {
    const V16 p = Exp(Sub(s[c], shift));
    Store(scores + c * kLanes, p);
    total = Add(total, p);
  }
  *sum = *sum * correction[0] + ReduceAdd(total);
  // A maximum drops a NaN: without this, a row that sees nothing but NaN would pass for an empty one.
  *max = *sum == *sum ? new_max : *sum;
  return correction[0];
}

// acc[r] = acc[r] * correction[r] + p[r] values, over C vectors of columns from `column`. The keys that all R rows see
// go together, then each row's own: the order of keys is the same for every row either way.
template <int R, int C>
MLA_INLINE void ValueColumns(const TileBlock& b, int64_t row, const float* correction, int64_t common, int64_t column) {
  const float* p[R];
  V16 sum[R][C];
  for (int r = 0; r < R; ++r) {
    p[r] = b.scores + (row + r) * kTileKeys;
    const float* acc = b.state.acc + (row + r) * b.state.ld + column;
    for (int c = 0; c < C; ++c) sum[r][c] = Mul(Load(acc + c * kLanes), Set1(correction[r]));
  }
  Multiply<R, C>(p, b.values + column, b.ldv, 0, common, sum);
  for (int r = 0; r < R; ++r) {
    if (b.visible[row + r] > common) {
      const float* one[1] = {p[r]};
      V16 rest[1][C];
      for (int c = 0; c < C; ++c) rest[0][c] = sum[r][c];
      Multiply<1, C>(one, b.values + column, b.ldv, common, b.visible[row + r], rest);
      for (int c = 0; c < C; ++c) sum[r][c] = rest[0][c];
    }
    float* acc = b.state.acc + (row + r) * b.state.ld + column;
    for (int c = 0; c < C; ++c) Store(acc + c * kLanes, sum[r][c]);
  }
}

template <int R>
void RowBlock(const TileBlock& b, int64_t row) {
  ScoreRows<R>(b, row);
  float correction[R];
  int64_t common = kTileKeys;
  for (int r = 0; r < R; ++r) {
    const int64_t visible = b.visible[row + r];
    common = visible < common ? visible : common;
    correction[r] = 1.0F;
    if (visible == 0) continue;
    correction[r] = SoftmaxRow(b.scores + (row + r) * kTileKeys, visible, b.state.max + row + r, b.state.sum + row + r);
  }
  const int64_t columns = (b.value_dim + kLanes - 1) / kLanes * kLanes;
  int64_t column = 0;
  for (; column + kValueVectors * kLanes <= columns; column += kValueVectors * kLanes) {
    ValueColumns<R, kValueVectors>(b, row, correction, common, column);
  }
  for (; column < columns; column += kLanes) ValueColumns<R, 1>(b, row, correction, common, column);
}

template <int R>
void TailRows(const TileBlock& b, int64_t row) {
  if constexpr (R > 0) {
    if (b.rows - row == R) return RowBlock<R>(b, row);
    TailRows<R - 1>(b, row);
  }
}

void AttendTile(const TileBlock& b) {
  int64_t row = 0;
  for (; row + kRows <= b.rows; row += kRows) RowBlock<kRows>(b, row);
  TailRows<kRows - 1>(b, row);
}

void Fold(const States& part, int64_t rows, int64_t value_dim, const States& into) {
  const int64_t columns = (value_dim + kLanes - 1) / kLanes * kLanes;
  for (int64_t r = 0; r < rows; ++r) {
    if (part.max[r] == -__builtin_inff()) continue;
    const float* from = part.acc + r * part.ld;
    float* to = into.acc + r * into.ld;
    if (into.max[r] == -__builtin_inff()) {
      for (int64_t c = 0; c < columns; c += kLanes) Store(to + c, Load(from + c));
      into.max[r] = part.max[r];
      into.sum[r] = part.sum[r];
      continue;
    }
    const float new_max = into.max[r] > part.max[r] ? into.max[r] : part.max[r];
    float scale[kLanes];
    Store(scale, Exp(Set1(into.max[r] - new_max)));
    const float keep = scale[0];
    Store(scale, Exp(Set1(part.max[r] - new_max)));
    const float take = scale[0];
    for (int64_t c = 0; c < columns; c += kLanes) {
      Store(to + c, Fma(Load(from + c), Set1(take), Mul(Load(to + c), Set1(keep))));
    }
    into.sum[r] = into.sum[r] * keep + part.sum[r] * take;
    into.max[r] = new_max;
  }
}

void Normalise(const States& state, int64_t rows, int64_t value_dim, float* out, int64_t ldo) {
  for (int64_t r = 0; r < rows; ++r) {
    const bool empty = state.max[r] == -__builtin_inff();
    const float* acc = state.acc + r * state.ld;
    const V16 sum = Set1(state.sum[r]);
    float* to = out + r * ldo;
    int64_t i = 0;
    for (; i + kLanes <= value_dim; i += kLanes) Store(to + i, empty ? Zero() : Div(Load(acc + i), sum));
    for (; i < value_dim; ++i) to[i] = empty ? 0.0F : acc[i] / state.sum[r];
  }
}

void Widen(const uint16_t* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(to + i, LoadBf16(from + i));
  for (; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    __builtin_memcpy(to + i, &bits, sizeof(bits));
  }
}

void TransposeTile(const float* in, int64_t ldi, int64_t n, float* out) {
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int64_t i = 0; i < kTileKeys; i += kLanes)
      Transpose16(in + i * ldi + j, ldi, out + j * kTileKeys + i, kTileKeys);
  }
  for (; j < n; ++j) {
    for (int64_t i = 0; i < kTileKeys; ++i) out[j * kTileKeys + i] = in[i * ldi + j];
  }
}

}  // namespace
}  // namespace mla::attention
