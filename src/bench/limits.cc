#include "bench/limits.h"

#include "base/buffer.h"
#include "bench/random_fill.h"
#include "bench/random_weights.h"

namespace mla::bench {
namespace {

constexpr int kPeakSamples = 5;
constexpr int kFewestReads = 3;
constexpr double kReadSeconds = 0.1;  // of each size

Summary ReadsOf(Probe& probe, std::span<const std::byte> data) {
  std::vector<double> rates;
  const auto size = static_cast<std::int64_t>(data.size());
  probe.ReadSeconds(data);  // into the caches, where it fits one
  for (double spent = 0; spent < kReadSeconds || std::ssize(rates) < kFewestReads;) {
    const double seconds = probe.ReadSeconds(data);
    rates.push_back(static_cast<double>(size) / seconds);
    spent += seconds;
  }
  return Summarise(rates);
}

}  // namespace

std::vector<std::int64_t> ReadSizes(std::int64_t streamed) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = std::int64_t{1} << 20; size < streamed; size *= 8) sizes.push_back(size);
  sizes.push_back(streamed);
  return sizes;
}

Result<MachineLimits> MeasureLimits(Probe& probe, const CpuInfo& cpu, std::span<const std::int64_t> sizes) {
  MachineLimits limits;
  for (const PeakKind kind : MachinePeaks(cpu)) {
    std::vector<double> rates;
    rates.reserve(kPeakSamples);
    for (int i = 0; i < kPeakSamples; ++i) rates.push_back(probe.Operations(kind));
    limits.peaks.push_back({kind, Summarise(rates)});
  }
  if (sizes.empty()) return limits;
  MLA_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(sizes.back(), "bench reads"));
  FillNormal(reinterpret_cast<float*>(buffer.data()), buffer.bytes() / 4, TensorKey(1, "reads"), probe.executor());
  for (const std::int64_t size : sizes) {
    limits.reads.push_back({size, ReadsOf(probe, {buffer.data(), static_cast<std::size_t>(size)})});
  }
  return limits;
}

}  // namespace mla::bench
