#include "attention/self_test.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace mla::attention {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kGuard = -77;
constexpr double kU = 0x1p-24;         // unit roundoff of fp32
constexpr double kExpError = 0x1p-22;  // of the exponential, relative: 2 ulp

constexpr std::size_t kTile = static_cast<std::size_t>(kTileKeys);
constexpr std::size_t kRows = 11;
constexpr std::size_t kKeyDim = 5;
constexpr std::size_t kValueDim = 69;  // four vectors and five lanes
constexpr std::size_t kLd = 80;
constexpr std::size_t kTiles = 2;
constexpr float kScale = 0.5F;

// Keys that each row sees of the two tiles. Row 9 sees none.
constexpr std::array<std::array<std::int32_t, kRows>, kTiles> kVisible = {
    {{64, 1, 17, 64, 63, 0, 48, 64, 33, 0, 64}, {40, 0, 3, 17, 40, 40, 0, 1, 39, 0, 0}}};

struct Tiles {
  std::array<float, kRows * kKeyDim> q;
  std::array<std::array<float, kKeyDim * kTile>, kTiles> keys;
  std::array<std::array<float, kTile * kLd>, kTiles> values;
};

void Fill(Tiles* t) {
  CheckValues made;
  for (float& v : t->q) v = made.Next();
  for (std::size_t tile = 0; tile < kTiles; ++tile) {
    for (float& v : t->keys[tile]) v = made.Next();
    for (float& v : t->values[tile]) v = made.Next();
    // What no row sees is not to be noticed.
    const auto seen = static_cast<std::size_t>(*std::max_element(kVisible[tile].begin(), kVisible[tile].end()));
    for (std::size_t key = seen; key < kTile; ++key) {
      for (std::size_t k = 0; k < kKeyDim; ++k) t->keys[tile][k * kTile + key] = kNan;
      std::fill_n(t->values[tile].data() + key * kLd, kLd, kNan);
    }
  }
}

// A row's softmax by its definition, and what fp32 may be off by. Scores and their differences are exact here. A weight
// has its own exponential and one correction, each with a product: rho. Sums go over at most 104 keys, with two
// corrections, in numerator and denominator.
struct RowWant {
  double max = -std::numeric_limits<double>::infinity();
  double lse = -std::numeric_limits<double>::infinity();
  double lse_bound = 0;
  std::array<double, kValueDim> out = {};
  std::array<double, kValueDim> out_bound = {};
};

double Score(const Tiles& t, std::size_t row, std::size_t tile, std::size_t key) {
  double sum = 0;
  for (std::size_t k = 0; k < kKeyDim; ++k) {
    sum += static_cast<double>(t.q[row * kKeyDim + k]) * static_cast<double>(t.keys[tile][k * kTile + key]);
  }
  return static_cast<double>(kScale) * sum;
}

RowWant Want(const Tiles& t, std::size_t row) {
  std::array<std::array<double, kTile>, kTiles> score;
  RowWant want;
  const auto each_key = [&](auto&& f) {
    for (std::size_t tile = 0; tile < kTiles; ++tile) {
      for (std::size_t key = 0; key < static_cast<std::size_t>(kVisible[tile][row]); ++key) f(tile, key);
    }
  };
  each_key([&](std::size_t tile, std::size_t key) {
    score[tile][key] = Score(t, row, tile, key);
    want.max = std::max(want.max, score[tile][key]);
  });
  if (std::isinf(want.max)) return want;
  double total = 0;
  each_key([&](std::size_t tile, std::size_t key) {
    const double weight = std::exp(score[tile][key] - want.max);
    total += weight;
    for (std::size_t c = 0; c < kValueDim; ++c) {
      const double value = weight * static_cast<double>(t.values[tile][key * kLd + c]);
      want.out[c] += value;
      want.out_bound[c] += std::fabs(value);
    }
  });
  const double error = 2 * (kExpError + kU) + (104 + 2 + 2) * kU;
  for (std::size_t c = 0; c < kValueDim; ++c) {
    want.out[c] /= total;
    want.out_bound[c] *= 2 * error / total;
  }
  want.lse = want.max + std::log(total);
  want.lse_bound = error;
  return want;
}

// States with guards: of more rows than a call is given.
struct TestStates {
  std::array<float, kRows> max;
  std::array<float, kRows> sum;
  std::array<float, kRows * kLd> acc;
  States view() { return {max.data(), sum.data(), acc.data(), static_cast<std::int64_t>(kLd)}; }
};

// Rows [0, rows) through both tiles.
void RunTiles(const AttentionKernels& kernels, const Tiles& t, std::size_t rows, TestStates* states) {
  std::array<float, kRows * kTile> scores;
  states->max.fill(kGuard);
  states->sum.fill(kGuard);
  states->acc.fill(kGuard);
  std::fill_n(states->max.begin(), rows, -kInf);
  std::fill_n(states->sum.begin(), rows, 0.0F);
  std::fill_n(states->acc.begin(), rows * kLd, 0.0F);
  for (std::size_t tile = 0; tile < kTiles; ++tile) {
    scores.fill(kNan);
    TileBlock b{};
    b.q = t.q.data();
    b.ldq = kKeyDim;
    b.rows = static_cast<std::int64_t>(rows);
    b.key_dim = kKeyDim;
    b.keys = t.keys[tile].data();
    b.values = t.values[tile].data();
    b.ldv = kLd;
    b.value_dim = kValueDim;
    b.visible = kVisible[tile].data();
    b.scale = kScale;
    b.state = states->view();
    b.scores = scores.data();
    kernels.attend_tile(b);
  }
}

// A state against the row's definition. It holds m and sum with lse = m + ln(sum), so that a kernel which works in
// powers of two is found out.
std::string CompareState(float max, float sum, const float* acc, const RowWant& want) {
  if (static_cast<double>(max) != want.max) {
    return fmt::format("the largest score is {:.9g}, expected {:.9g}", max, want.max);
  }
  const double lse = static_cast<double>(max) + std::log(static_cast<double>(sum));
  if (lse != want.lse && !(std::fabs(lse - want.lse) <= want.lse_bound)) {
    return fmt::format("the log-sum-exp is {:.9g}, expected {:.9g} within {:.2g}", lse, want.lse, want.lse_bound);
  }
  std::array<float, kValueDim> out;
  for (std::size_t c = 0; c < kValueDim; ++c) out[c] = std::isinf(want.max) ? acc[c] : acc[c] / sum;
  return FirstFault(out.data(), want.out.data(), want.out_bound.data(), kValueDim);
}

std::string CheckRows(const AttentionKernels& kernels, const Tiles& t, const std::array<RowWant, kRows>& want,
                      std::size_t rows) {
  TestStates states;
  RunTiles(kernels, t, rows, &states);
  for (std::size_t r = 0; r < rows; ++r) {
    const std::string fault = CompareState(states.max[r], states.sum[r], states.acc.data() + r * kLd, want[r]);
    if (!fault.empty()) return fmt::format("row {} of {}: {}", r, rows, fault);
  }
  const auto guard = [](float v) { return v == kGuard; };
  const auto from = static_cast<std::ptrdiff_t>(rows);
  const bool untouched =
      std::all_of(states.max.begin() + from, states.max.end(), guard) &&
      std::all_of(states.sum.begin() + from, states.sum.end(), guard) &&
      std::all_of(states.acc.begin() + from * static_cast<std::ptrdiff_t>(kLd), states.acc.end(), guard);
  return untouched ? "" : fmt::format("{} rows: a state past the last was written", rows);
}

std::string CheckAttendTile(const AttentionKernels& kernels) {
  Tiles tiles;
  Fill(&tiles);
  std::array<RowWant, kRows> want;
  for (std::size_t r = 0; r < kRows; ++r) want[r] = Want(tiles, r);
  for (const std::size_t rows : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, kRows}) {
    std::string fault = CheckRows(kernels, tiles, want, rows);
    if (!fault.empty()) return fault;
  }
  return "";
}

// Five pairs of states: either empty, both, and each the larger once.
constexpr std::size_t kPairs = 5;
constexpr std::size_t kWidth = 21;
constexpr std::size_t kPairLd = 32;
constexpr std::array<float, kPairs> kPartMax = {-kInf, 1, -kInf, 3, -1.25F};
constexpr std::array<float, kPairs> kIntoMax = {0.5F, -kInf, -kInf, 1.5F, 2};

struct PairStates {
  std::array<float, kPairs> max;
  std::array<float, kPairs> sum;
  std::array<float, kPairs * kPairLd> acc;
  States view() { return {max.data(), sum.data(), acc.data(), static_cast<std::int64_t>(kPairLd)}; }
};

PairStates MakeStates(const std::array<float, kPairs>& max, CheckValues* made) {
  PairStates s;
  s.max = max;
  for (std::size_t r = 0; r < kPairs; ++r) {
    const bool empty = max[r] == -kInf;
    s.sum[r] = empty ? 0.0F : 3 + made->Next();
    for (std::size_t c = 0; c < kPairLd; ++c) s.acc[r * kPairLd + c] = empty ? 0.0F : made->Next();
  }
  return s;
}

std::string CheckFold(const AttentionKernels& kernels) {
  CheckValues made;
  PairStates part = MakeStates(kPartMax, &made);
  PairStates into = MakeStates(kIntoMax, &made);
  const PairStates before = into;
  kernels.fold(part.view(), kPairs, kWidth, into.view());
  // An exponential, two products and a sum.
  constexpr double kError = kExpError + 3 * kU;
  for (std::size_t r = 0; r < kPairs; ++r) {
    const double max = std::max(static_cast<double>(kPartMax[r]), static_cast<double>(kIntoMax[r]));
    const bool empty = std::isinf(max);
    const double keep = empty ? 1 : std::exp(static_cast<double>(kIntoMax[r]) - max);
    const double take = empty ? 0 : std::exp(static_cast<double>(kPartMax[r]) - max);
    std::array<float, kWidth + 2> got;
    std::array<double, kWidth + 2> want;
    std::array<double, kWidth + 2> bound;
    const auto expect = [&](std::size_t at, float found, float kept, float taken) {
      got[at] = found;
      want[at] = keep * static_cast<double>(kept) + take * static_cast<double>(taken);
      bound[at] = kError * (std::fabs(keep * static_cast<double>(kept)) + std::fabs(take * static_cast<double>(taken)));
    };
    for (std::size_t c = 0; c < kWidth; ++c) {
      const std::size_t at = r * kPairLd + c;
      expect(c, into.acc[at], before.acc[at], part.acc[at]);
    }
    expect(kWidth, into.sum[r], before.sum[r], part.sum[r]);
    got[kWidth + 1] = into.max[r];
    want[kWidth + 1] = max;
    bound[kWidth + 1] = 0;
    const std::string fault = FirstFault(got.data(), want.data(), bound.data(), kWidth + 2);
    if (!fault.empty()) return fmt::format("state {}: {}", r, fault);
  }
  return "";
}

std::string CheckNormalise(const AttentionKernels& kernels) {
  constexpr std::size_t kLdo = kWidth + 3;
  CheckValues made;
  PairStates states = MakeStates(kIntoMax, &made);
  std::array<float, kPairs * kLdo> out;
  out.fill(kGuard);
  std::array<double, kPairs * kLdo> want;
  want.fill(kGuard);
  std::array<double, kPairs* kLdo> bound = {};
  for (std::size_t r = 0; r < kPairs; ++r) {
    for (std::size_t c = 0; c < kWidth; ++c) {
      const auto acc = static_cast<double>(states.acc[r * kPairLd + c]);
      const double exact = states.max[r] == -kInf ? 0 : acc / static_cast<double>(states.sum[r]);
      want[r * kLdo + c] = exact;
      bound[r * kLdo + c] = 2 * kU * std::fabs(exact);  // a division, or an inverse and a product
    }
  }
  kernels.normalise(states.view(), kPairs, kWidth, out.data(), kLdo);
  return FirstFault(out.data(), want.data(), bound.data(), static_cast<std::int64_t>(out.size()));
}

std::string CheckWiden(const AttentionKernels& kernels) {
  constexpr std::size_t kCount = 37;
  std::array<std::uint16_t, kCount> from;
  for (std::size_t i = 0; i < kCount; ++i) from[i] = static_cast<std::uint16_t>(i * 0x06f9);  // both signs
  from[3] = 0x8001;                                                                           // a subnormal
  from[20] = 0xff80;                                                                          // -inf
  from[kCount - 1] = 0x7fc1;                                                                  // NaN
  std::array<float, kCount + 1> to;
  to.fill(kGuard);
  kernels.widen(from.data(), to.data(), kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::uint32_t want = static_cast<std::uint32_t>(from[i]) << 16;
    const auto got = std::bit_cast<std::uint32_t>(to[i]);
    if (got != want) return fmt::format("element {} has the bits {:08x}, expected {:08x}", i, got, want);
  }
  return to[kCount] == kGuard ? "" : "wrote past the end";
}

std::string CheckTranspose(const AttentionKernels& kernels) {
  constexpr std::size_t kColumns = 21;
  constexpr std::size_t kLdi = kColumns + 3;
  std::array<float, kTile * kLdi> in;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  std::array<float, kColumns * kTile + 1> out;
  out.fill(kGuard);
  std::array<double, kColumns * kTile + 1> want;
  want.back() = kGuard;
  for (std::size_t c = 0; c < kColumns; ++c) {
    for (std::size_t key = 0; key < kTile; ++key) want[c * kTile + key] = static_cast<double>(in[key * kLdi + c]);
  }
  kernels.transpose_tile(in.data(), kLdi, kColumns, out.data());
  return FirstFault(out.data(), want.data(), nullptr, static_cast<std::int64_t>(out.size()));
}

}  // namespace

std::vector<KernelCheck> CheckKernels(const AttentionKernels& kernels) {
  std::vector<KernelCheck> checks = {{"attend_tile", DType::kF32, CheckAttendTile(kernels)},
                                     {"fold", DType::kF32, CheckFold(kernels)},
                                     {"normalise", DType::kF32, CheckNormalise(kernels)},
                                     {"widen", DType::kBF16, CheckWiden(kernels)},
                                     {"transpose_tile", DType::kF32, CheckTranspose(kernels)}};
  if (kernels.bf16 != nullptr) {
    for (KernelCheck& check : CheckKernels(*kernels.bf16)) checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace mla::attention
