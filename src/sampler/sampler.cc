#include "sampler/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/no_throw.h"

namespace mla::sampler {

double CounterUniform(std::uint64_t seed, std::uint64_t sample, std::uint64_t position) {
  std::array<std::uint32_t, 4> counter = {static_cast<std::uint32_t>(position),
                                          static_cast<std::uint32_t>(position >> 32),
                                          static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32)};
  std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  const std::uint64_t bits = (std::uint64_t{counter[0]} << 32) | counter[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

Status Validate(const SamplingParams& p) {
  if (!(p.temperature >= 0 && p.temperature <= 100)) {
    return Error{fmt::format("temperature: expected a number from 0 to 100, found {}", p.temperature)};
  }
  if (p.top_k < 0) return Error{fmt::format("top-k: expected 0 (off) or more, found {}", p.top_k)};
  if (!(p.top_p > 0 && p.top_p <= 1))
    return Error{fmt::format("top-p: expected a number above 0 and up to 1, found {}", p.top_p)};
  if (!(p.min_p >= 0 && p.min_p <= 1))
    return Error{fmt::format("min-p: expected a number from 0 to 1, found {}", p.min_p)};
  if (!(p.repetition_penalty > 0 && p.repetition_penalty <= 100)) {
    return Error{
        fmt::format("repetition penalty: expected a number above 0 and up to 100, found {}", p.repetition_penalty)};
  }
  const auto out_of_range = [](double penalty) { return !(penalty >= -2 && penalty <= 2); };
  if (out_of_range(p.presence_penalty)) {
    return Error{fmt::format("presence penalty: expected a number from -2 to 2, found {}", p.presence_penalty)};
  }
  if (out_of_range(p.frequency_penalty)) {
    return Error{fmt::format("frequency penalty: expected a number from -2 to 2, found {}", p.frequency_penalty)};
  }
  return {};
}

Status ValidateBias(std::span<const LogitBias> biases, std::int64_t vocab) {
  if (static_cast<std::int64_t>(biases.size()) > vocab) {
    return Error{fmt::format("logit bias: expected at most one for each of {} ids, found {}", vocab, biases.size())};
  }
  std::int64_t barred = 0;
  for (const LogitBias& b : biases) {
    if (b.id < 0 || b.id >= vocab) {
      return Error{fmt::format("logit bias: expected ids from 0 to {}, found {}", vocab - 1, b.id)};
    }
    if (std::isnan(b.bias) || b.bias == std::numeric_limits<float>::infinity()) {
      return Error{fmt::format("logit bias of id {}: expected a finite number or -inf, found {}", b.id, b.bias)};
    }
    barred += std::isinf(b.bias) ? 1 : 0;
  }
  if (barred > 0 && barred == vocab) {
    return Error{fmt::format("logit bias: expected a token that may be chosen, found -inf for all {}", vocab)};
  }
  return WithoutThrow("logit bias", [&]() -> Status {
    std::vector<std::int32_t> ids(biases.size());
    std::transform(biases.begin(), biases.end(), ids.begin(), [](const LogitBias& b) { return b.id; });
    std::sort(ids.begin(), ids.end());
    const auto twice = std::adjacent_find(ids.begin(), ids.end());
    if (twice == ids.end()) return {};
    return Error{fmt::format("logit bias: expected each id once, found {} twice", *twice)};
  });
}

Status ValidateTopLogprobs(std::int64_t count) {
  if (count >= 0 && count <= kMaxTopLogprobs) return {};
  return Error{fmt::format("top logprobs: expected a number from 0 to {}, found {}", kMaxTopLogprobs, count)};
}

template <class Logit>
LogProbabilities<Logit>::LogProbabilities(std::span<const Logit> logits)
    : logits_(logits), largest_(*std::max_element(logits.begin(), logits.end())) {
  double sum = 0;
  for (const Logit logit : logits) sum += std::exp(static_cast<double>(logit) - largest_);
  log_sum_ = std::log(sum);
}

template <class Logit>
double LogProbabilities<Logit>::Of(std::int32_t id) const {
  return static_cast<double>(logits_[static_cast<std::size_t>(id)]) - largest_ - log_sum_;
}

template class LogProbabilities<float>;
template class LogProbabilities<double>;

double LogProbability(std::span<const float> logits, std::int32_t id) { return LogProbabilities(logits).Of(id); }
double LogProbability(std::span<const double> logits, std::int32_t id) { return LogProbabilities(logits).Of(id); }

namespace {

// A NaN would break every order: it can never be chosen, nor be likely.
float WithoutNaN(float logit) { return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit; }

}  // namespace

std::size_t Likeliest(std::span<const float> logits, const LogProbabilities<float>& log_probabilities,
                      std::span<TokenLogprob> top) {
  const std::size_t count = std::min({top.size(), static_cast<std::size_t>(kMaxTopLogprobs), logits.size()});
  if (count == 0) return 0;
  // A heap of the likeliest so far, the least likely of them in front.
  std::array<Candidate, kMaxTopLogprobs> heap;
  const auto end = heap.begin() + static_cast<std::ptrdiff_t>(count);
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  };
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate c = {WithoutNaN(logits[i]), static_cast<std::int32_t>(i)};
    if (i < count) {
      heap[i] = c;
      std::push_heap(heap.begin(), heap.begin() + static_cast<std::ptrdiff_t>(i + 1), likelier);
    } else if (c.logit > heap.front().logit) {  // an equal has the larger id
      std::pop_heap(heap.begin(), end, likelier);
      *(end - 1) = c;
      std::push_heap(heap.begin(), end, likelier);
    }
  }
  std::sort_heap(heap.begin(), end, likelier);
  for (std::size_t i = 0; i < count; ++i) {
    top[i] = {heap[i].id, static_cast<float>(log_probabilities.Of(heap[i].id))};
  }
  return count;
}

Sampler::Sampler(std::int64_t vocab)
    : candidates_(static_cast<std::size_t>(vocab)),
      scratch_(static_cast<std::size_t>(vocab)),
      weights_(static_cast<std::size_t>(vocab)),
      counts_(static_cast<std::size_t>(vocab)) {}

std::int64_t Sampler::Bytes(std::int64_t vocab) {
  return vocab * static_cast<std::int64_t>(2 * sizeof(Candidate) + sizeof(double) + sizeof(std::uint32_t));
}

void Sampler::Bias(std::span<const LogitBias> biases) {
  for (const LogitBias& b : biases) {
    float& logit = candidates_[static_cast<std::size_t>(b.id)].logit;
    logit = std::isinf(b.bias) ? b.bias : logit + b.bias;  // inf - inf would be NaN
  }
}

void Sampler::PenaliseRepetition(double penalty, std::span<const std::int32_t> seen) {
  if (penalty == 1) return;
  for (const std::int32_t id : seen) {
    if (counts_[static_cast<std::size_t>(id)]++ != 0) continue;
    float& logit = candidates_[static_cast<std::size_t>(id)].logit;
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
  for (const std::int32_t id : seen) counts_[static_cast<std::size_t>(id)] = 0;
}

void Sampler::PenaliseOutput(double presence, double frequency, std::span<const std::int32_t> output) {
  if (presence == 0 && frequency == 0) return;
  for (const std::int32_t id : output) ++counts_[static_cast<std::size_t>(id)];
  for (const std::int32_t id : output) {
    std::uint32_t& count = counts_[static_cast<std::size_t>(id)];
    if (count == 0) continue;
    float& logit = candidates_[static_cast<std::size_t>(id)].logit;
    logit = static_cast<float>(logit - (presence + frequency * count));
    count = 0;
  }
}

// Moves candidates to the front, by ascending id: the ranges of logits, the likeliest first, whose measures reach
// `need` together; all where they don't. Returns how many.
template <class Measure>
std::size_t Sampler::MoveLikeliest(double need, const Measure& measure) {
  std::array<double, kLogitRanges> ranges{};
  for (std::size_t i = 0; i < candidates_.size(); ++i) ranges[LogitRange(candidates_[i].logit)] += measure(i);
  std::size_t last = 0;
  for (double reached = ranges[0]; reached < need && last + 1 < kLogitRanges; reached += ranges[last]) ++last;
  std::size_t moved = 0;
  for (const Candidate& c : candidates_) {
    if (LogitRange(c.logit) <= last) candidates_[moved++] = c;
  }
  return moved;
}

// Moves the candidates that survive to the front, with their weights (likelihoods relative to the likeliest). Returns
// how many. Only those that top-k or top-p may keep are sorted: of 129,280 that is mostly a few hundred.
std::size_t Sampler::Keep(const SamplingParams& params, float largest) {
  const auto weight = [&](const Candidate& c) {
    return std::exp((static_cast<double>(c.logit) - largest) / params.temperature);
  };
  const bool limited = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < candidates_.size();
  if (!limited && params.top_p == 1) return KeepInOrder(params, weight);

  double total = 0;
  std::size_t most = 0;
  if (limited) {
    most = MoveLikeliest(static_cast<double>(params.top_k), [](std::size_t) { return 1.0; });
  } else {
    for (std::size_t i = 0; i < candidates_.size(); ++i) total += weights_[i] = weight(candidates_[i]);
    // The ranges' sums and the one below are in other orders: each errs by less than 2^-53 for each of its terms, 1e-9
    // for 4 million ids together.
    most = MoveLikeliest(params.top_p * total * (1 + 1e-9), [&](std::size_t i) { return weights_[i]; });
  }
  SortLikeliest(std::span(candidates_).first(most), scratch_);
  if (limited) {
    most = static_cast<std::size_t>(params.top_k);
    for (std::size_t i = 0; i < most; ++i) total += weight(candidates_[i]);
  }
  double reached = 0;
  std::size_t kept = 0;
  for (; kept < most && (kept == 0 || reached < params.top_p * total); ++kept) {
    const double w = weight(candidates_[kept]);
    // 0: never drawn, not even by the last one's rounding.
    if (kept > 0 && (w < params.min_p || w == 0)) break;
    weights_[kept] = w;
    reached += w;
  }
  return kept;
}

// No top-k and no top-p: the survivors of min-p, in the order of ids.
template <class Weight>
std::size_t Sampler::KeepInOrder(const SamplingParams& params, const Weight& weight) {
  std::size_t kept = 0;
  for (const Candidate& c : candidates_) {
    const double w = weight(c);
    if (w < params.min_p || w == 0) continue;  // 0: never drawn, not even by the last one's rounding
    candidates_[kept] = c;
    weights_[kept++] = w;
  }
  return kept;
}

std::int32_t Sampler::Choose(const SamplingParams& params, std::span<const LogitBias> biases,
                             std::span<const float> logits, std::span<const std::int32_t> seen,
                             std::int64_t prompt_size, std::uint64_t position) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    candidates_[i] = {WithoutNaN(logits[i]), static_cast<std::int32_t>(i)};
  }
  Bias(biases);
  PenaliseRepetition(params.repetition_penalty, seen);
  PenaliseOutput(params.presence_penalty, params.frequency_penalty,
                 seen.subspan(static_cast<std::size_t>(prompt_size)));
  const Candidate best = *std::max_element(candidates_.begin(), candidates_.end(),
                                           [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  // Likelihoods relative to an infinity are no numbers: there is nothing to draw.
  if (params.temperature == 0 || std::isinf(best.logit)) return best.id;
  const std::size_t kept = Keep(params, best.logit);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) total += weights_[i];
  double left = CounterUniform(params.seed, params.sample, position) * total;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    left -= weights_[i];
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[kept - 1].id;
}

}  // namespace mla::sampler
