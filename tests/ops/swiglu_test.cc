// Gate and up projections as one product that ends in silu(gate) * up: the bits of the two sums stored and silu_mul.
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/gemm.h"
#include "ops/ops_testing.h"

namespace mla {
namespace {

using ops::PackedFormat;
using testing::kQuietNan;
using testing::Packed;

// Gate and up [width, k] as weights of one product.
Packed PackSwiglu(PackedFormat format, const std::vector<float>& gate, const std::vector<float>& up, std::int64_t width,
                  std::int64_t k) {
  const std::int64_t n = ops::SwigluRows(width);
  Packed packed;
  packed.buffer = std::move(Buffer::Allocate(ops::PackedBytes(format, n, k), "packed")).value();
  packed.matrix = {format, n, k, packed.buffer.data()};
  ops::PackedMatrix part = {format, width, k, packed.buffer.data()};
  for (const std::vector<float>* w : {&gate, &up}) {
    const ops::MatrixSource source = {DType::kF32, reinterpret_cast<const std::byte*>(w->data()), k, 1};
    // In two calls, as threads would.
    const std::int64_t half = ops::Panels(width) / 2;
    ops::PackPanels(source, 0, width, part, half, ops::Panels(width), 2);
    ops::PackPanels(source, 0, width, part, 0, half, 2);
    part.data += ops::PanelBytes(format, k);
  }
  return packed;
}

struct Shape {
  std::int64_t width, k;
};

// One MLP's first half: weights both ways, rows of x, and the two-step result of the most rows.
class Case {
 public:
  Case(const ops::OpKernels& kernels, testing::Products& product, PackedFormat format, Shape shape, std::int64_t rows)
      : product_(product), shape_(shape), x_(testing::RandomFloats(rows * shape.k, 31)) {
    // Sums of both signs, beyond 30 where k is large: silu where it bends and where it is all but 0.
    const auto gate = testing::RandomFloats(shape.width * shape.k, 32);
    const auto up = testing::RandomFloats(shape.width * shape.k, 33);
    const Packed gate_alone = testing::Pack(format, gate, shape.width, shape.k);
    const Packed up_alone = testing::Pack(format, up, shape.width, shape.k);
    fused_ = PackSwiglu(format, gate, up, shape.width, shape.k);
    const auto size = static_cast<std::size_t>(rows * shape.width);
    two_steps_.resize(size);
    std::vector<float> ups(size);
    product({.x = x_.data(),
             .ldx = shape.k,
             .y = two_steps_.data(),
             .ldy = shape.width,
             .m = rows,
             .w = gate_alone.matrix});
    product({.x = x_.data(), .ldx = shape.k, .y = ups.data(), .ldy = shape.width, .m = rows, .w = up_alone.matrix});
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = two_steps_.data() + r * shape.width;
      kernels.silu_mul(row, ups.data() + r * shape.width, row, shape.width);
    }
  }

  // m rows from row `first` on, to y [m, width] at stride width + 3, with guards between.
  void ExpectFusedIsTheSame(std::int64_t first, std::int64_t m) const {
    constexpr float kGuard = -77;
    const std::int64_t ldy = shape_.width + 3;
    std::vector<float> y(static_cast<std::size_t>(m * ldy), kGuard);
    product_({.x = x_.data() + first * shape_.k,
              .ldx = shape_.k,
              .y = y.data(),
              .ldy = ldy,
              .m = m,
              .w = fused_.matrix,
              .swiglu = shape_.width});
    for (std::int64_t r = 0; r < m; ++r) {
      const float* row = y.data() + r * ldy;
      ASSERT_TRUE(testing::SameBits(row, two_steps_.data() + (first + r) * shape_.width, shape_.width))
          << "width " << shape_.width << " k " << shape_.k << " m " << m << " row " << r;
      for (std::int64_t i = shape_.width; i < ldy; ++i) ASSERT_EQ(row[i], kGuard) << "row " << r;
    }
  }

  const std::vector<float>& x() const { return x_; }
  const ops::PackedMatrix& fused() const { return fused_.matrix; }
  const std::vector<float>& two_steps() const { return two_steps_; }

 private:
  testing::Products& product_;
  Shape shape_;
  std::vector<float> x_;
  Packed fused_;
  std::vector<float> two_steps_;  // [rows, width]
};

class SwigluTest : public ::testing::TestWithParam<Isa> {
 protected:
  const ops::OpKernels& kernels_ = ops::KernelsFor(GetParam());
  std::unique_ptr<Executor> pool_ = MakeThreadPool(2);
  testing::Products product_{*pool_, kernels_};
};

TEST_P(SwigluTest, HasTheBitsOfTwoSteps) {
  for (const PackedFormat format : testing::kFormats) {
    // Below a panel, whole panels, tails; pairs of panels left over from every kernel's group; k odd and past a tile.
    for (const Shape shape : {Shape{1, 5}, Shape{7, 64}, Shape{16, 33}, Shape{31, 32}, Shape{48, 7}, Shape{100, 71},
                              Shape{257, 130}, Shape{16, 0}}) {
      const Case c(kernels_, product_, format, shape, 40);
      for (const std::int64_t m : {1, 2, 3, 5, 6, 7, 17, 33, 40}) c.ExpectFusedIsTheSame(0, m);
      c.ExpectFusedIsTheSame(39, 1);
    }
  }
}

// Beyond every kernel's blocks of rows, and of k.
TEST_P(SwigluTest, HasTheBitsOfTwoStepsForManyRows) {
  for (const PackedFormat format : testing::kFormats) {
    const Case tall(kernels_, product_, format, {83, 31}, 1000);
    for (const std::int64_t m : {96, 97, 512, 513, 1000}) tall.ExpectFusedIsTheSame(0, m);
    const Case deep(kernels_, product_, format, {40, 4200}, 35);
    for (const std::int64_t m : {1, 35}) deep.ExpectFusedIsTheSame(0, m);
  }
}

// As experts run: rows of x named, y's rows elsewhere, many problems in one region.
TEST_P(SwigluTest, GathersAndScattersInManyProblems) {
  constexpr std::int64_t kWidth = 69;
  constexpr std::int64_t kK = 45;
  constexpr std::int64_t kRows = 30;
  const std::vector<std::int32_t> from = {29, 3, 3, 11, 0, 17, 8, 8, 21};
  const std::vector<std::int32_t> to = {2, 0, 7, 5, 9, 1, 4, 8, 3};
  for (const PackedFormat format : testing::kFormats) {
    const Case c(kernels_, product_, format, {kWidth, kK}, kRows);
    std::vector<float> y(10 * kWidth, kQuietNan);
    std::vector<ops::GemmProblem> problems;
    for (const auto& [begin, count] : {std::pair{0, 1}, {1, 0}, {1, 6}, {7, 2}}) {
      problems.push_back({.x = c.x().data(),
                          .ldx = kK,
                          .y = y.data(),
                          .ldy = kWidth,
                          .m = count,
                          .w = c.fused(),
                          .x_rows = from.data() + begin,
                          .y_rows = to.data() + begin,
                          .swiglu = kWidth});
    }
    product_(problems);
    for (std::size_t i = 0; i < from.size(); ++i) {
      EXPECT_TRUE(testing::SameBits(y.data() + to[i] * kWidth, c.two_steps().data() + from[i] * kWidth, kWidth)) << i;
    }
    for (std::int64_t j = 0; j < kWidth; ++j) ASSERT_TRUE(std::isnan(y[static_cast<std::size_t>(6 * kWidth + j)]));
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, SwigluTest, ::testing::ValuesIn(testing::MachineIsas()),
                         [](const auto& test) { return std::string(IsaName(test.param)); });

}  // namespace
}  // namespace mla
