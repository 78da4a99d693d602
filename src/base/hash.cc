#include "base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace mla {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

template <class T>
std::uint64_t Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::uint64_t Round(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

void AddStripe(std::array<std::uint64_t, 4>* lanes, const std::byte* stripe) {
  for (std::size_t i = 0; i < 4; ++i) (*lanes)[i] = Round((*lanes)[i], Load<std::uint64_t>(stripe + 8 * i));
}

}  // namespace

Hash64::Hash64() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void Hash64::Add(std::span<const std::byte> bytes) {
  std::size_t held = total_ % 32;
  total_ += bytes.size();
  if (held > 0) {
    const std::size_t taken = std::min(32 - held, bytes.size());
    std::copy_n(bytes.begin(), taken, pending_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(taken);
    held += taken;
    if (held < 32) return;
    AddStripe(&lanes_, pending_.data());
  }
  for (; bytes.size() >= 32; bytes = bytes.subspan(32)) AddStripe(&lanes_, bytes.data());
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

std::uint64_t Hash64::Value() const {
  std::uint64_t h = lanes_[2] + kPrime5;  // seed + prime 5, where no stripe was whole
  if (total_ >= 32) {
    h = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) h = (h ^ Round(0, lane)) * kPrime1 + kPrime4;
  }
  h += total_;
  const std::byte* at = pending_.data();
  const std::byte* const end = at + total_ % 32;
  for (; end - at >= 8; at += 8) h = std::rotl(h ^ Round(0, Load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (end - at >= 4) {
    h = std::rotl(h ^ (Load<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) h = std::rotl(h ^ (Load<std::uint8_t>(at) * kPrime5), 11) * kPrime1;
  h = (h ^ (h >> 33)) * kPrime2;
  h = (h ^ (h >> 29)) * kPrime3;
  return h ^ (h >> 32);
}

std::uint64_t HashOf(std::span<const std::byte> bytes) {
  Hash64 hash;
  hash.Add(bytes);
  return hash.Value();
}

}  // namespace mla
