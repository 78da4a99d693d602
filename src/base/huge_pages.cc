#include "base/huge_pages.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace mla {
namespace {

std::int64_t ReadCount(const std::string& path) {
  std::ifstream in(path);
  std::int64_t count = 0;
  return in >> count ? std::max<std::int64_t>(0, count) : 0;
}

// One mapping's lines, as far as they matter; bytes.
struct Mapping {
  std::int64_t size = 0;
  std::int64_t resident = 0;  // without hugetlbfs's, which smaps counts apart
  std::int64_t transparent = 0;
  std::int64_t hugetlbfs = 0;

  void Take(const std::string& key, std::int64_t bytes) {
    if (key == "Size:") size = bytes;
    if (key == "Rss:") resident = bytes;
    if (key == "AnonHugePages:") transparent = bytes;
    if (key == "Private_Hugetlb:" || key == "Shared_Hugetlb:") hugetlbfs += bytes;
  }
};

}  // namespace

const char* HugePagesName(HugePages pages) {
  switch (pages) {
    case HugePages::kAuto: return "auto";
    case HugePages::kHugetlbfs: return "hugetlbfs";
    case HugePages::kOff: return "off";
  }
  return "?";
}

HugePagePool ReadHugePagePool(const std::string& folder) {
  HugePagePool pool;
  pool.total = ReadCount(folder + "/nr_hugepages");
  // Claimed pages still count as free there until they are touched.
  pool.free = std::max<std::int64_t>(0, ReadCount(folder + "/free_hugepages") - ReadCount(folder + "/resv_hugepages"));
  return pool;
}

Error TooFewHugePages(const char* what, std::int64_t bytes, const HugePagePool& pool) {
  const std::int64_t needed = (bytes - 1) / kHugePageBytes + 1;
  return Error{fmt::format("{}: expected {} free huge pages of 2 MiB, found {} of {} (sysctl vm.nr_hugepages)", what,
                           needed, pool.free, pool.total)};
}

std::optional<HugePageUse> ReadHugePageUse(const std::string& smaps) {
  std::ifstream in(smaps);
  HugePageUse use;
  Mapping mapping;
  bool flags_seen = false;
  // A mapping's lines end with its flags: hg after MADV_HUGEPAGE, ht in hugetlbfs.
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key != "VmFlags:") {
      std::int64_t kib = 0;
      if (words >> kib) mapping.Take(key, kib * 1024);
      continue;
    }
    flags_seen = true;
    for (std::string flag; words >> flag;) {
      if (flag != "hg" && flag != "ht") continue;
      use.asked += mapping.size;
      use.resident += mapping.resident + mapping.hugetlbfs;
      use.huge += mapping.transparent + mapping.hugetlbfs;
      break;
    }
    mapping = Mapping{};
  }
  if (!flags_seen) return std::nullopt;
  return use;
}

}  // namespace mla
