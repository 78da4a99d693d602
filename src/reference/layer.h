// One transformer layer on the rows of one sequence, in the explicit form: keys and values of every head are expanded
// from the latent and kept.
#ifndef MLA_REFERENCE_LAYER_H_
#define MLA_REFERENCE_LAYER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "contract/config.h"
#include "reference/rope.h"
#include "reference/vector_math.h"
#include "reference/weights.h"

namespace mla::reference {

// What a layer remembers of a sequence of S tokens, head by head.
struct LayerCache {
  std::vector<std::vector<double>> keys;    // [H][S, N+P]
  std::vector<std::vector<double>> values;  // [H][S, V]
};
LayerCache EmptyCache(const contract::ModelConfig& config);

// x [T, hidden] -> [T, hidden], the residual stream before and after the layer. `angles` [T] belong to the rows'
// positions; the cache holds the S - T tokens before them and receives these.
Matrix LayerForward(const contract::ModelConfig& config, const LayerWeights& weights,
                    std::span<const RopeAngles> angles, const Matrix& x, LayerCache& cache);

}  // namespace mla::reference

#endif  // MLA_REFERENCE_LAYER_H_
