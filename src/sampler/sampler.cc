#include "sampler/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

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
  return {};
}

namespace {

template <class Logit>
double LogSoftmaxAt(std::span<const Logit> logits, std::int32_t id) {
  const Logit largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const Logit logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - largest - std::log(sum);
}

}  // namespace

double LogProbability(std::span<const float> logits, std::int32_t id) { return LogSoftmaxAt(logits, id); }
double LogProbability(std::span<const double> logits, std::int32_t id) { return LogSoftmaxAt(logits, id); }

Sampler::Sampler(std::int64_t vocab)
    : candidates_(static_cast<std::size_t>(vocab)),
      weights_(static_cast<std::size_t>(vocab)),
      seen_(static_cast<std::size_t>(vocab)) {}

std::int64_t Sampler::Bytes(std::int64_t vocab) {
  return vocab * static_cast<std::int64_t>(sizeof(Candidate) + sizeof(double) + sizeof(std::uint8_t));
}

void Sampler::Penalise(double penalty, std::span<const std::int32_t> seen) {
  if (penalty == 1) return;
  for (const std::int32_t id : seen) {
    std::uint8_t& done = seen_[static_cast<std::size_t>(id)];
    if (done != 0) continue;
    done = 1;
    float& logit = candidates_[static_cast<std::size_t>(id)].logit;
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
  for (const std::int32_t id : seen) seen_[static_cast<std::size_t>(id)] = 0;
}

// Moves the candidates that survive to the front, with their weights (likelihoods relative to the likeliest). Returns
// how many. Sorting a whole vocabulary costs 10 ms at 129,280 ids; a heap sorts as many as top-p needs.
std::size_t Sampler::Keep(const SamplingParams& params) {
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
  };
  const float largest = std::max_element(candidates_.begin(), candidates_.end(), worse)->logit;
  const auto weight = [&](const Candidate& c) {
    return std::exp((static_cast<double>(c.logit) - largest) / params.temperature);
  };
  const bool limited = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < candidates_.size();
  if (!limited && params.top_p == 1) return KeepInOrder(params, weight);

  std::make_heap(candidates_.begin(), candidates_.end(), worse);
  // The heap's tail fills with the likeliest, in descending order from the end.
  const auto at = [&](std::size_t i) -> const Candidate& { return candidates_[candidates_.size() - 1 - i]; };
  const auto pop = [&](std::size_t i) {
    std::pop_heap(candidates_.begin(), candidates_.end() - static_cast<std::ptrdiff_t>(i), worse);
  };
  double total = 0;
  std::size_t sorted = 0;
  if (limited) {
    for (; sorted < static_cast<std::size_t>(params.top_k); ++sorted) {
      pop(sorted);
      total += weight(at(sorted));
    }
  } else {
    for (const Candidate& c : candidates_) total += weight(c);
  }
  const std::size_t most = limited ? sorted : candidates_.size();
  double reached = 0;
  std::size_t kept = 0;
  for (; kept < most && (kept == 0 || reached < params.top_p * total); ++kept) {
    if (kept >= sorted) pop(kept);
    weights_[kept] = weight(at(kept));
    if (kept > 0 && weights_[kept] < params.min_p) break;
    reached += weights_[kept];
  }
  std::reverse(candidates_.begin(), candidates_.end());
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

std::int32_t Sampler::Choose(const SamplingParams& params, std::span<const float> logits,
                             std::span<const std::int32_t> seen, std::uint64_t position) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    // A NaN would break the order of the sort: it can never be chosen.
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    candidates_[i] = {logit, static_cast<std::int32_t>(i)};
  }
  Penalise(params.repetition_penalty, seen);
  const auto best = std::max_element(candidates_.begin(), candidates_.end(),
                                     [](const Candidate& a, const Candidate& b) { return a.logit < b.logit; });
  // Likelihoods relative to an infinity are no numbers: there is nothing to draw.
  if (params.temperature == 0 || std::isinf(best->logit)) return best->id;
  const std::size_t kept = Keep(params);
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
