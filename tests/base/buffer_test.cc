#include "base/buffer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <gtest/gtest.h>

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
