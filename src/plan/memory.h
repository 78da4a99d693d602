// What a deployment keeps in memory, rank by rank, and what fits.
#ifndef MLA_PLAN_MEMORY_H_
#define MLA_PLAN_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "mla/result.h"
#include "plan/ranks.h"
#include "plan/rows.h"
#include "plan/shape.h"

namespace mla::plan {

// What is planned for: a shape, and the checkpoint behind it where there is one.
struct Subject {
  Shape shape;
  std::optional<io::Checkpoint> checkpoint;
};
// Of a model folder, whose tensors are held against its config, or of a config.json. Fails as model::Open and
// ParseShape do.
Result<Subject> OpenSubject(const std::string& path);

struct MemoryOptions {
  RowFormat row;                             // FindRowFormat
  WeightDType weights = WeightDType::kFp8;   // as LoadOptions
  std::optional<std::int64_t> weight_bytes;  // stated, in place of counted: of one rank
  Ranks ranks;
  std::int64_t page_tokens = kDefaultPageTokens;
  std::int64_t draft_tokens = 0;  // that speculation adds to each sequence; MTP layers then have rows too
  std::int64_t prefill_chunk = 512;
  std::int64_t expand_bytes = std::int64_t{64} << 20;
  std::int64_t keep_bytes = 0;  // of a rank
  int workers = 1;
  std::int64_t reserve = 0;  // kept free
};

struct WeightBytes {
  std::string part;
  std::string dtype;
  std::int64_t bytes = 0;
};

// Bytes of one rank.
struct MemoryUse {
  std::vector<WeightBytes> weight_parts;
  bool weights_known = true;
  bool engines = false;  // weights, cache, workspace and tables are what Engine::Create and Model::Load allocate
  std::int64_t weights = 0;
  std::int64_t cache = 0;
  std::int64_t states = 0;     // of linear attention
  std::int64_t workspace = 0;  // of a step; an estimate where the engine does not run the model
  std::int64_t tables = 0;     // rope, page counts
  std::int64_t sequences = 0;  // page lists and token ids, by which prefixes are found
  std::int64_t buffers = 0;    // a send and a receive buffer of the largest collective
  std::int64_t reserve = 0;
  std::int64_t pages = 0;  // of the largest group of layers, of all its users
  std::int64_t total = 0;
};

class Planner {
 public:
  // Counts the weights. Fails where the model can't be cut so. `subject` outlives this.
  static Result<Planner> Create(const Subject& subject, const MemoryOptions& options);

  // Of `users` sequences of `context` tokens each, all ranks' users together. Fails where a number is out of the
  // engine's range (Engine::Create) or leaves 63 bits. Preconditions: both are positive.
  Result<MemoryUse> At(std::int64_t context, std::int64_t users) const;

  // The longest context of `users` sequences, the most sequences of `context` tokens, in `memory` bytes a rank; 0 where
  // none fits. Neither passes the model's positions or 2^20 users.
  std::int64_t LongestContext(std::int64_t users, std::int64_t memory) const;
  std::int64_t MostUsers(std::int64_t context, std::int64_t memory) const;

  const Shape& rank_shape() const { return rank_; }
  const MemoryOptions& options() const { return options_; }

 private:
  Planner(const Subject& subject, const MemoryOptions& options) : subject_(&subject), options_(options) {}
  bool Fits(std::int64_t context, std::int64_t users, std::int64_t memory) const;
  Status AddEngines(std::int64_t context, std::int64_t users, MemoryUse* use) const;
  Status AddEstimates(std::int64_t context, std::int64_t users, MemoryUse* use) const;
  Status AddCache(std::int64_t context, std::int64_t users, MemoryUse* use) const;

  const Subject* subject_;
  MemoryOptions options_;
  Shape rank_;
  std::vector<WeightBytes> weights_;
  bool weights_known_ = true;
};

// Fewest ranks by --tp alone, of those that divide the model, in which `users` sequences of `context` tokens fit
// `memory` bytes each; empty where up to 1,024 don't do.
std::optional<std::int64_t> RanksNeeded(const Subject& subject, MemoryOptions options, std::int64_t context,
                                        std::int64_t users, std::int64_t memory);

// Bytes that a rank's cache takes for one sequence of so many tokens, over all layers, in whole pages; and those of one
// more token, without.
Result<std::int64_t> SequenceBytes(const Shape& rank, const MemoryOptions& options, std::int64_t tokens);
Result<std::int64_t> TokenBytes(const Shape& rank, const RowFormat& row);

}  // namespace mla::plan

#endif  // MLA_PLAN_MEMORY_H_
