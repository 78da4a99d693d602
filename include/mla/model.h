// A checkpoint in memory, ready to run.
#ifndef MLA_MODEL_H_
#define MLA_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mla/attention.h"
#include "mla/executor.h"
#include "mla/memory.h"
#include "mla/result.h"
#include "mla/sampling.h"

namespace mla {

struct LoadOptions {
  WeightDType weights = WeightDType::kFp8;
  // Bytes of memory that weights may take; 0: no bound. Refused before anything is allocated.
  std::int64_t memory = 0;
  HugePages huge_pages = HugePages::kAuto;  // of the weights
  // Tensors' bytes read so far and in all, from the loading thread. Does not throw.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// What a caller needs to know of a model. From config.json and generation_config.json.
struct ModelInfo {
  std::string model_type;
  MlaDims dims;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t max_position_embeddings = 0;
  std::optional<std::int32_t> bos_id;
  std::vector<std::int32_t> eos_ids;
  // The publisher's default sampling; temperature 0 (greedy) where there is none.
  SamplingParams sampling;
};

// Immutable after Load: any number of engines may read one model at the same time.
class Model {
 public:
  // Reads DIR/config.json, the safetensors files and DIR/generation_config.json, checks every tensor against the
  // config's contract, and packs the weights. Fails, in one line that names file and fault.
  static Result<Model> Load(const std::string& dir, const LoadOptions& options, Executor& executor);

  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  const ModelInfo& info() const;
  // Of config.json and the checkpoint: equal where both are, to all that tells checkpoints apart (names, types and
  // shapes of tensors, the first and last 4 KiB of each).
  std::uint64_t fingerprint() const;
  // Allocated for weights.
  std::int64_t weight_bytes() const;

  // The parts, for the library's own use: what Impl holds is not part of the interface.
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla

#endif  // MLA_MODEL_H_
