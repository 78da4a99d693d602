// Logits -> token. The random numbers are a pure function of (seed, sample, position): a replayed or speculated
// position draws what it drew before.
#ifndef MLA_SAMPLER_SAMPLER_H_
#define MLA_SAMPLER_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mla/result.h"
#include "mla/sampling.h"
#include "sampler/order.h"

namespace mla::sampler {

// Uniform in [0, 1), 53 bits, from Philox 4x32-10 (Salmon et al., SC 2011) with key `seed` and counter (position,
// sample).
double CounterUniform(std::uint64_t seed, std::uint64_t sample, std::uint64_t position);

// Each fails, naming the parameter, what was expected and what was found, where a value is out of its range
// (mla/sampling.h). A list of biases has each id once, each below `vocab`, and leaves a token that may be chosen.
Status Validate(const SamplingParams& params);
Status ValidateBias(std::span<const LogitBias> biases, std::int64_t vocab);
Status ValidateTopLogprobs(std::int64_t count);

// Natural log of softmax(logits), in float64, of a row of at least one logit, which outlives this. -inf logits give
// -inf; a row with NaN, or with nothing finite, gives NaN.
template <class Logit>
class LogProbabilities {
 public:
  explicit LogProbabilities(std::span<const Logit> logits);
  double Of(std::int32_t id) const;

 private:
  std::span<const Logit> logits_;
  Logit largest_;
  double log_sum_;  // of the exponentials relative to the largest
};

// LogProbabilities(logits).Of(id).
double LogProbability(std::span<const float> logits, std::int32_t id);
double LogProbability(std::span<const double> logits, std::int32_t id);

// Fills `top` with the likeliest tokens, likeliest first, equals by ascending id, NaN as -inf. Returns how many: all of
// `top`, at most kMaxTopLogprobs, or as many as there are logits. One pass over the row; allocates nothing.
std::size_t Likeliest(std::span<const float> logits, const LogProbabilities<float>& log_probabilities,
                      std::span<TokenLogprob> top);

// Chooses from logits [vocab], and has scratch of that size: allocates nothing after construction. What it chooses is a
// function of the arguments alone. One call at a time.
class Sampler {
 public:
  explicit Sampler(std::int64_t vocab);

  // `seen`: the sequence so far, of which the first `prompt_size` tokens are the prompt: the repetition penalty counts
  // all of them, as Hugging Face's and vLLM's does, the presence and frequency penalties those of the output, as
  // OpenAI's and vLLM's do. `position`: of the token to be chosen. Each change of a logit is rounded to float once.
  // A row without any number above -inf gives id 0.
  std::int32_t Choose(const SamplingParams& params, std::span<const LogitBias> biases, std::span<const float> logits,
                      std::span<const std::int32_t> seen, std::int64_t prompt_size, std::uint64_t position);

  // What construction allocates.
  static std::int64_t Bytes(std::int64_t vocab);

 private:
  void Bias(std::span<const LogitBias> biases);
  void PenaliseRepetition(double penalty, std::span<const std::int32_t> seen);
  void PenaliseOutput(double presence, double frequency, std::span<const std::int32_t> output);
  std::size_t Keep(const SamplingParams& params, float largest);
  template <class Measure>
  std::size_t MoveLikeliest(double need, const Measure& measure);
  template <class Weight>
  std::size_t KeepInOrder(const SamplingParams& params, const Weight& weight);

  std::vector<Candidate> candidates_;  // [vocab]
  std::vector<Candidate> scratch_;     // [vocab] of the sort
  std::vector<double> weights_;        // [vocab]
  std::vector<std::uint32_t> counts_;  // [vocab], 0 between calls
};

}  // namespace mla::sampler

#endif  // MLA_SAMPLER_SAMPLER_H_
