#include "verify/key_weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attention/kernels.h"
#include "verify/bounds.h"

namespace mla::verify {
namespace {

constexpr auto kBlock = static_cast<std::size_t>(attention::kBlockKeys);
constexpr auto kSegment = static_cast<std::size_t>(attention::kSegmentKeys);

// Of bf16's kernels, in units of u: the difference to the maximum, log2(e) in fp32 and the product with it are each
// rounded, so that an exponential's argument is off by this part of itself.
constexpr double kArgument = 3 * kU;
// An exponential, of itself: its polynomial's 2 ulp.
constexpr double kExponential = 4 * kU;

}  // namespace

// Each exponential is off by 8 u of itself (the polynomial's and its argument's rounding), once more for each of the
// tiles after which the state is rescaled; the sum of exponentials and the weighted values are sums over the keys.
KeyWeights::KeyWeights(std::vector<double> scores, std::vector<double> errors, bool bf16) : ds_(std::move(errors)) {
  const std::size_t n = scores.size();
  largest_ = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (std::size_t j = 0; j < n; ++j) {
    const double below = std::abs(scores[j] - largest_);
    // On the way from a key's score to the largest of all, maxima only grow: the arguments' sizes add up to the whole.
    if (bf16) argument_.push_back(kArgument * below);
    if (!bf16 && n > 1) ds_[j] += kU * below;
    p_.push_back(std::exp(scores[j] - largest_));
    sum += p_.back();
  }
  lse_.value = largest_ + std::log(sum);
  relative_ = SumError(count()) + 8 * kU * static_cast<double>(1 + n / 64);
  double mean = 0;
  for (std::size_t j = 0; j < n; ++j) {
    p_[j] /= sum;
    mean += p_[j] * (ds_[j] + (bf16 ? argument_[j] : 0));
  }
  lse_.error = mean + relative_ + 4 * kU * (std::abs(largest_) + std::abs(lse_.value)) + kTiny;
  double largest_error = *std::max_element(ds_.begin(), ds_.end());
  met_ = p_;
  if (bf16) Round(scores);
  for (const Block& block : blocks_) largest_error = std::max(largest_error, ds_[block.largest] + block.error);
  // The terms past the first, for scores so large that fp32 has no digits left of their difference.
  growth_ = std::exp(2 * largest_error);
}

// Where another key may have the maximum, that is larger than this one's score by what their errors allow. It is
// rounded when it is scaled; and on the way to the largest of all, arguments are.
KeyWeights::Block KeyWeights::BlockAt(const std::vector<double>& scores, std::size_t begin) const {
  const std::size_t first = begin / kSegment * kSegment;
  const std::size_t end = std::min(begin + kBlock, scores.size());
  const auto at = std::max_element(scores.begin() + static_cast<std::ptrdiff_t>(first),
                                   scores.begin() + static_cast<std::ptrdiff_t>(end));
  Block block{static_cast<std::size_t>(at - scores.begin()), 0};
  for (std::size_t j = first; j < end; ++j) {
    if (j != block.largest) block.error = std::max(block.error, scores[j] + ds_[j] - (*at - ds_[block.largest]));
  }
  block.error += 2 * kU * std::abs(*at) + kArgument * (largest_ - *at);
  return block;
}

void KeyWeights::Round(const std::vector<double>& scores) {
  rounding_.assign(scores.size(), 0.0);
  for (std::size_t begin = 0; begin < scores.size(); begin += kBlock) {
    const Block block = BlockAt(scores, begin);
    const double max = scores[block.largest];
    const std::size_t end = std::min(begin + kBlock, scores.size());
    std::vector<double> x;
    std::vector<double> error;
    for (std::size_t j = begin; j < end; ++j) {
      // The largest key's error is the maximum's own.
      const double scores_error = j == block.largest ? 0 : ds_[j] + ds_[block.largest];
      x.push_back(std::exp(scores[j] - max));
      error.push_back(x.back() * std::expm1(scores_error + block.error + argument_[j] + kExponential));
    }
    const RoundedInput rounded = RoundInput(x.data(), error.data(), std::ssize(x));
    const double whole = std::exp(max - lse_.value);
    for (std::size_t i = 0; i < x.size(); ++i) met_[begin + i] = rounded.value[i] * whole;
    for (const RoundedInput::Unsure& u : rounded.unsure) rounding_[begin + u.index] = u.rounding * whole;
    blocks_.push_back(block);
  }
}

// Errors ds_j of the scores move it by sum p_j ds_j (x_j - it).
Bound KeyWeights::Mix(const double* x, std::int64_t stride) const {
  double value = 0;
  for (std::int64_t j = 0; j < count(); ++j) value += met(j) * x[j * stride];
  if (!blocks_.empty()) return MixRounded(x, stride, value);
  double moved = 0;
  for (std::int64_t j = 0; j < count(); ++j) {
    const auto at = static_cast<std::size_t>(j);
    moved += p_[at] * ds_[at] * std::abs(x[j * stride] - value);
  }
  return {value, growth_ * moved};
}

// It is (sum_known b_j e^m x_j + sum_unsure e^s_j (1 + d_j) x_j) / sum e^s_j, where b_j is a known weight, m its
// block's maximum, the score of one key but for the block's error, and d_j the rounding of one that is not known. So
// the error of key k's score comes with -p_k (it), with p_k x_k if its weight is not known, and with the known weights
// of the blocks whose maximum it is.
Bound KeyWeights::MixRounded(const double* x, std::int64_t stride, double value) const {
  std::vector<double> known(blocks_.size());
  double arguments = 0;
  double absolute = 0;
  double squares = 0;
  for (std::size_t j = 0; j < p_.size(); ++j) {
    const double element = x[static_cast<std::int64_t>(j) * stride];
    arguments += p_[j] * argument_[j] * (std::abs(element) + std::abs(value));
    if (rounding_[j] == 0) known[j / kBlock] += met_[j] * element;
    absolute += std::abs(rounding_[j] * element);
    squares += std::pow(rounding_[j] * element, 2);
  }
  double moved = 0;
  for (std::size_t k = 0; k < p_.size(); ++k) {
    double by = -p_[k] * value;
    if (rounding_[k] != 0) by += p_[k] * x[static_cast<std::int64_t>(k) * stride];
    for (std::size_t b = 0; b < blocks_.size(); ++b) by += blocks_[b].largest == k ? known[b] : 0;
    moved += std::abs(by) * ds_[k];
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) moved += std::abs(known[b]) * blocks_[b].error;
  return {value, growth_ * moved + arguments + std::min(absolute, kLambda * std::sqrt(squares))};
}

}  // namespace mla::verify
