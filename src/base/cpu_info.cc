#include "base/cpu_info.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace mla {

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
  }
  return "?";
}

bool CpuInfo::Has(Isa isa) const {
#if !defined(__x86_64__) || defined(MLA_SCALAR_ONLY)
  return isa == Isa::kPortable;
#else
  switch (isa) {
    case Isa::kPortable: return true;
    case Isa::kAvx2: return avx2;
    case Isa::kAvx512: return avx512;
  }
  return false;
#endif
}

Isa CpuInfo::best() const {
  if (Has(Isa::kAvx512)) return Isa::kAvx512;
  if (Has(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kPortable;
}

Result<Isa> SelectIsa(const CpuInfo& cpu, std::string_view name) {
  if (name.empty()) return cpu.best();
  std::string available;
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512}) {
    if (!cpu.Has(isa)) continue;
    if (name == IsaName(isa)) return isa;
    available += fmt::format("{}{}", available.empty() ? "" : ", ", IsaName(isa));
  }
  return Error{
      fmt::format("kernels: expected one of {} (what this machine and build have), found '{}'", available, name)};
}

#if defined(__x86_64__)

namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers Cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  __cpuid_count(leaf, subleaf, r.a, r.b, r.c, r.d);
  return r;
}

std::uint64_t Xgetbv() {
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

std::string BrandString() {
  if (Cpuid(0x80000000U, 0).a < 0x80000004U) return "";
  std::array<char, 49> text{};
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = Cpuid(0x80000002U + i, 0);
    std::memcpy(text.data() + 16 * i, &r, 16);
  }
  std::string brand(text.data());
  const auto first = brand.find_first_not_of(' ');
  return first == std::string::npos ? "" : brand.substr(first);
}

}  // namespace

CpuInfo DetectCpu() {
  CpuInfo info;
  info.model = BrandString();
  const unsigned max_leaf = Cpuid(0, 0).a;
  if (max_leaf < 7) return info;
  const Registers one = Cpuid(1, 0);
  const Registers seven = Cpuid(7, 0);
  const bool osxsave = (one.c >> 27) & 1;
  if (!osxsave) return info;
  const std::uint64_t xcr0 = Xgetbv();
  const bool ymm = (xcr0 & 0x6) == 0x6;
  const bool zmm = (xcr0 & 0xe6) == 0xe6;
  const bool fma = (one.c >> 12) & 1;
  const bool f16c = (one.c >> 29) & 1;
  info.avx2 = ymm && fma && f16c && ((seven.b >> 5) & 1);
  const unsigned needed = (1U << 16) | (1U << 17) | (1U << 30) | (1U << 31);  // F, DQ, BW, VL
  info.avx512 = info.avx2 && zmm && (seven.b & needed) == needed;
  return info;
}

#else

CpuInfo DetectCpu() { return CpuInfo{}; }

#endif

}  // namespace mla
