#include "base/cpu_info.h"

#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace mla {
namespace {

// The flags that the kernel prints: another reader of cpuid, which also knows what the system enabled.
bool KernelSays(const std::string& flag) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("flags", 0) == 0) return (line + " ").find(" " + flag + " ") != std::string::npos;
  }
  return false;
}

TEST(CpuInfo, AgreesWithTheKernel) {
#if defined(__x86_64__)
  const CpuInfo cpu = DetectCpu();
  EXPECT_EQ(cpu.avx2, KernelSays("avx2") && KernelSays("fma") && KernelSays("f16c"));
  EXPECT_EQ(cpu.avx512, cpu.avx2 && KernelSays("avx512f") && KernelSays("avx512bw") && KernelSays("avx512dq") &&
                            KernelSays("avx512vl"));
#else
  GTEST_SKIP() << "no x86";
#endif
}

TEST(CpuInfo, BestIsTheFastestThatItHas) {
  CpuInfo cpu;
  EXPECT_EQ(cpu.best(), Isa::kPortable);
  EXPECT_TRUE(cpu.Has(Isa::kPortable));
  EXPECT_FALSE(cpu.Has(Isa::kAvx2));
  cpu.avx2 = true;
  cpu.avx512 = true;
#if defined(__x86_64__) && !defined(MLA_SCALAR_ONLY)
  EXPECT_EQ(cpu.best(), Isa::kAvx512);
  cpu.avx512 = false;
  EXPECT_EQ(cpu.best(), Isa::kAvx2);
#else
  EXPECT_EQ(cpu.best(), Isa::kPortable) << "the build holds no other";
#endif
}

TEST(CpuInfo, Names) {
  EXPECT_STREQ(IsaName(Isa::kPortable), "portable");
  EXPECT_STREQ(IsaName(Isa::kAvx2), "avx2");
  EXPECT_STREQ(IsaName(Isa::kAvx512), "avx512");
}

TEST(Limits, UsableCpusIsCutByTheAffinityMask) {
  const int cpus = UsableCpus();
  EXPECT_GE(cpus, 1);
  EXPECT_LE(cpus, sysconf(_SC_NPROCESSORS_CONF));
  int pinned = 0;
  // On a thread of its own, so that the mask of the others stays as it is.
  std::thread([&pinned] {
    cpu_set_t all;
    CPU_ZERO(&all);
    ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    pinned = UsableCpus();
  }).join();
  EXPECT_EQ(pinned, 1);
}

TEST(Limits, UsableMemoryIsPartOfTheMachinesAndOfTheContainers) {
  const std::int64_t usable = UsableMemory();
  EXPECT_GT(usable, 0);
  EXPECT_LE(usable, std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  std::ifstream in("/sys/fs/cgroup/memory.max");  // there in containers alone: the machine's own root group has none
  std::int64_t limit = 0;
  if (in >> limit) {
    EXPECT_LE(usable, limit);
  }
}

}  // namespace
}  // namespace mla
