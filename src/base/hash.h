// A 64-bit checksum of bytes that come in pieces.
#ifndef MLA_BASE_HASH_H_
#define MLA_BASE_HASH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace mla {

// XXH64 with seed 0 (Y. Collet, "XXH64 algorithm description", version 0.2). It sees accidents: a change that is none
// of its own making stays unseen once in 2^64. It is no proof against somebody who wants two files to be equal.
class Hash64 {
 public:
  Hash64();
  void Add(std::span<const std::byte> bytes);
  // Of all bytes so far; more may follow.
  std::uint64_t Value() const;

 private:
  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, 32> pending_{};  // the first total_ % 32 of it
  std::uint64_t total_ = 0;
};

// Of bytes at once.
std::uint64_t HashOf(std::span<const std::byte> bytes);

}  // namespace mla

#endif  // MLA_BASE_HASH_H_
