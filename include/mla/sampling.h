// How the next token is chosen from a row of logits.
#ifndef MLA_SAMPLING_H_
#define MLA_SAMPLING_H_

#include <cstdint>

namespace mla {

// Applied in this order: logit biases, repetition penalty, presence and frequency penalties, temperature, top-k, top-p,
// min-p; then one draw. temperature 0 is greedy: the largest logit after the penalty, the lowest id among equals,
// whatever the rest says.
struct SamplingParams {
  double temperature = 0;         // 0, or in (0, 100]
  std::int64_t top_k = 0;         // keep the k largest; 0: all
  double top_p = 1;               // keep the smallest set of largest that reaches this probability; (0, 1]
  double min_p = 0;               // drop what is less likely than this share of the likeliest; [0, 1]
  double repetition_penalty = 1;  // logits of tokens seen (prompt and output) are divided by it where positive,
                                  // multiplied where negative; in (0, 100], 1: off
  double presence_penalty = 0;    // taken from the logits of tokens of the output so far; [-2, 2]
  double frequency_penalty = 0;   // taken once for each time that the token stands in the output so far; [-2, 2]
  std::uint64_t seed = 0;         // draws are keyed by (seed, sample, position): the same on every run
  std::uint64_t sample = 0;       // index among samples of one prompt
};

// Of one request. -inf: the token is never chosen.
struct LogitBias {
  std::int32_t id = 0;
  float bias = 0;  // added to the id's logit before everything else; finite or -inf
};

// A token and the natural log of its probability by the raw logits: no bias, no penalty, no temperature.
struct TokenLogprob {
  std::int32_t id = 0;
  float logprob = 0;
};

// Most likeliest tokens that a request may ask to be told for each of its own.
inline constexpr std::int64_t kMaxTopLogprobs = 20;

}  // namespace mla

#endif  // MLA_SAMPLING_H_
