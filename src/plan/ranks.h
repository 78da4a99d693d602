// A model spread over ranks: what each holds, and what they send each other in a step.
#ifndef MLA_PLAN_RANKS_H_
#define MLA_PLAN_RANKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "contract/config.h"
#include "mla/result.h"
#include "plan/shape.h"

namespace mla::plan {

struct Ranks {
  std::int64_t tp = 1;          // ranks that share heads, widths and vocabulary
  std::int64_t dp = 1;          // groups of tp ranks, each with users of its own
  std::int64_t dcp = 1;         // of the tp ranks, so many share out the cache's pages; divides tp
  bool spread_experts = false;  // whole experts over all tp * dp ranks, in place of a slice of each
  bool shard_latent = false;    // each of the tp ranks keeps R / tp channels of the latent, for all heads

  std::int64_t count() const { return tp * dp; }
};

// Fails, naming what does not divide what, where the model can't be cut so.
Status CheckRanks(const Shape& shape, const Ranks& ranks);

// One rank's share, as a model of its own: its heads, widths, vocabulary and experts. Precondition: CheckRanks.
Shape RankShape(const Shape& shape, const Ranks& ranks);
// The same of a config, all experts kept: what the engine's own sizing is asked. Parts that the two switches cut
// otherwise are in ExpertConfig and LatentConfig.
contract::ModelConfig RankConfig(const contract::ModelConfig& config, const Ranks& ranks);
contract::ModelConfig ExpertConfig(const contract::ModelConfig& config, const Ranks& ranks);
contract::ModelConfig LatentConfig(const contract::ModelConfig& config, const Ranks& ranks);

// How a part lies over the tp ranks: "split by heads over 8", "copied on 8", ...
struct Placement {
  std::string part;
  std::string how;
};
std::vector<Placement> PlacementsOf(const Shape& shape, const Ranks& ranks);

// A step: each of `sequences` sequences runs `rows` new rows over `keys` keys (the new ones counted).
struct Step {
  std::int64_t rows = 1;
  std::int64_t keys = 1;
  std::int64_t sequences = 1;
};

// One kind of collective, all layers of a step together. Numbers travel as fp32, which is what steps keep.
struct Collective {
  std::string name;
  std::string what;
  std::int64_t ranks = 1;    // that take part
  std::int64_t times = 0;    // a step
  std::int64_t payload = 0;  // bytes of one, as each rank holds it when it is whole
  std::int64_t sent =
      0;  // bytes that a rank sends in a step, by a ring: (n - 1) / n of the payload, twice that to reduce
};
// Of one group of tp ranks with that step; dp groups do the same side by side. Fails where bytes leave 63 bits.
Result<std::vector<Collective>> CollectivesOf(const Shape& shape, const Ranks& ranks, const Step& step);

}  // namespace mla::plan

#endif  // MLA_PLAN_RANKS_H_
