// What the benches find out, ready to be shown.
#ifndef MLA_BENCH_CASE_RESULT_H_
#define MLA_BENCH_CASE_RESULT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/profile.h"

namespace mla::bench {

// A kernel of a layer, timed by itself beside it.
struct KernelAlone {
  std::string name;  // "q_b", "attention"
  Summary seconds;
};

struct CaseResult {
  std::string name;       // "deepseek-v3 o"
  std::int64_t rows = 0;  // M
  std::int64_t n = 0;     // of one matrix; 0 for a layer of many
  std::int64_t k = 0;
  std::int64_t experts = 0;      // distinct ones that were read; 0 for one matrix
  std::int64_t keys = 0;         // of each request, of an attention; else, and of requests that differ, 0
  std::int64_t positions = 0;    // keys of all its requests together; else 0
  std::int64_t requests = 0;     // of an attention; else 0
  std::string format;            // of weights, or of an attention's cache rows
  std::int64_t working_set = 0;  // bytes that pass between two reads of a weight: beyond the caches it is streamed
  Work work;
  Measured measured;
  std::vector<KernelAlone> kernels;  // of a layer; else none
  // All of them, one after another: sums of one repeat each, so that what else the machine does falls on a layer and on
  // its kernels alike.
  Summary kernel_seconds;
  std::optional<ProfileResult> profile;  // where one was asked for

  Judgement judgement() const { return Judge(work, measured.rates, measured.seconds.median); }
  double operations() const { return work.operations + work.f32_operations; }
};

}  // namespace mla::bench

#endif  // MLA_BENCH_CASE_RESULT_H_
