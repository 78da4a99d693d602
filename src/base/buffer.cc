#include "base/buffer.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

namespace mla {

Result<Buffer> Buffer::Allocate(std::int64_t bytes, const char* what) {
  MLA_CHECK_GE(bytes, 0);
  Buffer buffer;
  if (bytes == 0) return buffer;
  void* data = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Error{fmt::format("{}: could not map {} bytes: {}", what, bytes, std::strerror(errno))};
  }
  // A first touch of a 4 KiB page costs tens of microseconds on virtual machines; a huge page pays it once for 2 MiB.
  // Refusal is harmless.
  if (bytes >= (std::int64_t{4} << 20)) madvise(data, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
}

}  // namespace mla
