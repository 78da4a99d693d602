#include "base/cpu_info.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mla {

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Bf16: return "avx512bf16";
    case Isa::kAmx: return "amx";
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
    case Isa::kAvx512Bf16: return avx512_bf16;
    case Isa::kAmx: return amx_bf16;
  }
  return false;
#endif
}

Isa CpuInfo::best() const {
  Isa best = Isa::kPortable;
  for (const Isa isa : kIsas) {
    if (Has(isa)) best = isa;
  }
  return best;
}

Result<Isa> SelectIsa(const CpuInfo& cpu, std::string_view name) {
  if (name.empty()) return cpu.best();
  std::string available;
  for (const Isa isa : kIsas) {
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

// Linux keeps the tiles' state from a process until it asks (Documentation/arch/x86/xstate.rst).
bool AskForTiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
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
  info.avx512_bf16 = info.avx512 && seven.a >= 1 && ((Cpuid(7, 1).a >> 5) & 1);
  const bool tiles = (xcr0 & 0x60000) == 0x60000 && ((seven.d >> 22) & 1) && ((seven.d >> 24) & 1);
  const bool vbmi = (seven.c >> 1) & 1;
  info.amx_bf16 = info.avx512_bf16 && vbmi && tiles && AskForTiles();
  info.avx512_vnni = info.avx512 && ((seven.c >> 11) & 1);
  info.amx_int8 = info.amx_bf16 && ((seven.d >> 25) & 1);
  return info;
}

#else

CpuInfo DetectCpu() { return CpuInfo{}; }

#endif

}  // namespace mla
