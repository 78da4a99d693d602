#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/buffer.h"
#include "base/check.h"
#include "mla/attention.h"

namespace mla {
namespace {

// The channel at which a full context makes `rotations` turns (YaRN, section 3.2).
double CorrectionDim(const RopeSpec& spec, double rotations) {
  const auto original = static_cast<double>(spec.original_max_position_embeddings);
  return static_cast<double>(spec.dim) * std::log(original / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(spec.theta));
}

// Radians a position, of each pair.
std::vector<double> Frequencies(const RopeSpec& spec, std::int64_t context) {
  const std::int64_t pairs = spec.dim / 2;
  std::vector<double> frequency(static_cast<std::size_t>(pairs));
  double low = 0;
  double high = 0;
  if (spec.scaling == RopeScaling::kYarn) {
    low = std::max(std::floor(CorrectionDim(spec, spec.beta_fast)), 0.0);
    high = std::min(std::ceil(CorrectionDim(spec, spec.beta_slow)), static_cast<double>(spec.dim - 1));
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    double f = std::pow(spec.theta, -2.0 * static_cast<double>(i) / static_cast<double>(spec.dim));
    if (spec.scaling == RopeScaling::kYarn) {
      // 0: this pair turns often enough to be left alone; 1: it is stretched by the whole factor. A ramp of no width
      // gets one of 1e-3, as in DeepSeek's code.
      const double width = high == low ? 1e-3 : high - low;
      const double ramp = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
      f = f / spec.factor * ramp + f * (1 - ramp);
    } else if (spec.scaling == RopeScaling::kLongrope) {
      f /= spec.factors(context)[static_cast<std::size_t>(i)];
    }
    frequency[static_cast<std::size_t>(i)] = f;
  }
  return frequency;
}

}  // namespace

struct RopeTable::Impl {
  RopeSpec spec;
  std::int64_t positions = 0;
  Buffer table;  // [positions][P/2][cos, sin]
};

RopeTable::RopeTable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RopeTable::RopeTable(RopeTable&&) noexcept = default;
RopeTable& RopeTable::operator=(RopeTable&&) noexcept = default;
RopeTable::~RopeTable() = default;

std::int64_t RopeTable::Bytes(const RopeSpec& spec, std::int64_t positions) {
  return spec.layout == RopeLayout::kNone ? 0 : positions * spec.dim * static_cast<std::int64_t>(sizeof(float));
}

Result<RopeTable> RopeTable::Create(const RopeSpec& spec, std::int64_t positions, HugePages huge_pages) {
  auto impl = std::make_unique<Impl>();
  impl->spec = spec;
  impl->positions = positions;
  if (spec.layout != RopeLayout::kNone) {
    MLA_CHECK(spec.dim > 0 && spec.dim % 2 == 0);
    MLA_ASSIGN_OR_RETURN(impl->table, Buffer::Allocate(Bytes(spec, positions), "rope table", huge_pages));
    if (spec.scaling == RopeScaling::kLongrope) {
      MLA_CHECK_EQ(static_cast<std::int64_t>(spec.factors(positions).size()), spec.dim / 2);
    }
    const std::vector<double> frequency = Frequencies(spec, positions);
    const double scale = CosSinScale(spec);
    auto* out = reinterpret_cast<float*>(impl->table.data());
    for (std::int64_t p = 0; p < positions; ++p) {
      for (const double f : frequency) {
        const double angle = static_cast<double>(p) * f;
        *out++ = static_cast<float>(std::cos(angle) * scale);
        *out++ = static_cast<float>(std::sin(angle) * scale);
      }
    }
  }
  return RopeTable(std::move(impl));
}

void RopeTable::Rotate(float* x, std::int64_t position) const {
  const RopeSpec& spec = impl_->spec;
  if (spec.layout == RopeLayout::kNone) return;
  MLA_CHECK_LT(position, impl_->positions);
  const std::int64_t pairs = spec.dim / 2;
  const float* t = reinterpret_cast<const float*>(impl_->table.data()) + position * spec.dim;
  const bool interleaved = spec.layout == RopeLayout::kInterleaved;
  for (std::int64_t i = 0; i < pairs; ++i) {
    float& a = x[interleaved ? 2 * i : i];
    float& b = x[interleaved ? 2 * i + 1 : i + pairs];
    const float cos = t[2 * i];
    const float sin = t[2 * i + 1];
    const float rotated = a * cos - b * sin;
    b = a * sin + b * cos;
    a = rotated;
  }
}

std::int64_t RopeTable::positions() const { return impl_->positions; }
std::int64_t RopeTable::bytes() const { return impl_->table.bytes(); }

}  // namespace mla
