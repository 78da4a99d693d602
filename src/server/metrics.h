// Counts and histograms of a server, in Prometheus' text format (version 0.0.4).
#ifndef MLA_SERVER_METRICS_H_
#define MLA_SERVER_METRICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "mla/engine.h"
#include "server/engine_loop.h"

namespace mla::server {

// Seconds, in buckets that double from 1 ms to 131 s.
class Histogram {
 public:
  static constexpr std::size_t kBuckets = 18;
  void Add(double seconds);
  void Write(std::string_view name, std::string_view help, std::string* out) const;

 private:
  std::array<std::int64_t, kBuckets + 1> counts_ = {};  // the last: all that is longer
  double sum_ = 0;
};

// Of the server's thread alone.
struct Metrics {
  std::map<int, std::int64_t> answers;  // by HTTP status
  std::int64_t left = 0;                // clients that left before their answer had ended
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  Histogram first_token;  // from a request's arrival
  Histogram between_tokens;
  Histogram step;
  Histogram mha_attention;       // of a step, all layers
  Histogram absorbed_attention;  // likewise
};

// What does not change while a server lives, and gauges of its own.
struct MetricsContext {
  MemoryPlan memory;
  std::string kernels;                // the table in use
  std::int64_t rejected_kernels = 0;  // faster ones that failed their self-test
  std::int64_t bytes_per_token = 0;
  std::int64_t resident_bytes = 0;
  std::size_t connections = 0;
};

std::string MetricsText(const Metrics& metrics, const LoopSnapshot& now, const MetricsContext& context);

}  // namespace mla::server

#endif  // MLA_SERVER_METRICS_H_
