#include "base/numa.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <numeric>

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

namespace mla {
namespace {

// Sets of processors for as many as Linux can be built for.
constexpr int kMostCpus = 8192;
struct CpuSet {
  cpu_set_t sets[kMostCpus / CPU_SETSIZE] = {};
};

// A whole number without a sign, and nothing behind it.
std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || end != text.data() + text.size() || value < 0 || text.front() == '-') return std::nullopt;
  return value;
}

struct CpuRange {
  int first = 0;
  int last = 0;
};

std::optional<CpuRange> ParseRange(std::string_view text) {
  const std::size_t dash = text.find('-');
  if (text.empty() || dash == 0 || dash + 1 == text.size()) return std::nullopt;
  const auto first = ParseNumber(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseNumber(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return CpuRange{*first, *last};
}

// The number of a folder "node12".
std::optional<int> NodeNumber(const std::string& name) {
  constexpr std::string_view kPrefix = "node";
  if (name.size() <= kPrefix.size() || name.compare(0, kPrefix.size(), kPrefix) != 0) return std::nullopt;
  return ParseNumber(std::string_view(name).substr(kPrefix.size()));
}

bool SharesACpu(std::span<const NumaNode> nodes) {
  std::vector<int> all;
  for (const NumaNode& node : nodes) all.insert(all.end(), node.cpus.begin(), node.cpus.end());
  std::sort(all.begin(), all.end());
  return std::adjacent_find(all.begin(), all.end()) != all.end();
}

constexpr int kMaskLength = kMostSystemNodes + 1;  // the system calls take one more than there are bits

}  // namespace

std::vector<int> AllowedCpus() {
  CpuSet set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set.sets), set.sets) != 0) return cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(set.sets), set.sets)) cpus.push_back(cpu);
  }
  return cpus;
}

std::optional<std::vector<int>> ParseCpuList(std::string_view text, std::span<const int> allowed) {
  std::vector<int> cpus;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const auto range = ParseRange(text.substr(0, comma));
    if (!range || comma + 1 == text.size()) return std::nullopt;
    const auto begin = std::lower_bound(allowed.begin(), allowed.end(), range->first);
    const auto end = std::upper_bound(begin, allowed.end(), range->last);
    cpus.insert(cpus.end(), begin, end);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return cpus;
}

std::vector<NumaNode> ReadNumaNodes(std::span<const int> allowed, const std::string& folder) {
  std::vector<NumaNode> nodes;
  std::error_code fault;
  for (std::filesystem::directory_iterator at(folder, fault), end; !fault && at != end; at.increment(fault)) {
    const auto number = NodeNumber(at->path().filename().string());
    if (!number) continue;
    std::ifstream in(at->path() / "cpulist");
    std::string line;
    if (!in || (!std::getline(in, line) && !in.eof())) return {};
    auto cpus = ParseCpuList(line, allowed);
    if (!cpus) return {};
    if (!cpus->empty()) nodes.push_back({*number, std::move(*cpus)});
    if (std::ssize(nodes) > kMaxNodes) return {};
  }
  if (fault || SharesACpu(nodes)) return {};
  std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  return nodes;
}

std::vector<int> SpreadWorkers(int threads, std::span<const NumaNode> nodes) {
  std::int64_t all_cpus = 0;
  for (const NumaNode& node : nodes) all_cpus += std::ssize(node.cpus);
  MLA_CHECK(threads > 0 && all_cpus > 0);
  // Each further worker goes to the node with the most processors for each of its own and the next one; ties to the
  // first node. A node without a worker comes before those with one.
  std::vector<std::int64_t> workers(nodes.size(), 0);
  for (int i = 0; i < threads; ++i) {
    std::size_t best = 0;
    const auto better = [&](std::size_t a, std::size_t b) {
      const bool has_cpus = !nodes[a].cpus.empty();
      if ((workers[a] == 0) != (workers[b] == 0)) return workers[a] == 0 && has_cpus;
      return std::ssize(nodes[a].cpus) * (workers[b] + 1) > std::ssize(nodes[b].cpus) * (workers[a] + 1);
    };
    for (std::size_t node = 1; node < nodes.size(); ++node) {
      if (better(node, best)) best = node;
    }
    ++workers[best];
  }
  std::vector<int> node_of;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    node_of.insert(node_of.end(), static_cast<std::size_t>(workers[node]), static_cast<int>(node));
  }
  return node_of;
}

bool PinThread(std::span<const int> cpus) {
  CpuSet set;
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < kMostCpus) CPU_SET_S(cpu, sizeof(set.sets), set.sets);
  }
  return sched_setaffinity(0, sizeof(set.sets), set.sets) == 0;
}

PreferNode::PreferNode(int system_node) {
  if (system_node < 0 || system_node >= kMostSystemNodes) return;
  if (syscall(SYS_get_mempolicy, &old_mode_, old_nodes_, kMaskLength, nullptr, 0) != 0) return;
  constexpr int kWordBits = 8 * sizeof(unsigned long);
  Mask nodes = {};
  nodes[system_node / kWordBits] = 1UL << (system_node % kWordBits);
  changed_ = syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, kMaskLength) == 0;
}

PreferNode::~PreferNode() {
  if (changed_) syscall(SYS_set_mempolicy, old_mode_, old_nodes_, kMaskLength);
}

}  // namespace mla
