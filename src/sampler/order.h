// Candidates for the next token in order of their logits, as many as are needed.
#ifndef MLA_SAMPLER_ORDER_H_
#define MLA_SAMPLER_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace mla::sampler {

struct Candidate {
  float logit;  // no NaN
  std::int32_t id;
};

// Larger logits have smaller keys; -0 has that of 0.
std::uint32_t DescendingKey(float logit);

// Sorts by descending logit, equals by ascending id. Precondition: the candidates come by ascending id, and `scratch`
// is at least as long. Allocates nothing.
void SortLikeliest(std::span<Candidate> candidates, std::span<Candidate> scratch);

// Candidates are counted in ranges of logits whose ends have one sign, exponent and three bits of mantissa.
inline constexpr std::size_t kLogitRanges = 4096;
inline std::size_t LogitRange(float logit) { return DescendingKey(logit) >> 20; }

}  // namespace mla::sampler

#endif  // MLA_SAMPLER_ORDER_H_
