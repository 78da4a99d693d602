#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "attention/self_test.h"

namespace mla::attention {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kGuard = -77;
constexpr double kU = 0x1p-24;         // unit roundoff of fp32
constexpr double kUBf16 = 0x1p-8;      // of bf16
constexpr double kExpError = 0x1p-22;  // of the exponential, relative: 2 ulp

// Two tiles of rows and a part of a third; two steps of the first part of k, the second short, and one short one of the
// second; columns of two tiles and a part of a third; two steps of keys, the second short, in two runs and a part.
constexpr std::int64_t kRows = 37;
constexpr std::int64_t kN0 = 40;
constexpr std::int64_t kN1 = 6;
constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kColumns = 41;
constexpr std::int64_t kTileColumns = 3;
constexpr std::int64_t kLd = 48;
constexpr std::int64_t kKeys = 43;
constexpr std::int64_t kBlocks = 2;
constexpr std::int64_t kKeySteps = 2;
constexpr float kScale = 0.125F;

std::uint16_t ToBf16(float x) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16); }
float FromBf16(std::uint16_t x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16); }

constexpr std::size_t kTile = kBf16TileBytes / 2;
// All is kept on the stack, as the other self-tests keep it: a start allocates nothing for them.
template <std::int64_t kCount>
struct Tiles {
  alignas(64) std::array<std::uint16_t, kCount * kTile> bits;
  explicit Tiles(std::uint16_t filling) { bits.fill(filling); }
  char* data() { return reinterpret_cast<char*>(bits.data()); }
};
using QueryTiles = Tiles<3 * kSteps>;
using ValueTiles = Tiles<kKeySteps * kTileColumns>;
constexpr std::uint16_t kUnwritten = 0xdead;

// Where element k of row r stands in packed queries, and key j's column c in values.
std::size_t QueryAt(std::int64_t r, std::int64_t k) {
  const std::int64_t in_part = k < kN0 ? k : k - kN0;
  const std::int64_t step = (k < kN0 ? 0 : 2) + in_part / kBf16Step;
  const std::int64_t tile = r / kBf16Tile * kSteps + step;
  const std::int64_t pair = in_part % kBf16Step / 2;
  return static_cast<std::size_t>(tile * static_cast<std::int64_t>(kTile) + pair * 32 + r % kBf16Tile * 2 +
                                  in_part % 2);
}
std::size_t ValueAt(std::int64_t j, std::int64_t c) {
  const std::int64_t tile = j / kBf16Step * kTileColumns + c / kBf16Tile;
  return static_cast<std::size_t>(tile * static_cast<std::int64_t>(kTile) + j % kBf16Step / 2 * 32 + c % kBf16Tile * 2 +
                                  j % 2);
}

template <std::size_t kCount>
std::string Compare(const std::array<std::uint16_t, kCount>& got, const std::array<std::uint16_t, kCount>& want) {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (got[i] != want[i]) {
      return fmt::format("element {} of tile {} has the bits {:04x}, expected {:04x}", i % kTile, i / kTile, got[i],
                         want[i]);
    }
  }
  return "";
}

constexpr std::int64_t kRowWidth = kSteps * kBf16Step;

struct Block {
  std::array<std::uint16_t, (kKeys + kBf16Tile) * kRowWidth> rows;  // keys; zero past either part's end
  std::array<float, (kKeys + 1) * kColumns> values;                 // [kKeys, kColumns], and one that is no number
  std::array<std::int32_t, kRows> visible;
};

struct Problem {
  std::array<float, kRows*(kN0 + kN1)> q;
  std::array<Block, kBlocks> blocks;
};

void Make(Problem* p) {
  CheckValues made;
  for (float& q : p->q) q = made.Next();
  for (std::int64_t b = 0; b < kBlocks; ++b) {
    Block& block = p->blocks[static_cast<std::size_t>(b)];
    block.rows.fill(ToBf16(kNan));
    for (std::int64_t i = 0; i < kKeys * kRowWidth; ++i) {
      const std::int64_t k = i % kRowWidth;
      const bool real = k < 2 * kBf16Step ? k < kN0 : k - 2 * kBf16Step < kN1;
      block.rows[static_cast<std::size_t>(i)] = real ? ToBf16(made.Next()) : 0;
    }
    block.values.fill(kNan);
    for (std::size_t i = 0; i < kKeys * kColumns; ++i) block.values[i] = made.Next();
    // Row 0 sees nothing at all; of the others some see all, some nothing of either block.
    for (std::int64_t r = 0; r < kRows; ++r) {
      const std::int64_t seen = r % 3 == 2 ? kKeys : (r * (b == 0 ? 7 : 5)) % (kKeys + 1);
      block.visible[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(r == 0 || (b == 0 && r == 20) ? 0 : seen);
    }
  }
}

std::string CheckPackQueries(const Bf16Kernels& kernels, const Problem& p) {
  QueryTiles got(kUnwritten);
  QueryTiles want(0);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t k = 0; k < kN0 + kN1; ++k) {
      want.bits[QueryAt(r, k)] = ToBf16(p.q[static_cast<std::size_t>(r * (kN0 + kN1) + k)]);
    }
  }
  kernels.pack_queries(p.q.data(), kN0 + kN1, kRows, kN0, kN1, got.data());
  return Compare(got.bits, want.bits);
}

ValueTiles TilesOf(const Block& block) {
  ValueTiles tiles(0);
  for (std::int64_t j = 0; j < kKeys; ++j) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      tiles.bits[ValueAt(j, c)] = ToBf16(block.values[static_cast<std::size_t>(j * kColumns + c)]);
    }
  }
  return tiles;
}

std::string CheckRoundValues(const Bf16Kernels& kernels, const Block& block) {
  ValueTiles got(kUnwritten);
  kernels.round_values(block.values.data(), kColumns, kKeys, kColumns, got.data(), kTileColumns * kBf16TileBytes);
  return Compare(got.bits, TilesOf(block).bits);
}

std::string CheckInterleave(const Bf16Kernels& kernels, const Block& block) {
  constexpr std::int64_t kWidth = kColumns + 3;
  std::array<std::uint16_t, (kKeys + 1) * kWidth> rows;
  rows.fill(ToBf16(kNan));
  for (std::int64_t j = 0; j < kKeys; ++j) {
    for (std::int64_t c = 0; c < kColumns; ++c) {
      rows[static_cast<std::size_t>(j * kWidth + c)] = ToBf16(block.values[static_cast<std::size_t>(j * kColumns + c)]);
    }
  }
  std::array<const char*, 3> runs;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    runs[run] = reinterpret_cast<const char*>(rows.data() + run * kBf16Tile * kWidth);
  }
  ValueTiles got(kUnwritten);
  kernels.interleave(runs.data(), kWidth * 2, kKeys, kColumns, got.data(), kTileColumns * kBf16TileBytes);
  return Compare(got.bits, TilesOf(block).bits);
}

std::string CheckRoundRow(const Bf16Kernels& kernels) {
  // Ties to even, both signs; what has more digits, either way.
  const std::array<float, 6> from = {1 + 0x1p-8F, 1 + 0x3p-8F, -1 - 0x1p-8F, 1 + 0x1p-8F + 0x1p-20F, -0.3F, kInf};
  const std::array<std::uint16_t, 6> to = {0x3f80, 0x3f82, 0xbf80, 0x3f81, 0xbe9a, 0x7f80};
  constexpr std::size_t kCount = 41;
  std::array<float, kCount> row;
  std::array<std::uint16_t, 65> want = {};
  for (std::size_t i = 0; i < kCount; ++i) {
    row[i] = from[i % from.size()];
    want[i] = to[i % to.size()];
  }
  want.back() = kUnwritten;
  std::array<std::uint16_t, 65> got;
  got.fill(kUnwritten);
  kernels.round_row(row.data(), kCount, reinterpret_cast<char*>(got.data()));
  return Compare(got, want);
}

std::string CheckAllFinite(const Bf16Kernels& kernels) {
  std::array<std::uint16_t, 96> values;
  values.fill(0x7f7f);  // the largest number
  const auto finite = [&] {
    return kernels.all_finite(reinterpret_cast<const char*>(values.data()), static_cast<std::int64_t>(values.size()));
  };
  if (!finite()) return "numbers pass for none";
  for (const std::size_t at : {std::size_t{0}, std::size_t{50}, std::size_t{95}}) {
    for (const std::uint16_t bad : {0x7f80, 0xff80, 0x7fc0}) {
      values[at] = bad;
      if (finite()) return fmt::format("element {} with the bits {:04x} passes for a number", at, bad);
    }
    values[at] = 0xff7f;
  }
  return "";
}

// The states after both blocks, with guards behind them.
struct Found {
  std::array<float, kRows> max;
  std::array<float, kRows> sum;
  std::array<float, kRows * kLd> acc;
};

void Run(const Bf16Kernels& kernels, const Problem& p, std::int64_t rows, Found* found) {
  found->max.fill(kGuard);
  found->sum.fill(kGuard);
  found->acc.fill(kGuard);
  std::fill_n(found->max.begin(), rows, -kInf);
  std::fill_n(found->sum.begin(), rows, 0.0F);
  QueryTiles q(kUnwritten);
  kernels.pack_queries(p.q.data(), kN0 + kN1, rows, kN0, kN1, q.data());
  Tiles<kBf16Scratch / kBf16TileBytes> scratch(ToBf16(kNan));
  static_assert(kBf16Scratch % kBf16TileBytes == 0);
  for (std::size_t b = 0; b < kBlocks; ++b) {
    const Block& block = p.blocks[b];
    ValueTiles values = TilesOf(block);
    std::array<std::array<const char*, 3>, 2> runs;
    for (std::size_t run = 0; run < 3; ++run) {
      runs[0][run] = reinterpret_cast<const char*>(block.rows.data() + run * kBf16Tile * kRowWidth);
      runs[1][run] = runs[0][run] + 2 * kBf16Step * 2;
    }
    Bf16Keys keys{};
    for (std::size_t part = 0; part < 2; ++part) {
      keys.runs[part] = runs[part].data();
      keys.stride[part] = kRowWidth * 2;
    }
    keys.steps[0] = 2;
    keys.steps[1] = 1;
    keys.count = kKeys;
    keys.values = values.data();
    keys.value_step = kTileColumns * kBf16TileBytes;
    kernels.attend({q.data(),
                    rows,
                    keys,
                    block.visible.data(),
                    kScale,
                    kColumns,
                    b == 0,
                    {found->max.data(), found->sum.data(), found->acc.data(), kLd},
                    scratch.data()});
  }
}

// A row's softmax by its definition. Scores are exact; a weight is off by its exponential, a correction and a rounding
// to bf16, sums by their roundings.
std::string CheckRow(const Found& found, const Problem& p, std::int64_t r) {
  std::array<double, kBlocks * kKeys> score;
  std::array<const float*, kBlocks * kKeys> value;
  std::size_t seen = 0;
  for (const Block& block : p.blocks) {
    for (std::int64_t j = 0; j < block.visible[static_cast<std::size_t>(r)]; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < kN0 + kN1; ++k) {
        const std::int64_t at = j * kRowWidth + (k < kN0 ? k : k - kN0 + 2 * kBf16Step);
        sum += static_cast<double>(p.q[static_cast<std::size_t>(r * (kN0 + kN1) + k)]) *
               static_cast<double>(FromBf16(block.rows[static_cast<std::size_t>(at)]));
      }
      score[seen] = static_cast<double>(kScale) * sum;
      value[seen++] = block.values.data() + j * kColumns;
    }
  }
  const auto row = static_cast<std::size_t>(r);
  if (seen == 0) {
    const bool empty = found.max[row] == -kInf && found.sum[row] == 0;
    return empty ? "" : fmt::format("a row that sees nothing has the sum {:.9g}", found.sum[row]);
  }
  const double max = *std::max_element(score.begin(), score.begin() + seen);
  if (static_cast<double>(found.max[row]) != max) {
    return fmt::format("the largest score is {:.9g}, expected {:.9g}", found.max[row], max);
  }
  std::array<double, kColumns + 1> want = {};
  std::array<double, kColumns + 1> bound = {};
  for (std::size_t j = 0; j < seen; ++j) {
    const double weight = std::exp(score[j] - max);
    const double error = 2 * (kExpError + kU) + (2 * kKeys + 4) * kU + std::fabs(score[j] - max) * kU;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const double term = weight * static_cast<double>(value[j][c]);
      want[c] += term;
      bound[c] += (error + kUBf16) * std::fabs(term);
    }
    want[kColumns] += weight;
    bound[kColumns] += error * weight;
  }
  std::array<float, kColumns + 1> got;
  std::copy_n(found.acc.data() + r * kLd, kColumns, got.begin());
  got[kColumns] = found.sum[row];
  return FirstFault(got.data(), want.data(), bound.data(), kColumns + 1);
}

std::string CheckAttend(const Bf16Kernels& kernels, const Problem& p) {
  for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{16}, std::int64_t{23}, kRows}) {
    Found found;
    Run(kernels, p, rows, &found);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::string fault = CheckRow(found, p, r);
      if (!fault.empty()) return fmt::format("row {} of {}: {}", r, rows, fault);
    }
    const auto guard = [](float v) { return v == kGuard; };
    const bool untouched = std::all_of(found.max.begin() + rows, found.max.end(), guard) &&
                           std::all_of(found.sum.begin() + rows, found.sum.end(), guard) &&
                           std::all_of(found.acc.begin() + rows * kLd, found.acc.end(), guard);
    if (!untouched) return fmt::format("{} rows: a state past the last was written", rows);
  }
  return "";
}

}  // namespace

std::vector<KernelCheck> CheckKernels(const Bf16Kernels& kernels) {
  Problem problem;
  Make(&problem);
  return {{"attend", DType::kBF16, CheckAttend(kernels, problem)},
          {"pack_queries", DType::kF32, CheckPackQueries(kernels, problem)},
          {"interleave", DType::kBF16, CheckInterleave(kernels, problem.blocks[0])},
          {"round_values", DType::kF32, CheckRoundValues(kernels, problem.blocks[0])},
          {"round_row", DType::kF32, CheckRoundRow(kernels)},
          {"all_finite", DType::kBF16, CheckAllFinite(kernels)}};
}

}  // namespace mla::attention
