// Which part of a weight matrix lies near which workers.
#ifndef MLA_OPS_PLACEMENT_H_
#define MLA_OPS_PLACEMENT_H_

#include <cstdint>

#include "base/parallel.h"
#include "ops/packed.h"

namespace mla::ops {

// The first panel, of a matrix of n outputs, that lies near a node's workers; FirstPanelOf(shares, n, nodes()) is
// Panels(n). At groups of eight, so that packing's blocks of rows and the kernels' groups of panels end where a node's
// part does.
inline std::int64_t FirstPanelOf(const NodeShares& shares, std::int64_t n, int node) {
  constexpr std::int64_t kGroup = 8;
  return shares.Begin(Panels(n), node, kGroup);
}

}  // namespace mla::ops

#endif  // MLA_OPS_PLACEMENT_H_
