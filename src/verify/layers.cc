#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "verify/layer_proof.h"
#include "verify/levels.h"

namespace mla::verify {
namespace {

// Rows of a pass at a far position: enough for each to see another.
constexpr std::int64_t kFarRows = 3;
constexpr std::int64_t kChunk = 7;  // of the prompt that comes before decoded rows: its borders lie nowhere else

// A place far from the beginning, and the context that is served there.
struct Offset {
  std::int64_t position;
  std::int64_t context;
};

// The beginning of the second page; both sides of the window that was first trained; the last positions there are. For
// longrope those within the window are of a context that ends there.
std::vector<Offset> OffsetsOf(const contract::ModelConfig& c) {
  const std::int64_t last = c.max_position_embeddings - kFarRows;
  const std::int64_t window =
      c.rope.scaling == RopeScaling::kNone ? c.max_position_embeddings / 2 : c.rope.original_max_position_embeddings;
  std::vector<Offset> offsets;
  const auto add = [&](std::int64_t position, std::int64_t context) {
    position = std::min(position, last);
    if (position > 0) offsets.push_back({position, std::max(context, position + kFarRows)});
  };
  const bool by_context = c.rope.scaling == RopeScaling::kLongrope;
  add(63, by_context ? std::min(window, c.max_position_embeddings) : c.max_position_embeddings);
  add(window - kFarRows, by_context ? std::min(window, c.max_position_embeddings) : c.max_position_embeddings);
  add(window - 1, c.max_position_embeddings);
  add(last, c.max_position_embeddings);
  return offsets;
}

struct FarPass {
  Offset offset;
  PassResult result;
};

struct Passes {
  PassResult absorbed;
  PassResult mha;
  PassResult border;
  std::vector<FormRun> border_forms;
  std::vector<std::int64_t> border_rows;
  std::vector<FarPass> far;
};

Result<Passes> RunAll(const Subject& subject, const Scope& scope) {
  const auto total = std::ssize(scope.ids);
  Passes out;
  Pass pass;
  pass.ids = scope.ids;
  pass.trace = true;
  pass.forms = {{total, Form::kAbsorbed}};
  MLA_ASSIGN_OR_RETURN(out.absorbed, RunPass(subject, pass));
  pass.forms = {{total, Form::kMha}};
  MLA_ASSIGN_OR_RETURN(out.mha, RunPass(subject, pass));

  // A prompt in chunks, its rows MHA; then rows one by one, absorbed.
  const std::int64_t prompt = std::max<std::int64_t>(1, total - std::max<std::int64_t>(2, total / 8));
  out.border_forms = {{prompt, Form::kMha}, {total, Form::kAbsorbed}};
  pass.forms = out.border_forms;
  pass.chunk = kChunk;
  pass.decode_from = prompt;
  pass.page_tokens = 16;
  pass.shuffle = 2;
  MLA_ASSIGN_OR_RETURN(out.border, RunPass(subject, pass));
  for (const std::int64_t row : {kChunk - 1, kChunk, kChunk + 1, prompt - 1, prompt, prompt + 1, total - 1}) {
    if (row >= 0 && row < total) out.border_rows.push_back(row);
  }

  for (const Offset& offset : OffsetsOf(subject.config)) {
    Pass far;
    far.ids = std::span(scope.ids).first(static_cast<std::size_t>(std::min(total, kFarRows)));
    far.forms = {{total, Form::kAbsorbed}};
    far.trace = true;
    far.first_position = offset.position;
    far.context = offset.context;
    MLA_ASSIGN_OR_RETURN(PassResult result, RunPass(subject, far));
    out.far.push_back({offset, std::move(result)});
  }
  return out;
}

// Every check of the layers, gathered over them.
struct Tallies {
  Tally embedding{1, "embedding"};
  Tally normed{1, "input norm"};
  Tally q_latent{1, "q latent"};
  Tally q_nope{1, "q_nope"};
  Tally q_pe{1, "q_pe"};
  Tally latent{1, "latent"};
  Tally k_pe{1, "k_pe"};
  Tally stored{1, "cache rows"};
  Tally absorbed_scores{2, "scores, absorbed"};
  Tally absorbed_values{2, "values, absorbed"};
  Tally mha_scores{2, "scores, mha"};
  Tally mha_values{2, "values, mha"};
  Tally absorbed_out{2, "attention, absorbed"};
  Tally mha_out{2, "attention, mha"};
  Tally far_q{3, "q_pe at far positions"};
  Tally far_k{3, "k_pe at far positions"};
  Tally far_out{3, "attention at far positions"};
  Tally border_q{3, "q_pe across prompt and output"};
  Tally border_k{3, "k_pe across prompt and output"};
  Tally border_out{3, "attention across prompt and output"};
  Tally attention_added{6, "o_proj"};
  Tally mlp_normed{6, "post-attention norm"};
  Tally router{6, "router logits"};
  Tally choice{6, "choice of experts"};
  Tally weights{6, "weights of experts"};
  Tally feed_forward{6, "feed-forward"};
  Tally final_norm{6, "final norm"};
  Tally logits{6, "logits from the final norm"};
};

Status ProveLayer(const LayerUnderProof& layer, const Passes& passes, Tallies* t) {
  const Scope& scope = layer.scope;
  const auto at = static_cast<std::size_t>(layer.index);
  const std::int64_t total = std::ssize(scope.ids);
  const LayerTrace& absorbed = passes.absorbed.layers[at];
  const LayerTrace& mha = passes.mha.layers[at];
  const LayerTrace& border = passes.border.layers[at];
  ProveProjection(layer, {absorbed, 0, total}, scope.rows,
                  {&t->normed, &t->q_latent, &t->q_nope, &t->q_pe, &t->latent, &t->k_pe, &t->stored});
  MLA_RETURN_IF_ERROR(ProvePairs(layer, absorbed, Form::kAbsorbed, {&t->absorbed_scores, &t->absorbed_values}));
  MLA_RETURN_IF_ERROR(ProvePairs(layer, absorbed, Form::kMha, {&t->mha_scores, &t->mha_values}));
  const std::vector<FormRun> as_absorbed = {{total, Form::kAbsorbed}};
  const std::vector<FormRun> as_mha = {{total, Form::kMha}};
  ProveAttention(layer, absorbed, as_absorbed, scope.rows, &t->absorbed_out);
  ProveAttention(layer, mha, as_mha, scope.rows, &t->mha_out);
  const std::vector<std::int64_t> far_rows = Spread(std::min(total, kFarRows), kFarRows);
  for (const FarPass& far : passes.far) {
    const LayerTrace& trace = far.result.layers[at];
    ProveProjection(layer, {trace, far.offset.position, far.offset.context}, far_rows,
                    {nullptr, nullptr, nullptr, &t->far_q, nullptr, &t->far_k, nullptr});
    ProveAttention(layer, trace, as_absorbed, far_rows, &t->far_out);
  }
  ProveProjection(layer, {border, 0, total}, passes.border_rows,
                  {nullptr, nullptr, nullptr, &t->border_q, nullptr, &t->border_k, nullptr});
  ProveAttention(layer, border, passes.border_forms, passes.border_rows, &t->border_out);
  ProveFeedForward(layer, absorbed, scope.rows,
                   {&t->attention_added, &t->mlp_normed, &t->router, &t->choice, &t->weights, &t->feed_forward});
  return {};
}

void ProveEmbedding(const Subject& subject, const Scope& scope, const Passes& passes, Tally* tally) {
  const auto& c = subject.config;
  const reference::TensorReader reader(c, subject.checkpoint);
  const double unit = WeightUnit(subject, "model.embed_tokens") + kU;
  for (const std::int64_t row : scope.rows) {
    Bounded expected = Exact(
        reader.Rows("model.embed_tokens", c.vocab_size, c.hidden_size, scope.ids[static_cast<std::size_t>(row)], 1));
    for (std::size_t i = 0; i < expected.value.values.size(); ++i) {
      double& value = expected.value.values[i];
      value *= c.embedding_scale;
      expected.error.values[i] = unit * std::abs(value) + kTiny;
    }
    CompareRow(passes.absorbed.layers[0].entered.row(row), expected, 0, 0, c.hidden_size, {-1, row}, tally);
  }
}

// The final norm, and what of the logits follows from it: some rows, some blocks of the vocabulary.
Status ProveHead(const Subject& subject, const Scope& scope, const Passes& passes, bool bf16_inputs, Tallies* t) {
  constexpr std::int64_t kBlock = 256;
  constexpr std::int64_t kBlocks = 16;
  const auto& c = subject.config;
  const auto total = std::ssize(scope.ids);
  const reference::TensorReader reader(c, subject.checkpoint);
  const std::vector<std::int64_t> rows = Spread(total, 4);
  const Bounded normed = BoundedNorm(Exact(Pick(passes.absorbed.layers.back().done, rows)), 0,
                                     reader.Vector("model.norm.weight", c.hidden_size), c.rms_norm_eps);
  const Matrix found = Pick(passes.absorbed.final_normed, rows);
  Pass pass;
  pass.ids = scope.ids;
  pass.forms = {{total, Form::kAbsorbed}};
  pass.logits = true;
  MLA_ASSIGN_OR_RETURN(const PassResult result, RunPass(subject, pass));
  const Matrix logits = Pick(result.logits, rows);
  const Bounded final_normed = Exact(Pick(result.final_normed, rows));
  const std::string head = c.tie_word_embeddings ? "model.embed_tokens" : "lm_head";
  for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
    const Place place{-1, rows[static_cast<std::size_t>(i)]};
    CompareRow(found.row(i), normed, i, 0, c.hidden_size, place, &t->final_norm);
  }
  for (const std::int64_t block : Spread((c.vocab_size - 1) / kBlock + 1, kBlocks)) {
    const std::int64_t first = block * kBlock;
    const std::int64_t count = std::min(kBlock, c.vocab_size - first);
    Bounded expected = BoundedProduct(final_normed, reader.Rows(head, c.vocab_size, c.hidden_size, first, count),
                                      {WeightUnit(subject, head), bf16_inputs}, subject.executor);
    for (std::size_t i = 0; i < expected.value.values.size(); ++i) {
      expected.value.values[i] *= c.logit_scale;
      expected.error.values[i] = c.logit_scale * expected.error.values[i] + 2 * kU * std::abs(expected.value.values[i]);
    }
    for (std::int64_t i = 0; i < std::ssize(rows); ++i) {
      const Place place{-1, rows[static_cast<std::size_t>(i)]};
      CompareRow(logits.row(i) + first, expected, i, 0, count, place, &t->logits);
    }
  }
  return {};
}

void AddAll(const contract::ModelConfig& c, Tallies* t, Report* report) {
  for (Tally* tally :
       {&t->embedding,    &t->normed,       &t->q_latent,        &t->q_nope,          &t->q_pe,       &t->latent,
        &t->k_pe,         &t->stored,       &t->absorbed_scores, &t->absorbed_values, &t->mha_scores, &t->mha_values,
        &t->absorbed_out, &t->mha_out,      &t->far_q,           &t->far_k,           &t->far_out,    &t->border_q,
        &t->border_k,     &t->border_out,   &t->attention_added, &t->mlp_normed,      &t->router,     &t->choice,
        &t->weights,      &t->feed_forward, &t->final_norm,      &t->logits}) {
    // What the model does not have is not left out of its proof.
    const bool absent =
        (tally == &t->q_latent && !c.q_lora_rank) ||
        (c.qk_rope_head_dim == 0 && (tally == &t->q_pe || tally == &t->k_pe || tally == &t->far_q ||
                                     tally == &t->far_k || tally == &t->border_q || tally == &t->border_k)) ||
        (!c.moe && (tally == &t->router || tally == &t->choice || tally == &t->weights));
    if (!absent) report->Add(tally->Finish());
  }
}

}  // namespace

Status ProveLayers(const Subject& subject, const Scope& scope, const Budget& budget, Report* report) {
  constexpr double kPart = 1.0 / 3;
  MLA_ASSIGN_OR_RETURN(const Passes passes, RunAll(subject, scope));
  const reference::TensorReader reader(subject.config, subject.checkpoint);
  MLA_ASSIGN_OR_RETURN(const bool bf16_inputs, Bf16Inputs(subject));
  MLA_ASSIGN_OR_RETURN(const bool bf16_attention, Bf16Attention(subject));
  Tallies tallies;
  ProveEmbedding(subject, scope, passes, &tallies.embedding);
  std::int64_t done = 0;
  for (const std::int64_t index : scope.layers) {
    // The first, and the first with experts, come whatever they cost.
    if (budget.Cancelled() || (done >= 2 && budget.Past(kPart))) break;
    const LayerUnderProof layer{subject,     scope,         index, reference::LoadLayer(reader, index),
                                bf16_inputs, bf16_attention};
    MLA_RETURN_IF_ERROR(ProveLayer(layer, passes, &tallies));
    ++done;
  }
  MLA_RETURN_IF_ERROR(ProveHead(subject, scope, passes, bf16_inputs, &tallies));
  AddAll(subject.config, &tallies, report);
  const std::string sampled = Sampled(subject, scope, done);
  if (!sampled.empty()) report->sampled.push_back("levels 1, 2, 3 and 6 within layers: " + sampled);
  return {};
}

}  // namespace mla::verify
