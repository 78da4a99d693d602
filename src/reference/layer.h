// One transformer layer on the rows of one sequence, in the explicit form: keys and values of every head are expanded
// from the latent and kept.
#ifndef MLA_REFERENCE_LAYER_H_
#define MLA_REFERENCE_LAYER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "contract/config.h"
#include "reference/rope.h"
#include "reference/rounding.h"
#include "reference/vector_math.h"
#include "reference/weights.h"

namespace mla::reference {

// What a layer remembers of a sequence of S tokens, head by head.
struct LayerCache {
  std::vector<std::vector<double>> keys;    // [H][S, N+P]
  std::vector<std::vector<double>> values;  // [H][S, V]
  std::vector<double> latents;              // [S, R], of a run with rounding alone
};
LayerCache EmptyCache(const contract::ModelConfig& config);

// The experts of each of a call's rows, best first.
using Choice = std::vector<std::vector<std::int64_t>>;

// What a run may have beside the plain computation.
struct LayerOptions {
  // Cache rows, inputs of products and the sums of products are rounded at random; null: float64 alone. The weights are
  // rounded already (TensorReader), if they are.
  Rounding* rounding = nullptr;
  const Choice* forced = nullptr;  // of a layer with experts: those to visit; null: the router's
  Choice* chosen = nullptr;        // receives those visited
  // Reads a routed expert where the layer was loaded without them. Valid until its next call.
  std::function<const MlpWeights&(std::int64_t expert)> expert;
};

// RmsNormRows; with rounding, the sum of squares is off as fp32's is: u sqrt(n) of itself, which the root halves.
Matrix NormRows(const Matrix& x, std::span<const double> weight, double eps, Rounding* rounding);

// x [T, hidden] -> [T, hidden], the residual stream before and after the layer. `angles` [T] belong to the rows'
// positions; the cache holds the S - T tokens before them and receives these.
Matrix LayerForward(const contract::ModelConfig& config, const LayerWeights& weights,
                    std::span<const RopeAngles> angles, const Matrix& x, LayerCache& cache,
                    const LayerOptions& options = {});

}  // namespace mla::reference

#endif  // MLA_REFERENCE_LAYER_H_
