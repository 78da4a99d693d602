#include "base/buffer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <linux/mman.h>
#include <sys/mman.h>

#include "base/huge_pages.h"

namespace mla {
namespace {

constexpr auto kHugePage = static_cast<std::size_t>(kHugePageBytes);
constexpr std::size_t kSmallPage = 4096;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

std::size_t RoundUp(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

void* Map(std::size_t bytes, int flags) { return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0); }

// Small pages, or huge ones of the system's own accord; from 2 MiB on at a border of 2 MiB: only whole, aligned ones
// can be huge. Linux aligns large mappings by itself only from 6.7 on, and of some lengths.
void* MapPages(std::size_t bytes) {
  if (bytes < kHugePage) return Map(bytes, kPrivate | MAP_NORESERVE);
  const std::size_t whole = RoundUp(bytes, kSmallPage);
  void* data = Map(whole + kHugePage, kPrivate | MAP_NORESERVE);  // its ends are cut off
  if (data == MAP_FAILED) return data;
  auto* begin = static_cast<std::byte*>(data);
  const std::size_t before =
      RoundUp(reinterpret_cast<std::uintptr_t>(begin), kHugePage) - reinterpret_cast<std::uintptr_t>(begin);
  if (before > 0) munmap(begin, before);
  munmap(begin + before + whole, kHugePage - before);
  return begin + before;
}

}  // namespace

Result<Buffer> Buffer::Allocate(std::int64_t bytes, const char* what, HugePages pages) {
  MLA_CHECK_GE(bytes, 0);
  Buffer buffer;
  if (bytes == 0) return buffer;
  const bool large = bytes >= kHugePageBytes;
  const bool reserved = pages == HugePages::kHugetlbfs && large;
  const auto size = static_cast<std::size_t>(bytes);
  const std::size_t mapped = reserved ? RoundUp(size, kHugePage) : size;
  // Without MAP_NORESERVE hugetlbfs claims its pages now: it fails here, and never by a signal at a touch.
  void* data = reserved ? Map(mapped, kPrivate | MAP_HUGETLB | MAP_HUGE_2MB) : MapPages(mapped);
  if (data == MAP_FAILED) {
    const int fault = errno;
    if (reserved && fault == ENOMEM) return TooFewHugePages(what, bytes, ReadHugePagePool());
    return Error{fmt::format("{}: could not map {} bytes{}: {}", what, bytes, reserved ? " of huge pages" : "",
                             std::strerror(fault))};
  }
  // Refusal is harmless.
  if (pages == HugePages::kAuto && large) madvise(data, size, MADV_HUGEPAGE);
  if (pages == HugePages::kOff) madvise(data, size, MADV_NOHUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  buffer.mapped_ = mapped;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, mapped_);
}

void FirstTouch(std::byte* data, std::int64_t bytes, Executor& executor) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t end = begin + static_cast<std::uintptr_t>(bytes);
  const std::uintptr_t first = begin / kHugePage;
  // A task for each 2 MiB at an absolute border: no two workers want the same huge page.
  ParallelFor(executor, static_cast<std::int64_t>((end - 1) / kHugePage - first + 1),
              [&](std::int64_t task, int /*worker*/) {
                const std::uintptr_t block = (first + static_cast<std::uintptr_t>(task)) * kHugePage;
                for (std::uintptr_t page = block; page < block + kHugePage; page += kSmallPage) {
                  const std::uintptr_t at = std::max(page, begin);
                  if (at >= std::min(end, page + kSmallPage)) continue;
                  // No read: it would map the system's page of zeros first, and cost a second fault.
                  *const_cast<volatile std::byte*>(data + (at - begin)) = std::byte{0};
                }
              });
}

}  // namespace mla
