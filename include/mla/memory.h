// Where the pages of large buffers come from.
#ifndef MLA_MEMORY_H_
#define MLA_MEMORY_H_

#include <cstdint>

namespace mla {

// Pages of 2 MiB spare the processor most of its address look-ups, and a first touch pays the system once for 512 small
// pages. They are asked for in buffers of at least 2 MiB; what is computed never depends on them.
enum class HugePages : std::uint8_t {
  kAuto,       // madvise: the system gives what it has, and small pages for the rest
  kHugetlbfs,  // from the pool that an administrator has reserved (vm.nr_hugepages); fails where that lacks pages
  kOff,        // small pages
};

// "auto", "hugetlbfs", "off".
const char* HugePagesName(HugePages pages);

}  // namespace mla

#endif  // MLA_MEMORY_H_
