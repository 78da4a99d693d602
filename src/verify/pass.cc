#include "verify/pass.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"
#include "layers/transformer.h"

namespace mla::verify {
namespace {

// Copies rows of the workspace to rows [first, ...) of a matrix made for `total` rows.
void Keep(const float* from, std::int64_t first, std::int64_t rows, std::int64_t cols, std::int64_t total, Matrix* to) {
  if (to->empty()) *to = reference::Zeros(total, cols);
  std::copy_n(from, rows * cols, to->row(first));
}

// Follows one sequence's steps through the stages of each layer.
class Tracer {
 public:
  Tracer(const contract::ModelConfig& config, std::int64_t total, std::vector<LayerTrace>* traces)
      : config_(config), total_(total), traces_(*traces) {
    traces_.resize(static_cast<std::size_t>(config.num_hidden_layers));
  }

  void See(layers::Stage stage, std::int64_t layer, const layers::Workspace& ws, std::int64_t first,
           std::int64_t rows) {
    LayerTrace& trace = traces_[static_cast<std::size_t>(layer)];
    const auto& c = config_;
    const auto keep = [&](const float* from, std::int64_t cols, Matrix* to) {
      Keep(from, first, rows, cols, total_, to);
    };
    const std::int64_t q_width = c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
    switch (stage) {
      case layers::Stage::kEntered: return keep(ws.x, c.hidden_size, &trace.entered);
      case layers::Stage::kProjected:
        keep(ws.normed, c.hidden_size, &trace.normed);
        keep(ws.q_a_kv_a, c.q_lora_rank.value_or(q_width) + c.kv_lora_rank + c.qk_rope_head_dim, &trace.q_a_kv_a);
        return keep(ws.q, q_width, &trace.q);
      case layers::Stage::kAttended: return keep(ws.attended, c.num_attention_heads * c.v_head_dim, &trace.attended);
      case layers::Stage::kAttentionAdded: return keep(ws.x, c.hidden_size, &trace.added);
      case layers::Stage::kDone:
        keep(ws.normed, c.hidden_size, &trace.mlp_normed);
        if (c.IsMoeLayer(layer)) KeepRouting(ws, first, rows, &trace);
        return keep(ws.x, c.hidden_size, &trace.done);
    }
  }

 private:
  void KeepRouting(const layers::Workspace& ws, std::int64_t first, std::int64_t rows, LayerTrace* trace) {
    const std::int64_t k = config_.moe->num_experts_per_tok;
    Keep(ws.router_logits, first, rows, config_.moe->n_routed_experts, total_, &trace->router_logits);
    Keep(ws.expert_weight, first, rows, k, total_, &trace->expert_weight);
    trace->expert.resize(static_cast<std::size_t>(total_ * k));
    std::copy_n(ws.expert, rows * k, trace->expert.begin() + static_cast<std::ptrdiff_t>(first * k));
  }

  const contract::ModelConfig& config_;
  std::int64_t total_;
  std::vector<LayerTrace>& traces_;
};

// The sequence's pages in their order, then ids of no page.
std::vector<std::int32_t> PageTable(std::int64_t pages, std::uint64_t shuffle) {
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages));
  std::iota(table.begin(), table.end(), 0);
  if (shuffle != 0) {
    std::mt19937_64 rng(shuffle);
    for (std::size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[rng() % i]);
  }
  table.push_back(std::numeric_limits<std::int32_t>::max());
  return table;
}

// Every byte of a cache 0xff: NaN in bf16 and in fp32.
void Poison(const LatentCache& cache) {
  for (std::int64_t layer = 0; layer < cache.layout().layers; ++layer) {
    const CacheLayerView view = cache.Layer(layer);
    std::memset(view.data, 0xff, static_cast<std::size_t>(view.pages * view.page_tokens * view.row_bytes));
  }
}

std::int64_t Slot(std::span<const std::int32_t> pages, std::int64_t page_tokens, std::int64_t row) {
  return pages[static_cast<std::size_t>(row / page_tokens)] * page_tokens + row % page_tokens;
}

// Where the step that begins at row `first` ends, and its form.
FormRun StepFrom(const Pass& pass, std::int64_t first) {
  auto run = pass.forms.begin();
  while (run->end <= first) ++run;
  const auto total = std::ssize(pass.ids);
  const bool decoding = pass.decode_from >= 0 && first >= pass.decode_from;
  std::int64_t end = decoding ? first + 1 : pass.chunk > 0 ? first + pass.chunk : total;
  if (pass.decode_from > first) end = std::min(end, pass.decode_from);
  return {std::min({end, run->end, total}), run->form};
}

// Everything that a pass runs on.
struct Machine {
  std::unique_ptr<layers::Transformer> transformer;
  LatentCache cache;
  std::vector<std::int32_t> pages;
};

Result<Machine> Build(const Subject& subject, const Pass& pass, std::int64_t most_rows, layers::ObserveFn observe) {
  const auto& c = subject.config;
  const auto total = std::ssize(pass.ids);
  layers::StepLimits limits;
  limits.max_rows = most_rows;
  limits.max_keys = total;
  limits.workers = subject.executor.workers();
  layers::Parts parts = subject.parts;
  parts.observe = std::move(observe);
  MLA_ASSIGN_OR_RETURN(parts.attend, subject.attention(AttentionOptions(subject, most_rows, total)));
  if (!parts.rope) {
    const std::int64_t context = std::max(pass.context, pass.first_position + total);
    MLA_ASSIGN_OR_RETURN(RopeTable rope, RopeTable::Create(c.rope, context));
    parts.rope = std::make_shared<const RopeTable>(std::move(rope));
  }
  MLA_ASSIGN_OR_RETURN(auto transformer,
                       layers::Transformer::Create(c, *subject.weights, limits, subject.kernels, parts));
  const CacheLayout layout =
      MakeLatentLayout(c.kv_lora_rank, c.qk_rope_head_dim, c.num_hidden_layers, subject.kv_dtype, pass.page_tokens);
  const std::int64_t pages = layout.PagesFor(total);
  MLA_ASSIGN_OR_RETURN(LatentCache cache, LatentCache::Create(layout, pages));
  Poison(cache);
  return Machine{std::move(transformer), std::move(cache), PageTable(pages, pass.shuffle)};
}

void ReadStored(const contract::ModelConfig& c, const Pass& pass, const Machine& machine, PassResult* out) {
  const std::int64_t r = c.kv_lora_rank;
  std::vector<float> row(static_cast<std::size_t>(r + c.qk_rope_head_dim));
  for (std::int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    Matrix& stored = out->layers[static_cast<std::size_t>(layer)].stored;
    stored = reference::Zeros(std::ssize(pass.ids), std::ssize(row));
    for (std::int64_t t = 0; t < stored.rows; ++t) {
      ReadCacheRow(machine.cache.Layer(layer), Slot(machine.pages, pass.page_tokens, t), row.data(), row.data() + r);
      std::copy(row.begin(), row.end(), stored.row(t));
    }
  }
}

// Logits of the step's rows, some at a time.
void GiveLogits(const Subject& subject, const Pass& pass, const Machine& machine, std::int64_t first, std::int64_t rows,
                std::vector<float>* logits, PassResult* out) {
  constexpr std::int64_t kRows = 16;
  const std::int64_t vocab = subject.config.vocab_size;
  logits->resize(static_cast<std::size_t>(kRows * vocab));
  for (std::int64_t at = 0; at < rows; at += kRows) {
    std::vector<std::int32_t> wanted(static_cast<std::size_t>(std::min(kRows, rows - at)));
    std::iota(wanted.begin(), wanted.end(), static_cast<std::int32_t>(at));
    machine.transformer->Logits(wanted, logits->data(), subject.executor);
    const auto count = std::ssize(wanted);
    if (pass.logits) Keep(logits->data(), first + at, count, vocab, std::ssize(pass.ids), &out->logits);
    for (std::int64_t i = 0; pass.sink && i < count; ++i) {
      pass.sink(first + at + i, {logits->data() + i * vocab, static_cast<std::size_t>(vocab)});
    }
  }
}

}  // namespace

Result<PassResult> RunPass(const Subject& subject, const Pass& pass) {
  const auto& c = subject.config;
  const auto total = std::ssize(pass.ids);
  MLA_CHECK(total > 0 && !pass.forms.empty() && pass.forms.back().end >= total);
  std::int64_t most_rows = 1;
  for (std::int64_t at = 0; at < total; at = StepFrom(pass, at).end) {
    most_rows = std::max(most_rows, StepFrom(pass, at).end - at);
  }
  PassResult out;
  Tracer tracer(c, total, &out.layers);
  std::int64_t first = 0;
  layers::ObserveFn observe;
  if (pass.trace) {
    observe = [&](layers::Stage stage, std::int64_t layer, const layers::Workspace& ws, const layers::Batch& batch) {
      tracer.See(stage, layer, ws, first, batch.rows());
    };
  }
  MLA_ASSIGN_OR_RETURN(Machine machine, Build(subject, pass, most_rows, observe));
  std::vector<float> logits;
  while (first < total) {
    const FormRun step = StepFrom(pass, first);
    const std::int64_t rows = step.end - first;
    std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(pass.first_position + first));
    std::vector<std::int64_t> slots;
    for (std::int64_t t = first; t < step.end; ++t) slots.push_back(Slot(machine.pages, pass.page_tokens, t));
    const AttentionSequence sequence{machine.pages, 0, rows, step.end, step.form};
    const auto ids = pass.ids.subspan(static_cast<std::size_t>(first), positions.size());
    const float* normed =
        machine.transformer->Forward({ids, positions, slots, {&sequence, 1}}, machine.cache, subject.executor);
    Keep(normed, first, rows, c.hidden_size, total, &out.final_normed);
    if (pass.logits || pass.sink) GiveLogits(subject, pass, machine, first, rows, &logits, &out);
    first = step.end;
  }
  if (pass.trace) ReadStored(c, pass, machine, &out);
  return out;
}

}  // namespace mla::verify
