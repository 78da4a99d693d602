// Invariance of products: a row's bits depend on its x and W alone, never on the rows beside it or on the workers.
// And that a product allocates nothing.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "ops/gemm.h"
#include "ops/ops_testing.h"
#include "testing/nodes.h"

namespace {
std::atomic<std::int64_t> allocations{0};
}  // namespace

// Not inlined: GCC would see free() beside new and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  void* p = std::malloc(bytes == 0 ? 1 : bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace mla {
namespace {

using ops::PackedFormat;

struct Case {
  Isa isa;
  PackedFormat format;
};

class GemmBitsTest : public ::testing::TestWithParam<Case> {};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Isa isa : testing::MachineIsas()) {
    cases.push_back({isa, PackedFormat::kF32});
    cases.push_back({isa, PackedFormat::kBF16});
  }
  return cases;
}

struct Shape {
  std::int64_t n, k;
};

TEST_P(GemmBitsTest, RowZeroIsTheSameForEveryMAndEveryThreadCount) {
  const auto& kernels = ops::KernelsFor(GetParam().isa);
  constexpr std::int64_t kRows = 1000;
  for (const Shape shape : {Shape{257, 65}, Shape{100, 128}, Shape{16, 33}, Shape{1025, 31}, Shape{40, 701},
                            Shape{72, 2091}}) {  // the last two: several blocks of k
    const auto x = testing::RandomFloats(kRows * shape.k, 21);
    const auto packed =
        testing::Pack(GetParam().format, testing::RandomFloats(shape.n * shape.k, 22), shape.n, shape.k);
    std::vector<float> one(static_cast<std::size_t>(shape.n));
    const auto serial = MakeThreadPool(1);
    testing::Products(
        *serial, kernels)({.x = x.data(), .ldx = shape.k, .y = one.data(), .ldy = shape.n, .m = 1, .w = packed.matrix});
    for (const int threads : {1, 2, 3, 8}) {
      const auto pool = MakeThreadPool(threads);
      for (const std::int64_t m : {1, 2, 3, 17, 64, 1000}) {
        std::vector<float> y(static_cast<std::size_t>(m * shape.n), testing::kQuietNan);
        testing::Products(
            *pool, kernels)({.x = x.data(), .ldx = shape.k, .y = y.data(), .ldy = shape.n, .m = m, .w = packed.matrix});
        ASSERT_TRUE(testing::SameBits(y.data(), one.data(), shape.n))
            << "n " << shape.n << " k " << shape.k << " m " << m << " threads " << threads;
      }
    }
  }
}

// Every size of the kernels' tiles, and the rows that are left beside them.
TEST_P(GemmBitsTest, RowsAreTheSameForEveryM) {
  constexpr std::int64_t kN = 50;
  constexpr std::int64_t kK = 67;
  constexpr std::int64_t kRows = 50;
  const auto x = testing::RandomFloats(kRows * kK, 41);
  const auto packed = testing::Pack(GetParam().format, testing::RandomFloats(kN * kK, 42), kN, kK);
  const auto pool = MakeThreadPool(1);
  testing::Products products(*pool, ops::KernelsFor(GetParam().isa));
  std::vector<float> alone(kRows * kN);
  for (std::int64_t r = 0; r < kRows; ++r) {
    products({.x = x.data() + r * kK, .ldx = kK, .y = alone.data() + r * kN, .ldy = kN, .m = 1, .w = packed.matrix});
  }
  for (std::int64_t m = 2; m <= kRows; ++m) {
    std::vector<float> y(static_cast<std::size_t>(m * kN), testing::kQuietNan);
    products({.x = x.data(), .ldx = kK, .y = y.data(), .ldy = kN, .m = m, .w = packed.matrix});
    EXPECT_TRUE(testing::SameBits(y.data(), alone.data(), m * kN)) << m;
  }
}

// Whoever's memory the weights lie near: two matrices at a time, one of them too small for a part to each node, by few
// and by many rows.
TEST_P(GemmBitsTest, AreTheSameOnAnyNumberOfMemoryNodes) {
  const auto& kernels = ops::KernelsFor(GetParam().isa);
  constexpr std::int64_t kRows = 200;
  constexpr Shape kLarge = {1025, 65};
  constexpr Shape kSmall = {40, 65};
  const auto x = testing::RandomFloats(kRows * kLarge.k, 31);
  const auto large =
      testing::Pack(GetParam().format, testing::RandomFloats(kLarge.n * kLarge.k, 32), kLarge.n, kLarge.k);
  const auto small =
      testing::Pack(GetParam().format, testing::RandomFloats(kSmall.n * kSmall.k, 33), kSmall.n, kSmall.k);
  for (const std::int64_t m : {1, 17, 200}) {
    std::vector<std::vector<float>> results;
    for (const int nodes : {1, 2, 3}) {
      for (const int threads : {1, 2, 3, 5}) {
        testing::NodesExecutor executor(threads, nodes);
        results.emplace_back(static_cast<std::size_t>(m * (kLarge.n + kSmall.n)), testing::kQuietNan);
        float* y = results.back().data();
        const ops::GemmProblem problems[] = {
            {.x = x.data(), .ldx = kLarge.k, .y = y, .ldy = kLarge.n, .m = m, .w = large.matrix},
            {.x = x.data(), .ldx = kLarge.k, .y = y + m * kLarge.n, .ldy = kSmall.n, .m = m, .w = small.matrix}};
        testing::Products(executor, kernels)(problems);
        ASSERT_TRUE(testing::SameBits(y, results.front().data(), m * (kLarge.n + kSmall.n)))
            << "m " << m << " threads " << threads << " nodes " << nodes;
      }
    }
  }
}

// Each row of a batch alone, and at another place in it.
TEST_P(GemmBitsTest, EveryRowOfABatchIsAsAlone) {
  const auto& kernels = ops::KernelsFor(GetParam().isa);
  constexpr std::int64_t kN = 129;
  constexpr std::int64_t kK = 77;
  constexpr std::int64_t kM = 230;  // several blocks of rows
  const auto x = testing::RandomFloats(kM * kK, 23);
  const auto packed = testing::Pack(GetParam().format, testing::RandomFloats(kN * kK, 24), kN, kK);
  const auto pool = MakeThreadPool(3);
  std::vector<float> batch(kM * kN);
  testing::Products(*pool,
                    kernels)({.x = x.data(), .ldx = kK, .y = batch.data(), .ldy = kN, .m = kM, .w = packed.matrix});
  std::vector<std::int32_t> reversed;
  for (std::int32_t r = kM - 1; r >= 0; --r) reversed.push_back(r);
  std::vector<float> turned(kM * kN);
  testing::Products(*pool, kernels)({.x = x.data(),
                                     .ldx = kK,
                                     .y = turned.data(),
                                     .ldy = kN,
                                     .m = kM,
                                     .w = packed.matrix,
                                     .x_rows = reversed.data()});
  for (std::int64_t r = 0; r < kM; ++r) {
    std::vector<float> alone(kN);
    testing::Products(
        *pool, kernels)({.x = x.data() + r * kK, .ldx = kK, .y = alone.data(), .ldy = kN, .m = 1, .w = packed.matrix});
    EXPECT_TRUE(testing::SameBits(alone.data(), batch.data() + r * kN, kN)) << r;
    EXPECT_TRUE(testing::SameBits(alone.data(), turned.data() + (kM - 1 - r) * kN, kN)) << r;
  }
}

// Numbers of rows for which kernels cut k and outputs in other ways: each in several parts at once.
TEST_P(GemmBitsTest, RowsInEveryCutAreAsAlone) {
  struct Cut {
    std::int64_t m, n, k;
  };
  const auto pool = MakeThreadPool(1);
  testing::Products products(*pool, ops::KernelsFor(GetParam().isa));
  for (const Cut c : {Cut{50, 100, 1100}, Cut{97, 300, 1100}, Cut{250, 300, 1100}, Cut{520, 1100, 840}}) {
    const auto x = testing::RandomFloats(c.m * c.k, 41);
    const auto packed = testing::Pack(GetParam().format, testing::RandomFloats(c.n * c.k, 42), c.n, c.k);
    std::vector<float> y(static_cast<std::size_t>(c.m * c.n), testing::kQuietNan);
    products({.x = x.data(), .ldx = c.k, .y = y.data(), .ldy = c.n, .m = c.m, .w = packed.matrix});
    std::vector<float> alone(static_cast<std::size_t>(c.n));
    for (std::int64_t r = 0; r < c.m; r += 7) {
      products({.x = x.data() + r * c.k, .ldx = c.k, .y = alone.data(), .ldy = c.n, .m = 1, .w = packed.matrix});
      ASSERT_TRUE(testing::SameBits(alone.data(), y.data() + r * c.n, c.n)) << "m " << c.m << " row " << r;
    }
  }
}

// Inputs packed once for all tasks, by each task for itself, or some so and some so as the room allows; two problems
// with one input, and one whose rows end within a tile and a block of tiles.
TEST_P(GemmBitsTest, RoomForPackedInputsChangesNoBit) {
  constexpr std::int64_t kK = 1100;  // over a block of k
  constexpr std::int64_t kN = 40;
  const auto x = testing::RandomFloats(600 * kK, 27);
  const auto first = testing::Pack(GetParam().format, testing::RandomFloats(kN * kK, 28), kN, kK);
  const auto second = testing::Pack(GetParam().format, testing::RandomFloats(kN * kK, 29), kN, kK);
  const auto pool = MakeThreadPool(2);
  testing::Products products(*pool, ops::KernelsFor(GetParam().isa));
  const auto run = [&](std::int64_t room) {
    products.SetRoom(room);
    std::vector<float> y(kN * (277 + 277 + 5 + 600), testing::kQuietNan);
    float* to = y.data();
    std::vector<ops::GemmProblem> problems;
    for (const auto& [m, w] :
         {std::pair{277, first.matrix}, {277, second.matrix}, {5, first.matrix}, {600, second.matrix}}) {
      problems.push_back({.x = x.data(), .ldx = kK, .y = to, .ldy = kN, .m = m, .w = w});
      to += m * kN;
    }
    products(problems);
    return y;
  };
  const std::vector<float> none = run(0);
  const std::int64_t bytes = ops::PackedInputBytes(277, kK);
  for (const std::int64_t room : {bytes - 1, bytes, bytes + ops::PackedInputBytes(5, kK), testing::Products::kInputs}) {
    const std::vector<float> some = run(room);
    EXPECT_TRUE(testing::SameBits(none.data(), some.data(), std::ssize(none))) << room;
  }
}

// The order over k is ascending with one accumulator: for values whose sum is exact in no other order. Instructions
// that take several k at once have an order of their own.
TEST_P(GemmBitsTest, SumsInAscendingOrderOfK) {
  if (ops::KernelsFor(GetParam().isa).bf16_inputs && GetParam().format == PackedFormat::kBF16) return;
  const auto pool = MakeThreadPool(1);
  for (const std::int64_t k : {4, 700}) {  // in one block of k, and in several
    const std::vector<float> x(static_cast<std::size_t>(2 * k), 1.0F);
    std::vector<float> w(static_cast<std::size_t>(k));  // ((2^60 + 1) - 2^60) + 2^-10 = 2^-10
    w[0] = 0x1p60F;
    w[static_cast<std::size_t>(k / 2 - 1)] = 1.0F;
    w[static_cast<std::size_t>(k - 2)] = -0x1p60F;
    w[static_cast<std::size_t>(k - 1)] = 0x1p-10F;
    const auto packed = testing::Pack(GetParam().format, w, 1, k);
    for (const std::int64_t m : {1, 2}) {
      std::vector<float> y(static_cast<std::size_t>(m));
      testing::Products(*pool, ops::KernelsFor(GetParam().isa))(
          {.x = x.data(), .ldx = k, .y = y.data(), .ldy = 1, .m = m, .w = packed.matrix});
      EXPECT_EQ(y, std::vector<float>(static_cast<std::size_t>(m), 0x1p-10F)) << k;
    }
  }
}

TEST_P(GemmBitsTest, AllocatesNothing) {
  constexpr std::int64_t kN = 300;
  constexpr std::int64_t kK = 64;
  const auto x = testing::RandomFloats(100 * kK, 25);
  const auto packed = testing::Pack(GetParam().format, testing::RandomFloats(kN * kK, 26), kN, kK);
  std::vector<float> y(100 * kN);
  const auto pool = MakeThreadPool(3);
  testing::Products products(*pool, ops::KernelsFor(GetParam().isa));
  for (const std::int64_t m : {1, 100}) {
    const std::int64_t before = allocations;
    products({.x = x.data(), .ldx = kK, .y = y.data(), .ldy = kN, .m = m, .w = packed.matrix});
    EXPECT_EQ(allocations - before, 0);
  }
  const std::int64_t before = allocations;
  EXPECT_EQ(std::vector<int>(10, 1)[9], 1);
  EXPECT_EQ(allocations - before, 1) << "the counter counts";
}

INSTANTIATE_TEST_SUITE_P(Isa, GemmBitsTest, ::testing::ValuesIn(Cases()), [](const auto& test) {
  return std::string(IsaName(test.param.isa)) + "_" + testing::FormatName(test.param.format);
});

}  // namespace
}  // namespace mla
