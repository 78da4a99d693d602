// UsableCpus and UsableMemory: what affinity masks and cgroups leave of the machine; ResidentBytes: what we take of it.
#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <sched.h>
#include <unistd.h>

#include "base/cpu_info.h"

namespace mla {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::optional<std::string> ReadLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

std::optional<std::int64_t> ReadNumber(const std::string& path) {
  const auto line = ReadLine(path);
  if (!line) return std::nullopt;
  std::istringstream in(*line);
  std::int64_t value = 0;
  if (!(in >> value)) return std::nullopt;  // "max"
  return value;
}

struct Cgroup {
  std::string folder;
  bool v2 = false;
};

// A group and its parents, since each of them may hold a limit.
void AddWithParents(const std::string& root, std::string path, bool v2, std::vector<Cgroup>* out) {
  for (;;) {
    out->push_back({root + (path == "/" ? "" : path), v2});
    const auto slash = path.find_last_of('/');
    if (path.size() <= 1 || slash == std::string::npos) return;
    path = slash == 0 ? "/" : path.substr(0, slash);
  }
}

// The groups of a controller ("memory" or "cpu") that hold this process: version 2's line is "0::/path".
std::vector<Cgroup> CgroupsOf(const std::string& controller) {
  std::vector<Cgroup> groups;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (names.empty()) {
      AddWithParents("/sys/fs/cgroup", path, true, &groups);
    } else if (("," + names + ",").find("," + controller + ",") != std::string::npos) {
      AddWithParents("/sys/fs/cgroup/" + controller, path, false, &groups);
    }
  }
  return groups;
}

std::int64_t CgroupMemoryLeft() {
  std::int64_t left = kUnlimited;
  for (const Cgroup& group : CgroupsOf("memory")) {
    const auto limit = ReadNumber(group.folder + (group.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto used = ReadNumber(group.folder + (group.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
    const auto high = group.v2 ? ReadNumber(group.folder + "/memory.high") : std::nullopt;
    if (!limit && !high) continue;
    const std::int64_t bound = std::min(limit.value_or(kUnlimited), high.value_or(kUnlimited));
    // Page cache is charged to the group and can be reclaimed: count the file pages as free.
    std::int64_t reclaimable = 0;
    std::ifstream stat(group.folder + "/memory.stat");
    for (std::string key; stat >> key;) {
      std::int64_t value = 0;
      stat >> value;
      if (key == "inactive_file" || key == "active_file") reclaimable += value;
    }
    left = std::min(left, std::max<std::int64_t>(0, bound - std::max<std::int64_t>(0, used.value_or(0) - reclaimable)));
  }
  return left;
}

int CgroupCpus() {
  double cpus = std::numeric_limits<int>::max();
  for (const Cgroup& group : CgroupsOf("cpu")) {
    if (group.v2) {
      const auto line = ReadLine(group.folder + "/cpu.max");
      double quota = 0;
      double period = 0;
      if (line && std::istringstream(*line) >> quota >> period && period > 0) cpus = std::min(cpus, quota / period);
    } else {
      const auto quota = ReadNumber(group.folder + "/cpu.cfs_quota_us");
      const auto period = ReadNumber(group.folder + "/cpu.cfs_period_us");
      if (quota && period && *quota > 0 && *period > 0) {
        cpus = std::min(cpus, static_cast<double>(*quota) / static_cast<double>(*period));
      }
    }
  }
  if (cpus >= std::numeric_limits<int>::max()) return std::numeric_limits<int>::max();
  const int whole = static_cast<int>(cpus);
  return std::max(1, cpus > whole ? whole + 1 : whole);
}

}  // namespace

int UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus =
      sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, std::min(cpus, CgroupCpus()));
}

std::int64_t UsableMemory() {
  std::int64_t available = kUnlimited;
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  return std::min(available, CgroupMemoryLeft());
}

std::int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  return in >> total >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace mla
