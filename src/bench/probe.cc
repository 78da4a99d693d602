#include "bench/probe.h"

#include <algorithm>
#include <random>

#include "base/check.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "bench/measure.h"
#include "mla/dtypes.h"

namespace mla::bench {
namespace {

constexpr int kRuns = 3;
constexpr std::int64_t kReadTasks = 4;  // a worker: as products are cut

constexpr std::array<PeakInfo, kPeakKinds> kInfos = {{
    {"fp32", "128-bit multiply and add"},
    {"fp32", "ymm FMA"},
    {"fp32", "zmm FMA"},
    {"bf16", "zmm vdpbf16ps"},
    {"bf16", "AMX tdpbf16ps"},
    {"int8", "zmm vpdpbusd"},
    {"int8", "AMX tdpbusd"},
}};

const PeakLoop& LoopOf(PeakKind kind) {
  switch (kind) {
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
    case PeakKind::kF32Avx2: return kPeakF32Avx2;
    case PeakKind::kF32Avx512: return kPeakF32Avx512;
    case PeakKind::kBf16Avx512: return kPeakBf16Avx512;
    case PeakKind::kBf16Amx: return kPeakBf16Amx;
    case PeakKind::kInt8Avx512: return kPeakInt8Avx512;
    case PeakKind::kInt8Amx: return kPeakInt8Amx;
#endif
    default: break;
  }
  MLA_CHECK(kind == PeakKind::kF32Portable);
  return kPeakF32Portable;
}

bool Has(const CpuInfo& cpu, PeakKind kind) {
  switch (kind) {
    case PeakKind::kF32Portable: return true;
    case PeakKind::kF32Avx2: return cpu.Has(Isa::kAvx2);
    case PeakKind::kF32Avx512: return cpu.Has(Isa::kAvx512);
    case PeakKind::kBf16Avx512: return cpu.Has(Isa::kAvx512Bf16);
    case PeakKind::kBf16Amx: return cpu.Has(Isa::kAmx);
    case PeakKind::kInt8Avx512: return cpu.Has(Isa::kAvx512) && cpu.avx512_vnni;
    case PeakKind::kInt8Amx: return cpu.Has(Isa::kAmx) && cpu.amx_int8;
  }
  return false;
}

ReadLoop FastestRead(const CpuInfo& cpu) {
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  if (cpu.Has(Isa::kAvx512)) return ReadAvx512;
  if (cpu.Has(Isa::kAvx2)) return ReadAvx2;
#endif
  return ReadPortable;
}

std::unique_ptr<PeakData> RandomPeakData() {
  auto data = std::make_unique<PeakData>();
  std::mt19937 random(1);
  std::uniform_real_distribution<float> size(0.25F, 0.95F);
  const auto draw = [&] { return (random() & 1) != 0 ? size(random) : -size(random); };
  for (float& x : data->f32) x = draw();
  for (std::uint16_t& x : data->bf16) x = Bf16FromFloat(draw());
  for (std::uint8_t& x : data->int8) x = static_cast<std::uint8_t>(random() | 1U);
  return data;
}

}  // namespace

const PeakInfo& PeakInfoOf(PeakKind kind) { return kInfos[static_cast<std::size_t>(kind)]; }

std::vector<PeakKind> MachinePeaks(const CpuInfo& cpu) {
  std::vector<PeakKind> kinds;
  for (std::size_t i = 0; i < kPeakKinds; ++i) {
    if (Has(cpu, static_cast<PeakKind>(i))) kinds.push_back(static_cast<PeakKind>(i));
  }
  return kinds;
}

PeakKind PeakFor(Isa isa, ops::PackedFormat format) {
  const bool f32 = format == ops::PackedFormat::kF32;
  switch (isa) {
    case Isa::kPortable: return PeakKind::kF32Portable;
    case Isa::kAvx2: return PeakKind::kF32Avx2;
    case Isa::kAvx512: return PeakKind::kF32Avx512;
    case Isa::kAvx512Bf16: return f32 ? PeakKind::kF32Avx512 : PeakKind::kBf16Avx512;
    case Isa::kAmx: return f32 ? PeakKind::kF32Avx512 : PeakKind::kBf16Amx;
  }
  return PeakKind::kF32Portable;
}

Probe::Probe(Executor& executor, const CpuInfo& cpu, double run_seconds)
    : executor_(executor),
      run_seconds_(run_seconds),
      read_(FastestRead(cpu)),
      data_(RandomPeakData()),
      sinks_(static_cast<std::size_t>(executor.workers())) {}

// Each worker runs the loop. Returns seconds.
double Probe::RunLoop(const PeakLoop& loop, std::int64_t rounds) {
  const auto begin = Clock::now();
  ParallelFor(executor_, executor_.workers(), [&](std::int64_t /*task*/, int worker) {
    loop.run(rounds, data_.get(), &sinks_[static_cast<std::size_t>(worker)]);
  });
  return Since(begin);
}

// So many that a run takes run_seconds when nothing disturbs it: the best of a few tries counts.
std::int64_t Probe::RoundsFor(const PeakLoop& loop) {
  std::int64_t rounds = 256;
  for (;;) {
    double seconds = RunLoop(loop, rounds);
    for (int i = 1; i < kRuns; ++i) seconds = std::min(seconds, RunLoop(loop, rounds));
    if (seconds >= run_seconds_) return rounds;
    rounds *= 2;
  }
}

double Probe::Operations(PeakKind kind) {
  const PeakLoop& loop = LoopOf(kind);
  std::int64_t& rounds = rounds_[static_cast<std::size_t>(kind)];
  if (rounds == 0) rounds = RoundsFor(loop);
  std::array<double, kRuns> seconds{};
  for (double& s : seconds) s = RunLoop(loop, rounds);
  // Rounds that were chosen while the machine was busy are too few once it is not.
  const std::int64_t measured = rounds;
  if (*std::min_element(seconds.begin(), seconds.end()) < run_seconds_) rounds *= 2;
  return static_cast<double>(loop.operations) * static_cast<double>(measured) * executor_.workers() /
         Quantile(seconds, 0.5);
}

double Probe::ReadSeconds(std::span<const std::byte> data) {
  const auto lines = static_cast<std::int64_t>(data.size() / 64);
  const std::int64_t tasks = executor_.workers() * kReadTasks;
  const auto begin = Clock::now();
  const auto multiply_adds = static_cast<double>(data.size()) / 2;  // of one row with bf16 weights
  ParallelForWork(executor_, tasks, multiply_adds, [&](std::int64_t task, int worker) {
    const std::int64_t first = lines * task / tasks * 64;
    const std::int64_t end = lines * (task + 1) / tasks * 64;
    read_(reinterpret_cast<const char*>(data.data()) + first, end - first, &sinks_[static_cast<std::size_t>(worker)]);
  });
  return Since(begin);
}

double Probe::ReadRate(std::span<const std::byte> data) {
  const std::span<const std::byte> whole = data.first(data.size() / 64 * 64);
  return static_cast<double>(whole.size()) / ReadSeconds(whole);
}

}  // namespace mla::bench
