#include "bench/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "bench/random_fill.h"

namespace mla::bench {
namespace {

constexpr std::array kFormats = {
    WeightFormat{"f32", ops::PackedFormat::kF32, DType::kF32},
    WeightFormat{"bf16", ops::PackedFormat::kBF16, DType::kBF16},
    WeightFormat{"fp8", ops::PackedFormat::kF8, DType::kF8E4M3},
};

constexpr std::int64_t kScaleBlock = 128;  // of fp8, as DeepSeek's: rows and columns of a scale

std::int64_t ScaleBlocks(std::int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; }
// Elements come first, scales of fp8 after them.
std::int64_t ScalesBegin(const WeightFormat& format, std::int64_t n, std::int64_t k) {
  return (n * k * static_cast<std::int64_t>(DTypeBytes(format.source)) + 63) / 64 * 64;
}

constexpr std::int64_t kPiece = 1 << 20;  // bytes of a task; a multiple of 4 elements of any type

std::int64_t Pieces(std::int64_t bytes) { return (bytes + kPiece - 1) / kPiece; }

// Draws `bytes` of elements.
void Draw(DType dtype, double deviation, std::uint64_t key, std::byte* out, std::int64_t bytes, Executor& executor) {
  std::array<double, kLevels> values = NormalQuantiles();
  for (double& value : values) value *= deviation;
  const ValueTable table(dtype, values);
  ParallelFor(executor, Pieces(bytes), [&](std::int64_t task, int /*worker*/) {
    const std::int64_t begin = task * kPiece;
    const auto size = static_cast<std::size_t>(std::min(kPiece, bytes - begin));
    table.Fill(key, begin / static_cast<std::int64_t>(DTypeBytes(dtype)), {out + begin, size});
  });
}

}  // namespace

std::span<const WeightFormat> WeightFormats() { return kFormats; }

std::optional<WeightFormat> FindWeightFormat(std::string_view name) {
  const auto* found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const WeightFormat& format) { return format.name == name; });
  return found == kFormats.end() ? std::nullopt : std::optional<WeightFormat>(*found);
}

ops::PackedMatrix ShapeOf(const WeightFormat& format, std::int64_t n, std::int64_t k) {
  return {format.format, n, k, nullptr, format.format == ops::PackedFormat::kF8 ? kScaleBlock : 0};
}

std::int64_t SourceBytes(const WeightFormat& format, std::int64_t n, std::int64_t k) {
  const std::int64_t scales = format.source == DType::kF8E4M3 ? ScaleBlocks(n) * ScaleBlocks(k) * 4 : 0;
  return ScalesBegin(format, n, k) + scales;
}

void FillWeights(const WeightFormat& format, std::byte* source, const ops::PackedMatrix& w, Executor& executor) {
  double deviation = 1 / std::sqrt(static_cast<double>(w.k));
  BlockScales scales;
  if (format.source == DType::kF8E4M3) {
    auto* out = reinterpret_cast<float*>(source + ScalesBegin(format, w.n, w.k));
    scales = {DType::kF32, reinterpret_cast<const std::byte*>(out), kScaleBlock, kScaleBlock};
    const double whole = 448 / LargestNormal();  // codes use their range, scales bring it back
    for (std::int64_t i = 0; i < ScaleBlocks(w.n) * ScaleBlocks(w.k); ++i) {
      out[i] = static_cast<float>(deviation / whole * (0.75 + 0.125 * static_cast<double>(i % 5)));
    }
    deviation = whole;
  }
  Draw(format.source, deviation, TensorKey(1, "weights"), source,
       w.n * w.k * static_cast<std::int64_t>(DTypeBytes(format.source)), executor);
  const ops::MatrixSource matrix = ops::MatrixSource::Dense(format.source, source, w.k, scales);
  ParallelFor(executor, ops::Panels(w.n),
              [&](std::int64_t panel, int /*worker*/) { ops::PackPanels(matrix, 0, w.n, w, panel, panel + 1); });
}

void CopyWeights(const ops::PackedMatrix& from, std::byte* to, Executor& executor) {
  ParallelFor(executor, Pieces(from.bytes()), [&](std::int64_t task, int /*worker*/) {
    const std::int64_t begin = task * kPiece;
    std::memcpy(to + begin, from.data + begin, static_cast<std::size_t>(std::min(kPiece, from.bytes() - begin)));
  });
}

void FillNormal(float* out, std::int64_t n, std::uint64_t key, Executor& executor) {
  Draw(DType::kF32, 1, key, reinterpret_cast<std::byte*>(out), n * 4, executor);
}

}  // namespace mla::bench
