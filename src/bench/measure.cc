#include "bench/measure.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/clock.h"

namespace mla::bench {
namespace {

constexpr int kRounds = 3;  // of repeats, with the limits measured around each

class RateMeans {
 public:
  void Add(Probe& probe, const Work& work, const Timed& timed) {
    sum_.peak += work.operations > 0 ? probe.Operations(work.peak) : 0;
    sum_.f32_peak += work.f32_operations > 0 ? probe.Operations(work.f32_peak) : 0;
    sum_.read += timed.read();
    ++count_;
  }
  Rates Mean() const { return {sum_.peak / count_, sum_.f32_peak / count_, sum_.read / count_}; }

 private:
  Rates sum_;
  double count_ = 0;
};

double TimeOnce(const Timed& timed) {
  if (timed.prepare) timed.prepare();
  const auto begin = Clock::now();
  timed.run();
  return Since(begin);
}

double Seconds(double amount, double rate) { return amount > 0 ? amount / rate : 0; }

}  // namespace

double Quantile(std::span<const double> samples, double q) {
  MLA_CHECK(!samples.empty());
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  const double at = static_cast<double>(sorted.size() - 1) * q;
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Summary Summarise(std::span<const double> samples) {
  return {Quantile(samples, 0.5), Quantile(samples, 0.1), Quantile(samples, 0.9), std::ssize(samples)};
}

const char* BoundName(Bound bound) { return bound == Bound::kCompute ? "compute" : "memory"; }

Judgement Judge(const Work& work, const Rates& rates, double seconds) {
  Judgement j;
  j.compute_seconds = Seconds(work.operations, rates.peak) + Seconds(work.f32_operations, rates.f32_peak);
  j.memory_seconds = Seconds(work.bytes, rates.read);
  j.bound = j.memory_seconds > j.compute_seconds ? Bound::kMemory : Bound::kCompute;
  j.share = std::max(j.compute_seconds, j.memory_seconds) / seconds;
  return j;
}

Measured MeasureCase(Probe& probe, const Work& work, const Timed& timed, const Repeats& repeats) {
  TimeOnce(timed);
  RateMeans means;
  std::vector<double> samples;
  double spent = 0;
  means.Add(probe, work, timed);
  for (int round = 1; round <= kRounds; ++round) {
    const double until = repeats.seconds * round / kRounds;
    const std::int64_t most = std::max(repeats.most, kFewestRepeats) * round / kRounds;
    do {
      samples.push_back(TimeOnce(timed));
      spent += samples.back();
    } while (spent < until && std::ssize(samples) < most);
    means.Add(probe, work, timed);
  }
  return {Summarise(samples), means.Mean()};
}

}  // namespace mla::bench
