// What this processor can run, read from cpuid and xgetbv (compilers' own tables lack names).
#ifndef MLA_BASE_CPU_INFO_H_
#define MLA_BASE_CPU_INFO_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla {

// Instruction sets that kernels are written for, slowest first. kAvx512Bf16 and kAmx are kAvx512 with bf16 products.
enum class Isa : std::uint8_t { kPortable, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

// "portable", "avx2", "avx512", "avx512bf16", "amx".
const char* IsaName(Isa isa);

struct CpuInfo {
  std::string model;         // brand string, "" where unknown
  bool avx2 = false;         // AVX2, FMA and F16C, enabled by the operating system
  bool avx512 = false;       // AVX-512 F, BW, DQ and VL, enabled by the operating system
  bool avx512_bf16 = false;  // avx512 and AVX-512 BF16
  bool amx_bf16 = false;     // avx512_bf16, AVX-512 VBMI, and AMX tiles with bf16 products, granted to this process
  // No kernel needs these: they are limits worth knowing (src/bench).
  bool avx512_vnni = false;  // avx512 and AVX-512 VNNI
  bool amx_int8 = false;     // amx_bf16, and int8 products on tiles

  // The fastest instruction set that the processor has and the build holds.
  Isa best() const;
  bool Has(Isa isa) const;
};

// Asks Linux for the use of AMX tiles, which it grants to a process once and for all its threads.
CpuInfo DetectCpu();

// The instruction set of that name, or the fastest for "". Fails, naming what there is, where the name is unknown, or
// the processor or the build lacks it.
Result<Isa> SelectIsa(const CpuInfo& cpu, std::string_view name);

// Processors that this process may use: the affinity mask, cut by the cgroup's CPU quota (rounded up). At least 1.
int UsableCpus();

// Bytes of memory that this process may still take: the least of what the machine has available and what the cgroups
// (version 1 or 2, this one and its parents) leave.
std::int64_t UsableMemory();

// Bytes of this process that are in memory now; 0 where the system does not say.
std::int64_t ResidentBytes();

}  // namespace mla

#endif  // MLA_BASE_CPU_INFO_H_
