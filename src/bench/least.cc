#include "bench/least.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "attention/kept.h"
#include "attention/kernels.h"
#include "ops/packed.h"
#include "plan/rows.h"
#include "plan/weight_bytes.h"

namespace mla::bench {
namespace {

// What of a step is left out: positions that need no expansion, and logits.
struct LeftOut {
  std::int64_t expanded = 0;
  bool logits = false;
};

double LimitOf(const plan::PartWork& part, const LeastRates& rates) {
  if (part.name == plan::kRouterPart) return rates.router;
  const bool attends = part.kind == plan::RateKind::kMha || part.kind == plan::RateKind::kAbsorbed;
  return attends ? rates.attention : rates.weights;
}

Result<double> SecondsInForm(const LeastModel& model, const plan::Step& step, Form form, const LeastRates& rates,
                             const LeftOut& left_out) {
  MLA_ASSIGN_OR_RETURN(const std::vector<plan::PartWork> parts, plan::WorkOfStep(model.shape, step, form, model.kept));
  double seconds = 0;
  for (const plan::PartWork& part : parts) {
    if (left_out.logits && part.name == plan::kLogitsPart) continue;
    auto multiply_adds = static_cast<double>(part.multiply_adds);
    if (part.kind == plan::RateKind::kExpand) {  // all positions cost the same
      multiply_adds *= static_cast<double>(step.keys - left_out.expanded) / static_cast<double>(step.keys);
    }
    seconds += std::max(2 * multiply_adds / LimitOf(part, rates), static_cast<double>(part.bytes()) / rates.read);
  }
  return seconds;
}

// In the cheaper form; a tie is the absorbed one's, as it is where the engine chooses.
Result<LeastTime> CheaperOf(const LeastModel& model, const plan::Step& step, const LeastRates& rates,
                            const LeftOut& left_out) {
  MLA_ASSIGN_OR_RETURN(const double absorbed, SecondsInForm(model, step, Form::kAbsorbed, rates, left_out));
  MLA_ASSIGN_OR_RETURN(const double mha, SecondsInForm(model, step, Form::kMha, rates, left_out));
  return mha < absorbed ? LeastTime{mha, 0, 1} : LeastTime{absorbed, 1, 0};
}

// Bytes that pass in a measurement of the read rate, at least: a smaller buffer is read again and again.
constexpr double kLeastLimitSeconds = 8e-3;

}  // namespace

LeastModel MakeLeastModel(const contract::ModelConfig& config, WeightDType weights, DType kv_dtype, Isa isa,
                          std::int64_t keep_bytes) {
  const bool f32_rows = kv_dtype == DType::kF32;
  LeastModel model;
  model.shape = plan::ShapeOf(config);
  model.kept.product_bytes = plan::BytesOfParameter(model.shape, weights);
  model.kept.wide_bytes = std::max<std::int64_t>(2, model.kept.product_bytes);
  model.kept.row = *plan::FindRowFormat(f32_rows ? "f32" : "bf16");
  model.weights = PeakFor(isa, weights == WeightDType::kF32 ? ops::PackedFormat::kF32 : ops::PackedFormat::kBF16);
  model.attention = PeakFor(isa, f32_rows ? ops::PackedFormat::kF32 : ops::PackedFormat::kBF16);
  model.router = PeakFor(isa, ops::PackedFormat::kF32);
  const bool bf16 = !f32_rows && (isa == Isa::kAmx || isa == Isa::kAvx512Bf16);
  const std::int64_t segment = attention::KeptSegments::SegmentBytes(model.shape.groups[0].latent, bf16);
  model.keep_positions = keep_bytes / segment / model.shape.layers * attention::kSegmentKeys;
  return model;
}

Result<LeastTime> LeastOfStep(const LeastModel& model, const plan::Step& step, const LeastRates& rates) {
  return CheaperOf(model, step, rates, {});
}

Result<LeastTime> LeastOfPrompt(const LeastModel& model, std::int64_t cached, std::int64_t rows, std::int64_t chunk,
                                const LeastRates& rates) {
  LeastTime sum;
  std::int64_t expanded = 0;  // the first so many positions, and kept
  for (std::int64_t first = cached; first < cached + rows;) {
    const std::int64_t end = std::min(first + chunk, cached + rows);
    MLA_ASSIGN_OR_RETURN(const LeastTime step,
                         CheaperOf(model, {end - first, end, 1}, rates, {expanded, end < cached + rows}));
    sum.seconds += step.seconds;
    sum.absorbed_steps += step.absorbed_steps;
    sum.mha_steps += step.mha_steps;
    if (step.mha_steps > 0) expanded = std::min(end, model.keep_positions);
    first = end;
  }
  return sum;
}

LimitMeter::LimitMeter(Probe* probe, const LeastModel& model, std::span<const std::byte> memory)
    : LimitMeter(probe, model.weights, model.attention, model.router, memory) {}

void LimitMeter::Measure() {
  // Each instruction once: kinds are often the same.
  std::array<double, kPeakKinds> measured{};
  const auto rate = [&](PeakKind kind) {
    double& known = measured[static_cast<std::size_t>(kind)];
    if (known == 0) known = probe_->Operations(kind);
    return known;
  };
  sum_.weights += rate(weights_);
  sum_.attention += rate(attention_);
  sum_.router += rate(router_);
  double bytes = 0;
  double seconds = 0;
  while (seconds < kLeastLimitSeconds) {
    seconds += probe_->ReadSeconds(memory_);
    bytes += static_cast<double>(memory_.size());
  }
  sum_.read += bytes / seconds;
  ++count_;
}

LeastRates LimitMeter::Mean() const {
  return {sum_.weights / count_, sum_.attention / count_, sum_.router / count_, sum_.read / count_};
}

}  // namespace mla::bench
