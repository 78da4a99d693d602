// Huge pages: how many the system has reserved, and how many this process got.
#ifndef MLA_BASE_HUGE_PAGES_H_
#define MLA_BASE_HUGE_PAGES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "mla/memory.h"
#include "mla/result.h"

namespace mla {

inline constexpr std::int64_t kHugePageBytes = std::int64_t{2} << 20;

// The system's pool of reserved huge pages, in pages.
struct HugePagePool {
  std::int64_t total = 0;
  std::int64_t free = 0;  // nobody has them, nobody has a claim on them
};

// Of pages of 2 MiB, in Linux's folder of their counters. Where that can't be read there are none.
HugePagePool ReadHugePagePool(const std::string& folder = "/sys/kernel/mm/hugepages/hugepages-2048kB");

// What a buffer fails with when the pool has too few for so many bytes.
Error TooFewHugePages(const char* what, std::int64_t bytes, const HugePagePool& pool);

// Memory of this process in mappings that asked for huge pages (madvise's or hugetlbfs's), in bytes.
struct HugePageUse {
  std::int64_t asked = 0;     // mapped
  std::int64_t resident = 0;  // of those, in memory: touched so far
  std::int64_t huge = 0;      // of those, in huge pages
};

// Read from Linux's account of the mappings (proc(5), smaps). Nothing where that can't be read or lacks the flags.
// Takes milliseconds for tens of gigabytes in huge pages, longer in small ones: not for a step.
std::optional<HugePageUse> ReadHugePageUse(const std::string& smaps = "/proc/self/smaps");

}  // namespace mla

#endif  // MLA_BASE_HUGE_PAGES_H_
