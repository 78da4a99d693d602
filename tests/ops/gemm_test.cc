// Products against float64, on every instruction set of this machine; what they may and may not touch.
#include "ops/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "ops/ops_testing.h"

namespace mla {
namespace {

using ops::GemmProblem;
using ops::PackedFormat;
using testing::kQuietNan;
using testing::Packed;

class GemmTest : public ::testing::TestWithParam<Isa> {
 protected:
  void Run(const GemmProblem& problem) { testing::Products(*pool_, ops::KernelsFor(GetParam()))(problem); }
  std::unique_ptr<Executor> pool_ = MakeThreadPool(2);
};

// x [m, k] at stride ldx, whatever lies between rows being NaN: reading past a row's end would show.
struct Activations {
  std::int64_t ld;
  std::vector<float> data;

  Activations(std::int64_t m, std::int64_t k, std::int64_t ldx, std::uint32_t seed)
      : ld(ldx), data(static_cast<std::size_t>(m * ldx), kQuietNan) {
    const auto values = testing::RandomFloats(m * k, seed);
    for (std::int64_t r = 0; r < m; ++r) std::copy_n(values.begin() + r * k, k, data.begin() + r * ldx);
  }
  const float* Row(std::int64_t r) const { return data.data() + r * ld; }
};

// y [rows, n] at stride ldy with a margin before, behind and between; all of it a known value.
class GuardedOutput {
 public:
  static constexpr float kGuard = -12345.5F;
  static constexpr std::int64_t kMargin = 64;

  GuardedOutput(std::int64_t rows, std::int64_t n, std::int64_t ldy)
      : rows_(rows), n_(n), ld_(ldy), data_(static_cast<std::size_t>(2 * kMargin + rows * ldy), kGuard) {}
  float* data() { return data_.data() + kMargin; }
  std::int64_t ld() const { return ld_; }
  float At(std::int64_t r, std::int64_t i) const { return data_[static_cast<std::size_t>(kMargin + r * ld_ + i)]; }
  // Elements outside the rows of y that are not as they were.
  std::int64_t Touched() const {
    std::int64_t touched = 0;
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(data_.size()); ++at) {
      const std::int64_t in = at - kMargin;
      const bool inside = in >= 0 && in < rows_ * ld_ && in % ld_ < n_;
      if (!inside && data_[static_cast<std::size_t>(at)] != kGuard) ++touched;
    }
    return touched;
  }

 private:
  std::int64_t rows_, n_, ld_;
  std::vector<float> data_;
};

struct Exact {
  double sum = 0;
  double magnitude = 0;
};

// Dot products in float64 of the stored weights and of x as the kernels read it, [m, n].
std::vector<Exact> Reference(Isa isa, const Activations& x, std::int64_t m, const std::vector<float>& w,
                             PackedFormat format, std::int64_t n, std::int64_t k) {
  std::vector<Exact> out(static_cast<std::size_t>(m * n));
  std::vector<double> stored(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) stored[i] = testing::Stored(format, w[i]);
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t j = 0; j < n; ++j) {
      Exact& e = out[static_cast<std::size_t>(r * n + j)];
      for (std::int64_t i = 0; i < k; ++i) {
        const double term =
            static_cast<double>(testing::Read(isa, format, x.Row(r)[i])) * stored[static_cast<std::size_t>(j * k + i)];
        e.sum += term;
        e.magnitude += std::fabs(term);
      }
    }
  }
  return out;
}

// A sum of k products in floats, one accumulator: each product passes at most k roundings (its own, where multiply and
// add are apart, and those of the adds behind it; the first add is to zero and exact). 1.01 covers higher orders.
double Bound(std::int64_t k, double magnitude) { return 1.01 * static_cast<double>(k) * 0x1p-24 * magnitude; }

TEST_P(GemmTest, IsTheProductWithinItsRoundings) {
  const std::vector<std::int64_t> ms = {1, 2, 3, 5, 6, 7, 17, 64, 100};
  for (const PackedFormat format : testing::kFormats) {
    for (const std::int64_t n : {1, 15, 16, 17, 63, 64, 65, 257}) {
      for (const std::int64_t k : {1, 2, 3, 31, 64, 129}) {
        const Activations x(ms.back(), k, k + 3, 11);
        const auto w = testing::RandomFloats(n * k, 13);
        const Packed packed = testing::Pack(format, w, n, k);
        const auto exact = Reference(GetParam(), x, ms.back(), w, format, n, k);
        for (const std::int64_t m : ms) {
          GuardedOutput y(m, n, n + 5);
          Run({.x = x.Row(0), .ldx = x.ld, .y = y.data(), .ldy = y.ld(), .m = m, .w = packed.matrix});
          ASSERT_EQ(y.Touched(), 0) << testing::FormatName(format) << " n " << n << " k " << k << " m " << m;
          for (std::int64_t r = 0; r < m; ++r) {
            for (std::int64_t j = 0; j < n; ++j) {
              const Exact& e = exact[static_cast<std::size_t>(r * n + j)];
              ASSERT_LE(std::fabs(y.At(r, j) - e.sum), Bound(k, e.magnitude))
                  << testing::FormatName(format) << " n " << n << " k " << k << " m " << m << " at " << r << ", " << j;
            }
          }
        }
      }
    }
  }
}

// y = fl(scale * sum), or fl(y + fl(scale * sum)): bit for bit, in whole panels and in the last one.
TEST_P(GemmTest, ScaleAndAddRoundTheWholeSumOnceEach) {
  constexpr std::int64_t kN = 83;
  constexpr std::int64_t kK = 40;
  const Activations x(9, kK, kK, 1);
  const auto w = testing::RandomFloats(kN * kK, 2);
  for (const PackedFormat format : testing::kFormats) {
    const Packed packed = testing::Pack(format, w, kN, kK);
    for (const std::int64_t m : {1, 9}) {
      std::vector<float> sum(static_cast<std::size_t>(m * kN), kQuietNan);  // overwritten, not added to
      const auto before = testing::RandomFloats(m * kN, 3);
      Run({.x = x.Row(0), .ldx = x.ld, .y = sum.data(), .ldy = kN, .m = m, .w = packed.matrix});
      for (const float scale : {1.0F, 0.1778F, -3.0F}) {
        for (const bool add : {false, true}) {
          std::vector<float> y = before;
          GemmProblem p{.x = x.Row(0), .ldx = x.ld, .y = y.data(), .ldy = kN, .m = m, .w = packed.matrix};
          p.add = add;
          p.scale = scale;
          Run(p);
          for (std::size_t i = 0; i < y.size(); ++i) {
            const float scaled = sum[i] * scale;
            ASSERT_EQ(y[i], add ? before[i] + scaled : scaled) << scale << (add ? " add" : "") << " at " << i;
          }
        }
      }
    }
  }
}

TEST_P(GemmTest, GathersRowsOfXAndScattersRowsOfY) {
  constexpr std::int64_t kN = 33;
  constexpr std::int64_t kK = 21;
  const Activations x(12, kK, kK + 1, 4);
  const auto w = testing::RandomFloats(kN * kK, 5);
  const std::vector<std::int32_t> from = {11, 0, 3, 3, 7, 2, 11, 5};  // a row may serve twice
  const std::vector<std::int32_t> to = {9, 4, 0, 2, 8, 1, 12, 6};
  const auto m = static_cast<std::int64_t>(from.size());
  for (const PackedFormat format : testing::kFormats) {
    const Packed packed = testing::Pack(format, w, kN, kK);
    std::vector<float> plain(12 * kN);
    Run({.x = x.Row(0), .ldx = x.ld, .y = plain.data(), .ldy = kN, .m = 12, .w = packed.matrix});
    GuardedOutput y(13, kN, kN + 2);
    Run({.x = x.Row(0),
         .ldx = x.ld,
         .y = y.data(),
         .ldy = y.ld(),
         .m = m,
         .w = packed.matrix,
         .x_rows = from.data(),
         .y_rows = to.data()});
    EXPECT_EQ(y.Touched(), 0);
    for (std::int32_t row = 0; row < 13; ++row) {
      const auto slot = std::find(to.begin(), to.end(), row) - to.begin();
      for (std::int64_t j = 0; j < kN; ++j) {
        const float expected = slot == m
                                   ? GuardedOutput::kGuard
                                   : plain[static_cast<std::size_t>(from[static_cast<std::size_t>(slot)] * kN + j)];
        ASSERT_EQ(y.At(row, j), expected) << "row " << row;
      }
    }
  }
}

TEST_P(GemmTest, NanAndInfinityStayInTheirRow) {
  constexpr std::int64_t kN = 50;
  constexpr std::int64_t kK = 19;
  const Activations clean(14, kK, kK, 6);
  Activations dirty = clean;
  for (const std::int64_t r : {0, 4, 5, 13}) {
    std::fill_n(dirty.data.begin() + r * kK, kK, r == 5 ? std::numeric_limits<float>::infinity() : kQuietNan);
  }
  const auto w = testing::RandomFloats(kN * kK, 7);
  for (const PackedFormat format : testing::kFormats) {
    const Packed packed = testing::Pack(format, w, kN, kK);
    std::vector<float> y(14 * kN);
    std::vector<float> expected(14 * kN);
    Run({.x = dirty.Row(0), .ldx = kK, .y = y.data(), .ldy = kN, .m = 14, .w = packed.matrix});
    Run({.x = clean.Row(0), .ldx = kK, .y = expected.data(), .ldy = kN, .m = 14, .w = packed.matrix});
    for (std::int64_t r = 0; r < 14; ++r) {
      const float* row = y.data() + r * kN;
      if (r == 0 || r == 4 || r == 13) {
        EXPECT_TRUE(std::all_of(row, row + kN, [](float v) { return std::isnan(v); })) << r;
      } else if (r == 5) {
        EXPECT_TRUE(std::none_of(row, row + kN, [](float v) { return std::isfinite(v); }));
      } else {
        EXPECT_TRUE(testing::SameBits(row, expected.data() + r * kN, kN)) << r;
      }
    }
  }
}

TEST_P(GemmTest, SeveralProblemsAsOneRegionAreEachAsAlone) {
  struct Shape {
    std::int64_t m, n, k;
  };
  const std::vector<Shape> shapes = {{3, 40, 16}, {0, 40, 16}, {200, 17, 5}, {1, 1000, 30}, {4, 16, 0}};
  std::vector<Activations> x;
  std::vector<Packed> packed;
  std::vector<std::vector<float>> alone;
  std::vector<std::vector<float>> together;
  for (const Shape& s : shapes) {
    x.emplace_back(s.m, s.k, s.k, 8);
    packed.push_back(testing::Pack(PackedFormat::kBF16, testing::RandomFloats(s.n * s.k, 9), s.n, s.k));
    alone.emplace_back(static_cast<std::size_t>(s.m * s.n), kQuietNan);
    together.emplace_back(static_cast<std::size_t>(s.m * s.n), kQuietNan);
  }
  std::vector<GemmProblem> problems;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    GemmProblem p{.x = x[i].data.data(),
                  .ldx = shapes[i].k,
                  .y = alone[i].data(),
                  .ldy = shapes[i].n,
                  .m = shapes[i].m,
                  .w = packed[i].matrix};
    Run(p);
    p.y = together[i].data();
    problems.push_back(p);
  }
  testing::Products(*pool_, ops::KernelsFor(GetParam()))(problems);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    EXPECT_TRUE(testing::SameBits(alone[i].data(), together[i].data(), static_cast<std::int64_t>(alone[i].size())))
        << i;
  }
  // A sum over no inputs is zero.
  EXPECT_EQ(std::count(together[4].begin(), together[4].end(), 0.0F), 4 * 16);
}

INSTANTIATE_TEST_SUITE_P(Isa, GemmTest, ::testing::ValuesIn(testing::MachineIsas()),
                         [](const auto& test) { return std::string(IsaName(test.param)); });

}  // namespace
}  // namespace mla
