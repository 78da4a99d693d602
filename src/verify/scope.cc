#include "verify/scope.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <set>

#include <fmt/format.h>

#include "reference/streamed.h"
#include "reference/vector_math.h"

namespace mla::verify {
namespace {

// Fewer show no borders.
constexpr std::int64_t kLeastTokens = 20;
constexpr std::int64_t kMostHeads = 16;
// Of the rate of sums in the cache: weights are widened from the file, and read from memory. A layer of
// DeepSeek-V2-Lite's shape came to a fifth on two cores.
constexpr double kSustained = 0.2;
// Sums with their squares beside plain ones, in time.
constexpr double kSquaresCost = 3;

// Multiply-adds a second of one worker on the oracle's sums, over 10 ms of numbers that are in its cache already.
double MeasureRate() {
  const std::vector<double> a(4096, 0.5);
  double sum = 0;
  double work = 0;
  const auto begin = Clock::now();
  double spent = 0;
  while (spent < 0.01) {
    for (int i = 0; i < 16; ++i) sum += reference::Dot(a.data(), a.data(), 4096);
    work += 16 * 4096;
    spent = Since(begin);
  }
  return sum > 0 ? work / spent : 1;
}

std::int64_t Tokens(double seconds, double rate, double work_a_token, std::int64_t most) {
  return static_cast<std::int64_t>(std::clamp(seconds * rate / work_a_token, 0.0, static_cast<double>(most)));
}

// The first, the first with experts, the last, then the others spread out: each halving of the gaps in turn.
std::vector<std::int64_t> LayerOrder(const contract::ModelConfig& c) {
  std::vector<std::int64_t> order = {0};
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    if (c.IsMoeLayer(i)) {
      order.push_back(i);
      break;
    }
  }
  order.push_back(c.num_hidden_layers - 1);
  for (std::int64_t count = 3; count < 2 * c.num_hidden_layers; count = 2 * count - 1) {
    for (const std::int64_t i : Spread(c.num_hidden_layers, std::min(count, c.num_hidden_layers))) order.push_back(i);
  }
  std::vector<std::int64_t> unique;
  std::set<std::int64_t> seen;
  for (const std::int64_t i : order) {
    if (seen.insert(i).second) unique.push_back(i);
  }
  return unique;
}

}  // namespace

std::vector<std::int64_t> Spread(std::int64_t n, std::int64_t count) {
  std::vector<std::int64_t> out;
  count = std::min(n, count);
  for (std::int64_t i = 0; i < count; ++i) out.push_back(count == 1 ? 0 : i * (n - 1) / (count - 1));
  return out;
}

Scope ChooseScope(const Subject& subject, std::vector<std::int32_t> ids, const Budget& budget,
                  std::int64_t most_tokens) {
  const auto& c = subject.config;
  Scope scope;
  scope.rate = kSustained * MeasureRate() * subject.executor.workers();
  const double token = reference::StreamedWork(c, 1, 0);
  const double head = reference::StreamedWork(c, 0, 1);
  const std::int64_t most = std::min(most_tokens, c.max_position_embeddings);
  // Production's kernels are some ten times as fast as the oracle's; about forty passes are run.
  const std::int64_t tokens =
      std::max(std::min(kLeastTokens, most), Tokens(budget.seconds() / 4, scope.rate, 4 * (token + head), most));
  std::mt19937_64 rng(1);
  while (std::ssize(ids) < tokens) {
    ids.push_back(static_cast<std::int32_t>(rng() % static_cast<std::uint64_t>(c.vocab_size)));
  }
  ids.resize(static_cast<std::size_t>(tokens));
  scope.ids = std::move(ids);
  // Each row is looked at in several passes.
  const std::int64_t rows =
      std::max<std::int64_t>(4, Tokens(budget.seconds() / 8, scope.rate, 3 * kSquaresCost * token, tokens));
  scope.rows = Spread(tokens, rows);
  scope.heads = Spread(c.num_attention_heads, kMostHeads);
  scope.layers = LayerOrder(c);
  // One exact run and eight rounded ones. Eight tokens of a sequence show every path: they may take the whole budget.
  const bool f32 = subject.kv_dtype == DType::kF32;  // at most: inputs in bf16 cost less
  const double token_work = (1 + 8 * (f32 ? kSquaresCost : 1)) * (token + head);
  const std::int64_t least = std::min<std::int64_t>(8, tokens);
  const std::int64_t end_to_end = Tokens(budget.seconds() / 3, scope.rate, token_work, tokens);
  const std::int64_t at_most = Tokens(budget.seconds(), scope.rate, token_work, tokens);
  scope.end_to_end = at_most < least ? 0 : std::max(least, end_to_end);
  return scope;
}

std::string Sampled(const Subject& subject, const Scope& scope, std::int64_t layers_done) {
  const auto& c = subject.config;
  std::string text;
  const auto add = [&](std::int64_t part, std::int64_t whole, const char* what) {
    if (part < whole) text += fmt::format("{}{} of {} {}", text.empty() ? "" : ", ", part, whole, what);
  };
  add(layers_done, c.num_hidden_layers, "layers");
  add(std::ssize(scope.rows), std::ssize(scope.ids), "rows");
  add(std::ssize(scope.heads), c.num_attention_heads, "heads");
  return text;
}

}  // namespace mla::verify
