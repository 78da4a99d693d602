// The loops behind the limits do the work that they claim: each lane of each sum is what that many multiply-adds give,
// and a read's xor is that of all its words.
#include "bench/peak_loops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/cpu_info.h"
#include "bench/probe.h"
#include "mla/dtypes.h"

namespace mla::bench {
namespace {

constexpr std::int64_t kRounds = 5;

const PeakData& Data() {
  static const PeakData data = [] {
    PeakData d{};
    std::mt19937 random(3);
    for (float& x : d.f32) x = static_cast<float>(static_cast<int>(random() % 255) - 127) / 128 + 1.0F / 512;
    for (std::uint16_t& x : d.bf16) x = Bf16FromFloat(static_cast<float>(static_cast<int>(random() % 15) - 7) / 8);
    for (std::uint8_t& x : d.int8) x = static_cast<std::uint8_t>(random() | 1U);
    return d;
  }();
  return data;
}

template <class T>
std::vector<T> Sums(const PeakLoop& loop, std::size_t lanes) {
  const auto sink = std::make_unique<PeakSink>();
  loop.run(kRounds, &Data(), sink.get());
  std::vector<T> out(lanes);
  std::memcpy(out.data(), sink->bytes, lanes * sizeof(T));
  return out;
}

// `width` lanes a sum; sum i starts at f32[first + i * step].
void ExpectFma(const PeakLoop& loop, int sums, int width, int step, bool fused) {
  EXPECT_EQ(loop.operations, 2 * sums * width);
  const std::vector<float> out = Sums<float>(loop, static_cast<std::size_t>(sums * width));
  for (int i = 0; i < sums * width; ++i) {
    const int lane = i % width;
    float sum = Data().f32[2 * width + i / width * step + lane];
    for (int r = 0; r < kRounds; ++r) {
      const float a = Data().f32[lane];
      const float b = Data().f32[width + lane];
      sum = fused ? std::fma(sum, a, b) : sum * a + b;
    }
    EXPECT_EQ(out[static_cast<std::size_t>(i)], sum) << i;
  }
}

TEST(PeakLoops, F32) {
  const CpuInfo cpu = DetectCpu();
  ExpectFma(kPeakF32Portable, 12, 4, 4, false);
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  if (cpu.Has(Isa::kAvx2)) ExpectFma(kPeakF32Avx2, 12, 8, 1, true);
  if (cpu.Has(Isa::kAvx512)) ExpectFma(kPeakF32Avx512, 16, 16, 1, true);
#endif
}

#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)

float Bf16At(std::size_t i) { return FloatFromBf16(Data().bf16[i]); }

// Operands are multiples of 1/8 below 1, sums begin at multiples of 1/512: all are exact, whatever the order.
TEST(PeakLoops, Bf16) {
  if (!DetectCpu().Has(Isa::kAvx512Bf16)) GTEST_SKIP() << "no AVX-512 BF16 here";
  EXPECT_EQ(kPeakBf16Avx512.operations, 16 * 16 * 2 * 2);
  const std::vector<float> out = Sums<float>(kPeakBf16Avx512, 256);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t lane = i % 16;
    double sum = Data().f32[i / 16 + lane];
    for (std::size_t j = 0; j < 2; ++j) sum += kRounds * Bf16At(2 * lane + j) * Bf16At(32 + 2 * lane + j);
    EXPECT_EQ(out[i], sum) << i;
  }
}

TEST(PeakLoops, Int8) {
  const CpuInfo cpu = DetectCpu();
  if (!cpu.Has(Isa::kAvx512) || !cpu.avx512_vnni) GTEST_SKIP() << "no AVX-512 VNNI here";
  EXPECT_EQ(kPeakInt8Avx512.operations, 16 * 16 * 4 * 2);
  const std::vector<std::int32_t> out = Sums<std::int32_t>(kPeakInt8Avx512, 256);
  for (std::size_t i = 0; i < 256; ++i) {
    std::int32_t dot = 0;
    for (std::size_t j = 4 * (i % 16); j < 4 * (i % 16) + 4; ++j) {
      dot += Data().int8[j] * static_cast<std::int8_t>(Data().int8[64 + j]);
    }
    EXPECT_EQ(out[i], static_cast<std::int32_t>(i / 16) + 1 + kRounds * dot) << i;
  }
}

// C [16, 16] of tile t is A of tile t / 2 times B of tile 2 + t % 2, B in groups of `group` neighbouring k.
void ExpectTiles(const std::function<double(std::size_t, std::size_t)>& product, const std::vector<double>& out) {
  for (std::size_t i = 0; i < 1024; ++i) {
    const std::size_t tile = i / 256;
    const std::size_t row = i / 16 % 16;
    const std::size_t column = i % 16;
    double sum = 0;
    for (std::size_t byte = 0; byte < 64; ++byte) {
      const std::size_t a = tile / 2 * 1024 + row * 64 + byte;
      const std::size_t b = (2 + tile % 2) * 1024 + byte / 4 * 64 + column * 4 + byte % 4;
      sum += product(a, b);
    }
    EXPECT_EQ(out[i], kRounds * sum) << i;
  }
}

TEST(PeakLoops, AmxBf16) {
  if (!DetectCpu().Has(Isa::kAmx)) GTEST_SKIP() << "no AMX here";
  EXPECT_EQ(kPeakBf16Amx.operations, 4 * 256 * 32 * 2);
  const std::vector<float> out = Sums<float>(kPeakBf16Amx, 1024);
  ExpectTiles(
      [](std::size_t a, std::size_t b) {
        return a % 2 == 0 ? static_cast<double>(Bf16At(a / 2)) * Bf16At(b / 2) : 0;  // a pair of bytes is one number
      },
      std::vector<double>(out.begin(), out.end()));
}

TEST(PeakLoops, AmxInt8) {
  const CpuInfo cpu = DetectCpu();
  if (!cpu.Has(Isa::kAmx) || !cpu.amx_int8) GTEST_SKIP() << "no AMX-INT8 here";
  EXPECT_EQ(kPeakInt8Amx.operations, 4 * 256 * 64 * 2);
  const std::vector<std::int32_t> out = Sums<std::int32_t>(kPeakInt8Amx, 1024);
  ExpectTiles(
      [](std::size_t a, std::size_t b) {
        return static_cast<double>(Data().int8[a]) * static_cast<std::int8_t>(Data().int8[b]);
      },
      std::vector<double>(out.begin(), out.end()));
}

#endif

std::uint64_t Xor(const void* data, std::size_t bytes) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(data) + i, 8);
    all ^= word;
  }
  return all;
}

TEST(ReadLoops, ReadEveryWordOnce) {
  std::vector<ReadLoop> loops = {ReadPortable};
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  const CpuInfo cpu = DetectCpu();
  if (cpu.Has(Isa::kAvx2)) loops.push_back(ReadAvx2);
  if (cpu.Has(Isa::kAvx512)) loops.push_back(ReadAvx512);
#endif
  std::mt19937_64 random(4);
  std::vector<std::uint64_t> words(8 * 41);
  for (std::uint64_t& word : words) word = random();
  for (std::size_t loop = 0; loop < loops.size(); ++loop) {
    for (const std::size_t lines : {0U, 1U, 3U, 4U, 7U, 41U}) {
      const auto sink = std::make_unique<PeakSink>();
      loops[loop](reinterpret_cast<const char*>(words.data()), static_cast<std::int64_t>(64 * lines), sink.get());
      EXPECT_EQ(Xor(sink->bytes, sizeof(sink->bytes)), Xor(words.data(), 64 * lines)) << loop << " " << lines;
    }
  }
}

TEST(Probe, HasARateForWhatTheMachineHas) {
  const auto pool = MakeThreadPool(2);
  const CpuInfo cpu = DetectCpu();
  Probe probe(*pool, cpu, 1e-5);
  const std::vector<PeakKind> kinds = MachinePeaks(cpu);
  EXPECT_EQ(kinds.front(), PeakKind::kF32Portable);
  for (const PeakKind kind : kinds) {
    const double rate = probe.Operations(kind);
    EXPECT_GT(rate, 0) << PeakInfoOf(kind).instruction;
    EXPECT_TRUE(std::isfinite(rate));
  }
  for (const Isa isa : kIsas) {
    if (!cpu.Has(isa)) continue;
    for (const auto format : {ops::PackedFormat::kF32, ops::PackedFormat::kBF16}) {
      EXPECT_EQ(std::count(kinds.begin(), kinds.end(), PeakFor(isa, format)), 1) << IsaName(isa);
    }
  }
}

}  // namespace
}  // namespace mla::bench
