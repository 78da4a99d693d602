#include "base/buffer.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/huge_pages.h"

namespace mla {
namespace {

TEST(Buffer, IsZeroedAlignedAndOfTheSizeAskedFor) {
  for (const std::int64_t bytes : {1, 63, 4096, 4097, 5 << 20}) {
    auto made = Buffer::Allocate(bytes, "test");
    ASSERT_TRUE(made.ok()) << made.error().message;
    Buffer buffer = std::move(made).value();
    EXPECT_EQ(buffer.bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096, 0U);
    EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(buffer.data(), bytes, std::byte{0xff});  // writable to the last byte
  }
}

TEST(Buffer, OfHugePagesBeginsAtTheirBorder) {
  for (const HugePages pages : {HugePages::kAuto, HugePages::kOff}) {
    // Several, of lengths that the system would not align by itself: it lays them one below the other.
    std::vector<Buffer> buffers;
    for (const std::int64_t bytes : {kHugePageBytes, kHugePageBytes + 1, 3 * kHugePageBytes - 4096, 7777777L}) {
      buffers.push_back(std::move(Buffer::Allocate(bytes, "test", pages)).value());
      Buffer& buffer = buffers.back();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kHugePageBytes, 0U);
      std::fill_n(buffer.data(), bytes, std::byte{0xff});
      std::fill_n(buffer.data() + bytes - 1, 1, std::byte{0xff});
    }
  }
}

// What this process has in huge pages, or nothing where the system gives none.
std::optional<HugePageUse> Use() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(in, line) || line.find("[never]") != std::string::npos) return std::nullopt;
  return ReadHugePageUse();
}

TEST(Buffer, AsksForHugePagesWhereTheyAreWanted) {
  if (!Use()) GTEST_SKIP() << "no huge pages here";
  const auto pool = MakeThreadPool(2);
  const auto asked_by = [&](std::int64_t bytes, HugePages pages) {
    const HugePageUse before = *Use();
    Buffer buffer = std::move(Buffer::Allocate(bytes, "test", pages)).value();
    const HugePageUse mapped = *Use();
    FirstTouch(buffer, *pool);
    const HugePageUse touched = *Use();
    EXPECT_EQ(touched.asked, mapped.asked);
    EXPECT_EQ(touched.resident - mapped.resident, mapped.asked - before.asked) << "all of it is touched";
    EXPECT_LE(touched.huge, touched.resident);
    return mapped.asked - before.asked;
  };
  EXPECT_EQ(asked_by(8 << 20, HugePages::kAuto), 8 << 20);
  EXPECT_EQ(asked_by((8 << 20) + 1, HugePages::kAuto), (8 << 20) + 4096);
  EXPECT_EQ(asked_by(8 << 20, HugePages::kOff), 0);
  EXPECT_EQ(asked_by(kHugePageBytes - 1, HugePages::kAuto), 0);
}

TEST(Buffer, FromThePoolOfHugePagesOrAnErrorThatNamesIt) {
  const HugePagePool pool = ReadHugePagePool();
  const std::int64_t bytes = (pool.free + 1) * kHugePageBytes;
  const auto refused = Buffer::Allocate(bytes + 1, "weights", HugePages::kHugetlbfs);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message.rfind("weights: ", 0), 0U) << refused.error().message;
  EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
  // What is too small for one huge page never needs the pool.
  EXPECT_TRUE(Buffer::Allocate(kHugePageBytes - 1, "small", HugePages::kHugetlbfs).ok());
  if (pool.free < 3) return;
  const auto before = ReadHugePageUse();
  Buffer buffer = std::move(Buffer::Allocate(kHugePageBytes + 1, "weights", HugePages::kHugetlbfs)).value();
  EXPECT_EQ(buffer.bytes(), kHugePageBytes + 1);
  EXPECT_EQ(ReadHugePagePool().free, pool.free - 2) << "claimed before it is touched";
  std::fill_n(buffer.data(), buffer.bytes(), std::byte{1});
  EXPECT_EQ(ReadHugePageUse()->huge - before->huge, 2 * kHugePageBytes);
  buffer = Buffer();
  EXPECT_EQ(ReadHugePagePool().free, pool.free);
}

TEST(Buffer, FirstTouchLeavesZerosAndStaysWithin) {
  const auto pool = MakeThreadPool(3);
  Buffer buffer = std::move(Buffer::Allocate(5 << 20, "test")).value();
  // Borders within a page, and within 2 MiB.
  for (const std::int64_t begin : {0, 1, 4095, 4096, 2097151, 2097152, 3000000}) {
    for (const std::int64_t bytes : {0, 1, 4096, 4097, 2100000}) {
      std::fill_n(buffer.data(), buffer.bytes(), std::byte{7});
      std::fill_n(buffer.data() + begin, bytes, std::byte{0});
      FirstTouch(buffer.data() + begin, bytes, *pool);
      EXPECT_EQ(std::count(buffer.data(), buffer.data() + buffer.bytes(), std::byte{0}), bytes) << begin;
    }
  }
}

TEST(Buffer, ZeroBytesIsEmptyAndNoError) {
  auto made = Buffer::Allocate(0, "test");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->bytes(), 0);
}

TEST(Buffer, MovingHandsTheMemoryOver) {
  Buffer a = std::move(Buffer::Allocate(100, "a")).value();
  std::byte* const data = a.data();
  data[99] = std::byte{7};
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.bytes(), 100);
  // What a moved-from buffer says is the point.
  EXPECT_EQ(a.bytes(), 0);       // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  Buffer c = std::move(Buffer::Allocate(10, "c")).value();
  c = std::move(b);
  EXPECT_EQ(c.bytes(), 100);
  EXPECT_EQ(c.data()[99], std::byte{7});
}

TEST(Buffer, RefusesWhatTheSystemRefusesByName) {
  for (const std::int64_t bytes :
       {std::int64_t{1} << 52, std::int64_t{1} << 62, std::numeric_limits<std::int64_t>::max()}) {
    const auto made = Buffer::Allocate(bytes, "latent cache");
    ASSERT_FALSE(made.ok());
    const std::string& message = made.error().message;
    EXPECT_EQ(message.rfind("latent cache: ", 0), 0U) << message;
    EXPECT_NE(message.find(std::to_string(bytes)), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

struct Pieces {
  float* a = nullptr;
  std::byte* b = nullptr;
  std::int64_t* none = nullptr;
  std::int64_t* c = nullptr;
};

// What planning and execution would both call.
Pieces LayOut(Carver* carver) {
  Pieces p;
  p.a = carver->Take<float>(17);
  p.b = carver->Take<std::byte>(64);
  p.none = carver->Take<std::int64_t>(0);
  p.c = carver->Take<std::int64_t>(1);
  return p;
}

TEST(Carver, CarvesExactlyWhatItCounted) {
  Carver plan;
  const Pieces nothing = LayOut(&plan);
  EXPECT_EQ(nothing.a, nullptr);
  EXPECT_EQ(nothing.c, nullptr);
  EXPECT_EQ(plan.used(), 128 + 64 + 0 + 64);

  Buffer buffer = std::move(Buffer::Allocate(plan.used(), "test")).value();
  Carver carver(buffer);
  const Pieces p = LayOut(&carver);
  EXPECT_EQ(carver.used(), plan.used());
  EXPECT_EQ(reinterpret_cast<std::byte*>(p.a), buffer.data());
  EXPECT_EQ(p.b, buffer.data() + 128);
  EXPECT_EQ(reinterpret_cast<std::byte*>(p.c), buffer.data() + 192);
}

TEST(CarverDeathTest, TakingMoreThanPlannedIsOurBug) {
  Buffer buffer = std::move(Buffer::Allocate(128, "test")).value();
  Carver carver(buffer);
  carver.Take<float>(16);
  carver.Take<float>(16);
  EXPECT_DEATH(carver.Take<std::byte>(1), "192 vs 128");
}

}  // namespace
}  // namespace mla
