// What products are counted as, for who asks.
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "ops/ops_testing.h"

namespace mla::testing {
namespace {

struct Problem {
  Packed packed;
  std::vector<float> x;
  std::vector<float> y;

  Problem(std::int64_t m, std::int64_t n, std::int64_t k)
      : packed(Pack(ops::PackedFormat::kBF16, RandomFloats(n * k, 1), n, k)),
        x(RandomFloats(m * k, 2)),
        y(static_cast<std::size_t>(m * n)) {}
  ops::GemmProblem Of(std::int64_t m) {
    return {x.data(), packed.matrix.k, y.data(), packed.matrix.n, m, packed.matrix};
  }
  std::span<const std::byte> memory() const {
    return {packed.buffer.data(), static_cast<std::size_t>(packed.buffer.bytes())};
  }
};

TEST(GemmCounts, OperationsAndBytes) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  const ops::OpKernels& kernels = ops::KernelsFor(DetectCpu().best());
  Buffer scratch = std::move(Buffer::Allocate(pool->workers() * ops::kGemmScratch, "scratch")).value();
  Problem a(7, 40, 33);
  Problem b(7, 16, 64);
  ops::GemmCounts counts;
  counts.loaded = a.memory();
  const ops::GemmProblem problems[] = {a.Of(7), a.Of(0), b.Of(3)};
  ops::Gemm({*pool, kernels, {scratch.data()}, &counts}, problems);
  EXPECT_EQ(counts.operations, 2.0 * (7 * 40 * 33 + 3 * 16 * 64));
  EXPECT_EQ(counts.weight_bytes, a.packed.matrix.bytes() + b.packed.matrix.bytes());
  EXPECT_GT(counts.seconds, 0);
  // b's weights lie elsewhere than those that were loaded; no rows read none.
  EXPECT_EQ(counts.conversions, 1);
  ops::Gemm({*pool, kernels, {scratch.data()}, &counts}, a.Of(7));
  EXPECT_EQ(counts.operations, 2.0 * (2 * 7 * 40 * 33 + 3 * 16 * 64));
  EXPECT_EQ(counts.conversions, 1);
}

TEST(GemmCounts, ChangeNoBit) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  Buffer scratch = std::move(Buffer::Allocate(pool->workers() * ops::kGemmScratch, "scratch")).value();
  for (const Isa isa : MachineIsas()) {
    Problem plain(70, 100, 65);
    Problem counted(70, 100, 65);
    ops::GemmCounts counts;
    ops::Gemm({*pool, ops::KernelsFor(isa), {scratch.data()}}, plain.Of(70));
    ops::Gemm({*pool, ops::KernelsFor(isa), {scratch.data()}, &counts}, counted.Of(70));
    EXPECT_EQ(plain.y, counted.y) << IsaName(isa);
  }
}

}  // namespace
}  // namespace mla::testing
