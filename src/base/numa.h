// NUMA: which processors stand beside which memory, and where a thread's new pages come from.
#ifndef MLA_BASE_NUMA_H_
#define MLA_BASE_NUMA_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/executor.h"

namespace mla {

// Processors that this thread may run on, ascending; empty where the system does not say.
std::vector<int> AllowedCpus();

// A kernel list such as "0-3,8,10-11", cut to those of `allowed` (ascending). Nothing where it is malformed. No number
// in it costs memory.
std::optional<std::vector<int>> ParseCpuList(std::string_view text, std::span<const int> allowed);

// The nodes that hold any of the `allowed` processors, by number, from Linux's folder of nodes: what has memory alone
// is left out. Empty, which means one node, where the folder is missing or malformed, one processor stands in two
// nodes, or there are more than kMaxNodes.
std::vector<NumaNode> ReadNumaNodes(std::span<const int> allowed,
                                    const std::string& folder = "/sys/devices/system/node");

// The node, as an index, of each of `threads` workers: in proportion to the nodes' processors, those of a node side by
// side; with at least as many threads as nodes, none is without. Precondition: threads and the sum of processors are
// positive.
std::vector<int> SpreadWorkers(int threads, std::span<const NumaNode> nodes);

// Keeps this thread to those processors. False, and nothing changed, where the system refuses.
bool PinThread(std::span<const int> cpus);

inline constexpr int kMostSystemNodes = 1024;  // for as many Linux can be built

// While it lives, new pages of this thread come from a node's memory where there is some (MPOL_PREFERRED). A system
// that refuses, as some containers do, leaves them where they would have come from.
class PreferNode {
 public:
  // Nothing is asked for a negative node.
  explicit PreferNode(int system_node);
  PreferNode(const PreferNode&) = delete;
  PreferNode& operator=(const PreferNode&) = delete;
  ~PreferNode();

 private:
  using Mask = unsigned long[kMostSystemNodes / (8 * sizeof(unsigned long))];
  bool changed_ = false;
  int old_mode_ = 0;
  Mask old_nodes_ = {};
};

}  // namespace mla

#endif  // MLA_BASE_NUMA_H_
