// Synthetic checkpoints: random weights of a true shape, for sizing a machine before a download.
#ifndef MLA_BENCH_SYNTHETIC_H_
#define MLA_BENCH_SYNTHETIC_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/synthetic_config.h"
#include "io/safetensors.h"
#include "mla/executor.h"
#include "mla/result.h"

namespace mla::bench {

// A tensor to be drawn. Values are mean + deviation * z, z normal with variance 1; codes of fp8 are z over its largest
// value times 448; their scales are deviation times 2^u, u even in [-1/2, 1/2].
struct SyntheticTensor {
  enum class Kind : std::uint8_t { kValues, kCodes, kScales };
  io::SafetensorsSpec spec;
  Kind kind = Kind::kValues;
  double mean = 0;
  double deviation = 1;
  std::int64_t bytes() const;
};

// Weights that keep a network's numbers in range and make every part of it count. A product has variance 1 over its
// width, so that its outputs are as large as its inputs, but for
// - queries: larger, so that attention's scores have a standard deviation of 4: a softmax over 64 keys has then an
//   entropy of 1.3, a third of log 64. At 1 it is all but flat, and a fault in the keys shows nowhere;
// - the router: 1.5, so that experts lie apart; its bias 0.1;
// - embeddings: 1 over the config's scale for them, 0.1 where they are the head too; the head: logits with a standard
//   deviation of 4;
// - norms: 1 with a deviation of 0.1.
std::vector<SyntheticTensor> SyntheticTensors(const SyntheticConfig& config);

// A file of tensors [begin, end).
struct SyntheticShard {
  std::string name;
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct SyntheticPlan {
  SyntheticConfig config;
  std::uint64_t seed = 0;
  std::vector<SyntheticTensor> tensors;
  std::vector<SyntheticShard> shards;
  std::int64_t bytes = 0;  // of tensors
};

// Fails as MakeSyntheticConfig does. `shard_bytes`: of tensors in one file, at most, unless one alone is larger.
Result<SyntheticPlan> PlanSynthetic(const SyntheticOptions& options, std::int64_t shard_bytes);

// Writes the checkpoint as folder `out`: config, tokenizer, generation config, shards and their index. It is written
// beside `out` and renamed at the end; a run that fails or is stopped leaves nothing. The bytes depend on the plan
// alone, not on the executor. `go_on` is called with the bytes written and in all; false stops the run. Returns whether
// it was stopped. Fails where `out` exists, its folder does not, the disk has less room than is needed, or a write
// fails.
using GoOn = std::function<bool(std::int64_t done, std::int64_t total)>;
Result<bool> WriteSynthetic(const SyntheticPlan& plan, const std::string& out, Executor& executor, const GoOn& go_on);

}  // namespace mla::bench

#endif  // MLA_BENCH_SYNTHETIC_H_
