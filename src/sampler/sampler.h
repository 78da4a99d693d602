// Logits -> token. The random numbers are a pure function of (seed, sample, position): a replayed or speculated
// position draws what it drew before.
#ifndef MLA_SAMPLER_SAMPLER_H_
#define MLA_SAMPLER_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mla/result.h"
#include "mla/sampling.h"

namespace mla::sampler {

// Uniform in [0, 1), 53 bits, from Philox 4x32-10 (Salmon et al., SC 2011) with key `seed` and counter (position,
// sample).
double CounterUniform(std::uint64_t seed, std::uint64_t sample, std::uint64_t position);

// Fails, naming the parameter, where a value is out of its range (mla/sampling.h).
Status Validate(const SamplingParams& params);

// Natural log of softmax(logits)[id], in float64. -inf logits give -inf.
double LogProbability(std::span<const float> logits, std::int32_t id);
double LogProbability(std::span<const double> logits, std::int32_t id);

// Chooses from logits [vocab], and has scratch of that size: allocates nothing after construction. One call at a time.
class Sampler {
 public:
  explicit Sampler(std::int64_t vocab);

  // `seen`: the sequence so far, for the repetition penalty. `position`: of the token to be chosen. A row without any
  // number above -inf gives id 0.
  std::int32_t Choose(const SamplingParams& params, std::span<const float> logits, std::span<const std::int32_t> seen,
                      std::uint64_t position);

  // What construction allocates.
  static std::int64_t Bytes(std::int64_t vocab);

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
  };
  void Penalise(double penalty, std::span<const std::int32_t> seen);
  std::size_t Keep(const SamplingParams& params);
  template <class Weight>
  std::size_t KeepInOrder(const SamplingParams& params, const Weight& weight);

  std::vector<Candidate> candidates_;  // [vocab]
  std::vector<double> weights_;        // [vocab]
  std::vector<std::uint8_t> seen_;     // [vocab]
};

}  // namespace mla::sampler

#endif  // MLA_SAMPLER_SAMPLER_H_
