#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "reference/rope.h"
#include "reference/tasks.h"
#include "verify/layer_proof.h"

namespace mla::verify {
namespace {

constexpr std::int64_t kPairRows = 6;
constexpr std::int64_t kPairKeys = 8;

HeadProblem ProblemOf(const LayerUnderProof& layer, const LayerTrace& trace, std::int64_t head) {
  const Subject& s = layer.subject;
  return {weights::DimsOf(s.config),
          reference::AttentionScale(s.config),
          &layer.weights.self_attn.kv_b_proj,
          layer.Rule(fmt::format("model.layers.{}.self_attn.kv_b_proj", layer.index)),
          &trace.stored,
          head,
          layer.bf16_attention};
}

struct Pair {
  std::int64_t row;
  std::int64_t key;
};

std::vector<Pair> PairsOf(std::int64_t rows) {
  std::vector<Pair> pairs;
  for (const std::int64_t row : Spread(rows, kPairRows)) {
    for (const std::int64_t key : Spread(row + 1, kPairKeys)) pairs.push_back({row, key});
  }
  return pairs;
}

// What the subject's attention makes of pairs.
struct PairResults {
  std::vector<float> out;  // [pairs, H, V]
  std::vector<float> lse;  // [pairs, H]
};

// Each stored row in a page of its own; each pair a sequence whose only key is that page.
Result<PairResults> RunPairs(const LayerUnderProof& layer, const LayerTrace& trace, Form form,
                             const std::vector<Pair>& pairs) {
  const Subject& s = layer.subject;
  const auto& c = s.config;
  const std::int64_t keys = trace.stored.rows;
  const auto count = std::ssize(pairs);
  MLA_ASSIGN_OR_RETURN(const layers::AttendFn attend, s.attention(AttentionOptions(s, count, 1)));
  MLA_ASSIGN_OR_RETURN(
      const LatentCache cache,
      LatentCache::Create(MakeLatentLayout(c.kv_lora_rank, c.qk_rope_head_dim, 1, s.kv_dtype, 1), keys));
  for (std::int64_t j = 0; j < keys; ++j) {
    const std::vector<float> row(trace.stored.row(j), trace.stored.row(j) + trace.stored.cols);
    WriteCacheRow(cache.Layer(0), j, row.data(), row.data() + c.kv_lora_rank);
  }
  std::vector<float> q;
  std::vector<std::int32_t> pages;
  for (const Pair& pair : pairs) {
    q.insert(q.end(), trace.q.row(pair.row), trace.q.row(pair.row) + trace.q.cols);
    pages.push_back(static_cast<std::int32_t>(pair.key));
  }
  std::vector<AttentionSequence> sequences;
  for (std::int64_t i = 0; i < count; ++i) {
    sequences.push_back({std::span<const std::int32_t>(pages).subspan(static_cast<std::size_t>(i), 1), i, 1, 1, form});
  }
  PairResults results;
  results.out.resize(static_cast<std::size_t>(count * c.num_attention_heads * c.v_head_dim));
  results.lse.resize(static_cast<std::size_t>(count * c.num_attention_heads));
  const weights::Layer& kept = s.weights->layers[static_cast<std::size_t>(layer.index)];
  attend(cache.Layer(0), *kept.attention.kv_b, sequences, q.data(), results.out.data(), results.lse.data(), s.executor);
  return results;
}

}  // namespace

Status ProvePairs(const LayerUnderProof& layer, const LayerTrace& trace, Form form, const PairTallies& tallies) {
  const auto& c = layer.subject.config;
  const std::int64_t h = c.num_attention_heads;
  const std::int64_t v = c.v_head_dim;
  const std::vector<Pair> pairs = PairsOf(trace.stored.rows);
  MLA_ASSIGN_OR_RETURN(const PairResults found, RunPairs(layer, trace, form, pairs));
  reference::ForTasks(layer.subject.executor, std::ssize(layer.scope.heads), [&](std::int64_t task) {
    const std::int64_t head = layer.scope.heads[static_cast<std::size_t>(task)];
    const AttentionOracle oracle(ProblemOf(layer, trace, head));
    for (std::int64_t i = 0; i < std::ssize(pairs); ++i) {
      const Pair& pair = pairs[static_cast<std::size_t>(i)];
      const double* q = trace.q.row(pair.row) + head * (c.qk_nope_head_dim + c.qk_rope_head_dim);
      const HeadAnswer answer = oracle.Answer(form, q, pair.key, 1);
      Place place{layer.index, pair.row, head};
      const double lse = static_cast<double>(found.lse[static_cast<std::size_t>(i * h + head)]);
      tallies.scores->Add(std::abs(lse - answer.lse), answer.lse_error, std::abs(answer.lse), place);
      const double size = RootMeanSquare(answer.out.data(), v);
      for (place.channel = 0; place.channel < v; ++place.channel) {
        const auto at = static_cast<std::size_t>(place.channel);
        const double out = static_cast<double>(found.out[static_cast<std::size_t>((i * h + head) * v) + at]);
        tallies.values->Add(std::abs(out - answer.out[at]), answer.out_error[at], size, place);
      }
    }
  });
  return {};
}

void ProveAttention(const LayerUnderProof& layer, const LayerTrace& trace, std::span<const FormRun> forms,
                    std::span<const std::int64_t> rows, Tally* tally) {
  const auto& c = layer.subject.config;
  const std::int64_t v = c.v_head_dim;
  reference::ForTasks(layer.subject.executor, std::ssize(layer.scope.heads), [&](std::int64_t task) {
    const std::int64_t head = layer.scope.heads[static_cast<std::size_t>(task)];
    const AttentionOracle oracle(ProblemOf(layer, trace, head));
    for (const std::int64_t row : rows) {
      auto run = forms.begin();
      while (run->end <= row) ++run;
      const double* q = trace.q.row(row) + head * (c.qk_nope_head_dim + c.qk_rope_head_dim);
      const HeadAnswer answer = oracle.Answer(run->form, q, 0, row + 1);
      const double size = RootMeanSquare(answer.out.data(), v);
      Place place{layer.index, row, head};
      for (place.channel = 0; place.channel < v; ++place.channel) {
        const auto at = static_cast<std::size_t>(place.channel);
        const double out = trace.attended.row(row)[head * v + place.channel];
        tally->Add(std::abs(out - answer.out[at]), answer.out_error[at], size, place);
      }
    }
  });
}

}  // namespace mla::verify
