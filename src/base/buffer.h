// Memory of the engine's large buffers: mapped once, kept, counted.
#ifndef MLA_BASE_BUFFER_H_
#define MLA_BASE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "mla/executor.h"
#include "mla/memory.h"
#include "mla/result.h"

namespace mla {

// Zeroed memory at a 4 KiB border, at 2 MiB's where it is that large, owned. Moves, never copies.
class Buffer {
 public:
  // Maps `bytes` (0 gives an empty buffer). Pages are taken from the system when first touched; those of hugetlbfs are
  // claimed here, in whole pages, so that touching can't fail. Fails where the system refuses; `what` names the buffer
  // in the message.
  static Result<Buffer> Allocate(std::int64_t bytes, const char* what, HugePages pages = HugePages::kAuto);

  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  // What was asked for.
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::size_t mapped_ = 0;
};

// Takes the pages of fresh memory [data, data + bytes), zeros as yet, from the system, by all workers: the first touch
// of a page costs tens of microseconds on virtual machines.
void FirstTouch(std::byte* data, std::int64_t bytes, Executor& executor);
inline void FirstTouch(Buffer& buffer, Executor& executor) { FirstTouch(buffer.data(), buffer.bytes(), executor); }

// Hands out pieces of a buffer at 64-byte borders, one after another. With no buffer it only counts, so that one
// function both plans a size and lays it out: what is planned is what is allocated.
class Carver {
 public:
  static constexpr std::int64_t kAlignment = 64;

  Carver() = default;  // counts
  explicit Carver(Buffer& buffer) : base_(buffer.data()), capacity_(buffer.bytes()) {}

  // Room for n elements; nullptr when only counting.
  template <class T>
  T* Take(std::int64_t n) {
    const std::int64_t begin = used_;
    used_ += (n * static_cast<std::int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    if (base_ == nullptr) return nullptr;
    MLA_CHECK_LE(used_, capacity_);
    return reinterpret_cast<T*>(base_ + begin);
  }

  std::int64_t used() const { return used_; }

 private:
  std::byte* base_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t used_ = 0;
};

}  // namespace mla

#endif  // MLA_BASE_BUFFER_H_
