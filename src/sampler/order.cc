#include "sampler/order.h"

#include <algorithm>
#include <array>
#include <bit>

namespace mla::sampler {

std::uint32_t DescendingKey(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0F);  // -0 + 0 is 0
  // Positive floats order as their bits do, negative ones the other way round.
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000U);
}

namespace {

// Below this a comparison sort costs less than counting digits.
constexpr std::size_t kFew = 512;

// By digits of 8 bits, the lowest first: 4 passes whose writes go to 256 places. 100,000 candidates take 1 ms, a
// comparison sort 7.
void SortByDigits(std::span<Candidate> candidates, std::span<Candidate> scratch) {
  std::array<std::array<std::uint32_t, 256>, 4> begins{};
  for (const Candidate& c : candidates) {
    const std::uint32_t key = DescendingKey(c.logit);
    for (std::size_t digit = 0; digit < 4; ++digit) ++begins[digit][(key >> (8 * digit)) & 255];
  }
  std::span<Candidate> from = candidates;
  std::span<Candidate> to = scratch.first(candidates.size());
  for (std::size_t digit = 0; digit < 4; ++digit) {
    std::uint32_t next = 0;
    for (std::uint32_t& begin : begins[digit]) {
      const std::uint32_t count = begin;
      begin = next;
      next += count;
    }
    for (const Candidate& c : from) to[begins[digit][(DescendingKey(c.logit) >> (8 * digit)) & 255]++] = c;
    std::swap(from, to);
  }
}

}  // namespace

void SortLikeliest(std::span<Candidate> candidates, std::span<Candidate> scratch) {
  if (candidates.size() > kFew) return SortByDigits(candidates, scratch);
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
}

}  // namespace mla::sampler
