// w_kc and w_vc: derived from kv_b_proj each time, from any dtype, whole.
#include "attention/kv_b.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/harness.h"

namespace mla::testing {
namespace {

using ::testing::HasSubstr;

constexpr MlaDims kDims{3, 7, 4, 13, 21};
constexpr std::int64_t kElements = 3 * 20 * 21;

// Bytes at an odd address, as a safetensors file may hold them.
struct Unaligned {
  std::vector<std::byte> storage;
  explicit Unaligned(const void* from, std::size_t bytes) : storage(bytes + 1) {
    std::memcpy(storage.data() + 1, from, bytes);
  }
  const std::byte* data() const { return storage.data() + 1; }
};

KvBWeights Pack(DType dtype, const std::byte* source, WeightDType keep, int workers = 1) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(workers);
  Result<KvBWeights> packed = KvBWeights::Pack(kDims, dtype, source, keep, *pool);
  EXPECT_TRUE(packed.ok());
  return std::move(packed).value();
}

// Element (output, input) of a packed matrix, by the layout that ops/packed.h states.
float PackedAt(const ops::PackedMatrix& m, std::int64_t output, std::int64_t input) {
  const std::int64_t panel = output / 16;
  const std::int64_t lane = output % 16;
  if (m.format == ops::PackedFormat::kF32) {
    return reinterpret_cast<const float*>(m.data)[(panel * m.k + input) * 16 + lane];
  }
  const auto* bits = reinterpret_cast<const Bf16Bits*>(m.data);
  return FloatFromBf16(bits[((panel * ((m.k + 1) / 2) + input / 2) * 16 + lane) * 2 + input % 2]);
}

// Every element of every head lies where the two forms look for it.
void ExpectHolds(const KvBWeights& packed, const std::vector<float>& kv_b) {
  const auto& impl = packed.impl();
  ASSERT_EQ(impl.absorb.size(), 3U);
  ASSERT_EQ(impl.expand.size(), 3U);
  ASSERT_EQ(impl.value.size(), 3U);
  for (std::size_t head = 0; head < 3; ++head) {
    for (std::int64_t r = 0; r < 21; ++r) {
      for (std::int64_t o = 0; o < 20; ++o) {
        const float want = kv_b[(head * 20 + static_cast<std::size_t>(o)) * 21 + static_cast<std::size_t>(r)];
        if (o < 7) {
          ASSERT_EQ(PackedAt(impl.absorb[head], r, o), want) << head << " " << o << " " << r;
          ASSERT_EQ(PackedAt(impl.expand[head], o, r), want) << head << " " << o << " " << r;
        } else {
          ASSERT_EQ(PackedAt(impl.value[head], o - 7, r), want) << head << " " << o << " " << r;
        }
      }
    }
  }
}

TEST(KvB, FromEveryDType) {
  std::mt19937_64 rng(51);
  const std::vector<float> values = RandomFloats(kElements, rng);
  const Unaligned f32(values.data(), values.size() * 4);
  ExpectHolds(Pack(DType::kF32, f32.data(), WeightDType::kF32), values);

  std::vector<float> rounded;
  std::vector<std::uint16_t> bits;
  for (const float x : values) {
    rounded.push_back(RoundToBf16(x));
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded.back()) >> 16));
  }
  const Unaligned bf16(bits.data(), bits.size() * 2);
  ExpectHolds(Pack(DType::kF32, f32.data(), WeightDType::kBF16), rounded);
  ExpectHolds(Pack(DType::kBF16, bf16.data(), WeightDType::kBF16), rounded);
  ExpectHolds(Pack(DType::kBF16, bf16.data(), WeightDType::kF32), rounded);

  // F16 halves with 11 significant bits: k / 1024 for k in [1024, 2048) is 0x3c00 + k - 1024.
  std::vector<float> halves;
  std::vector<float> halves_bf16;
  std::vector<std::uint16_t> half_bits;
  for (std::int64_t i = 0; i < kElements; ++i) {
    const auto k = static_cast<std::uint16_t>(rng() % 1024);
    half_bits.push_back(static_cast<std::uint16_t>(0x3c00 + k));
    halves.push_back(1.0F + static_cast<float>(k) / 1024);
    halves_bf16.push_back(RoundToBf16(halves.back()));
  }
  const Unaligned f16(half_bits.data(), half_bits.size() * 2);
  ExpectHolds(Pack(DType::kF16, f16.data(), WeightDType::kF32), halves);
  ExpectHolds(Pack(DType::kF16, f16.data(), WeightDType::kBF16), halves_bf16);
}

// Heads of 20 rows in blocks of 16 x 8: all but the first begin within a block, and R = 21 ends in a partial one.
struct Fp8Source {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;    // [4, 3]
  std::vector<float> products;  // exact: 4 bits times 6
  BlockScales view() const { return {DType::kF32, reinterpret_cast<const std::byte*>(scales.data()), 16, 8}; }
  const std::byte* data() const { return reinterpret_cast<const std::byte*>(codes.data()); }

  Fp8Source() {
    std::mt19937_64 rng(54);
    for (int i = 0; i < 4 * 3; ++i) scales.push_back(static_cast<float>(32 + rng() % 32) / 1024);
    for (std::size_t i = 0; i < kElements; ++i) {
      codes.push_back(static_cast<std::uint8_t>(rng() % 127 + rng() % 2 * 128));
      const std::size_t block = i / 21 / 16 * 3 + i % 21 / 8;
      products.push_back(FloatFromE4M3(codes.back()) * scales[block]);
    }
  }
};

TEST(KvB, FromFp8WhereHeadsStraddleBlocks) {
  const Fp8Source source;
  const std::unique_ptr<Executor> pool = MakeThreadPool(2);
  const auto pack = [&](WeightDType keep) {
    return std::move(KvBWeights::Pack(kDims, DType::kF8E4M3, source.data(), keep, *pool, source.view())).value();
  };
  ExpectHolds(pack(WeightDType::kF32), source.products);
  std::vector<float> rounded;
  for (const float x : source.products) rounded.push_back(RoundToBf16(x));
  ExpectHolds(pack(WeightDType::kBF16), rounded);
}

TEST(KvB, Fp8ThatCantBeUsedIsRefused) {
  const std::unique_ptr<Executor> pool = MakeThreadPool(1);
  Fp8Source source;
  const auto fault = [&](DType dtype, const BlockScales& scales) {
    const Result<KvBWeights> packed = KvBWeights::Pack(kDims, dtype, source.data(), WeightDType::kBF16, *pool, scales);
    return packed.ok() ? std::string() : packed.error().message;
  };
  EXPECT_EQ(fault(DType::kF8E4M3, source.view()), "");
  EXPECT_THAT(fault(DType::kF8E4M3, {}), HasSubstr("expected scales for F8_E4M3"));
  BlockScales scales = source.view();
  scales.block_rows = 0;
  EXPECT_THAT(fault(DType::kF8E4M3, scales), HasSubstr("blocks of at least 1 x 1"));
  scales = source.view();
  scales.dtype = DType::kF16;
  EXPECT_THAT(fault(DType::kF8E4M3, scales), HasSubstr("kv_b_proj scales: expected F32, BF16 or F8_E8M0, found F16"));
  EXPECT_THAT(fault(DType::kF8E8M0, {}), HasSubstr("found F8_E8M0"));
  source.scales[11] = -1;
  EXPECT_THAT(fault(DType::kF8E4M3, source.view()), HasSubstr("found -1 at [3, 2]"));
  source.scales[11] = 1;
  source.codes.back() = 0xff;
  EXPECT_THAT(fault(DType::kF8E4M3, source.view()), HasSubstr("kv_b_proj: expected numbers, found a NaN"));
  source.codes.back() = 0;
  std::vector<std::byte> f32(kElements * 4);
  const Result<KvBWeights> wide =
      KvBWeights::Pack(kDims, DType::kF32, f32.data(), WeightDType::kBF16, *pool, source.view());
  ASSERT_FALSE(wide.ok());
  EXPECT_THAT(wide.error().message, HasSubstr("expected scales for F8_E4M3 alone, found some for F32"));
}

TEST(KvB, PackingAgainGivesTheSameBytesAndLeavesTheSource) {
  std::mt19937_64 rng(52);
  const std::vector<float> values = RandomFloats(kElements, rng);
  const std::vector<float> before = values;
  const auto* source = reinterpret_cast<const std::byte*>(values.data());
  for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
    const KvBWeights first = Pack(DType::kF32, source, keep);
    const KvBWeights second = Pack(DType::kF32, source, keep, 3);
    ASSERT_EQ(first.bytes(), second.bytes());
    EXPECT_EQ(
        std::memcmp(first.impl().storage.data(), second.impl().storage.data(), static_cast<std::size_t>(first.bytes())),
        0);
  }
  EXPECT_EQ(values, before);
}

TEST(KvB, PlannedBytesAreAllocatedBytes) {
  std::mt19937_64 rng(53);
  const std::unique_ptr<Executor> pool = MakeThreadPool(1);
  for (const MlaDims& dims : {MlaDims{1, 1, 0, 1, 1}, kDims, MlaDims{4, 128, 64, 128, 512}}) {
    const TestWeights weights = RandomWeights(dims, WeightDType::kF32, rng);
    for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
      const Result<KvBWeights> packed =
          KvBWeights::Pack(dims, DType::kF32, reinterpret_cast<const std::byte*>(weights.raw.data()), keep, *pool);
      ASSERT_TRUE(packed.ok());
      EXPECT_EQ(packed->bytes(), KvBWeights::Bytes(dims, keep));
    }
  }
  // DeepSeek-V3, a layer in bf16: w_kc twice and w_vc once, with nothing to pad.
  EXPECT_EQ(KvBWeights::Bytes({128, 128, 64, 128, 512}, WeightDType::kBF16), std::int64_t{128} * 3 * 128 * 512 * 2);
}

}  // namespace
}  // namespace mla::testing
