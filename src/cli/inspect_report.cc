#include "cli/inspect_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/output.h"
#include "io/quote.h"
#include "mla/attention.h"

namespace mla::cli {
namespace {

const char* ScalingName(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kNone: return "none";
    case RopeScaling::kYarn: return "yarn";
    case RopeScaling::kLongrope: return "longrope";
  }
  return "?";
}

std::string BytesLine(std::int64_t bytes) { return fmt::format("{} bytes ({})", Grouped(bytes), HumanBytes(bytes)); }

std::int64_t MoeLayers(const contract::ModelConfig& c) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) count += c.IsMoeLayer(i) ? 1 : 0;
  return count;
}

class Table {
 public:
  void Add(std::string_view name, std::string_view value) { text_ += fmt::format("{:<22} {}\n", name, value); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void AddDims(const contract::ModelConfig& c, Table* t) {
  t->Add("family", c.model_type);
  t->Add("hidden / layers", fmt::format("{} / {}", c.hidden_size, c.num_hidden_layers));
  t->Add("attention", fmt::format("{} heads; q_lora_rank {}, kv_lora_rank {}; nope {}, rope {}, v {}",
                                  c.num_attention_heads, c.q_lora_rank ? std::to_string(*c.q_lora_rank) : "none",
                                  c.kv_lora_rank, c.qk_nope_head_dim, c.qk_rope_head_dim, c.v_head_dim));
  t->Add("vocabulary", fmt::format("{}{}", c.vocab_size, c.tie_word_embeddings ? ", tied embeddings" : ""));
  t->Add("positions", std::to_string(c.max_position_embeddings));
  t->Add("norm eps", fmt::format("{} of layers, {} of latents", c.rms_norm_eps, c.latent_norm_eps));
  if (c.embedding_scale != 1 || c.residual_scale != 1 || c.logit_scale != 1) {
    t->Add("scales", fmt::format("embeddings times {}, residual branches times {:.5g}, logits times {:.5g}",
                                 c.embedding_scale, c.residual_scale, c.logit_scale));
  }
}

void AddRope(const RopeSpec& rope, Table* t) {
  std::string text =
      fmt::format("{}, theta {}, scaling {}", RopeLayoutName(rope.layout), rope.theta, ScalingName(rope.scaling));
  if (rope.scaling == RopeScaling::kYarn) {
    text += fmt::format(" (factor {}, original {}, beta {} to {}, mscale {}, mscale_all_dim {})", rope.factor,
                        rope.original_max_position_embeddings, rope.beta_fast, rope.beta_slow, rope.mscale,
                        rope.mscale_all_dim);
  } else if (rope.scaling == RopeScaling::kLongrope) {
    text += fmt::format(" (short factors in contexts up to {}, long ones beyond; the context served decides at load)",
                        rope.original_max_position_embeddings);
  }
  t->Add("rope", text);
}

void AddScales(double softmax, std::string_view softmax_formula, double cos_sin, std::string_view cos_sin_formula,
               Table* t) {
  t->Add("softmax scale", fmt::format("{:.5g} = {}", softmax, softmax_formula));
  t->Add("cos/sin scale", fmt::format("{:.5g} = {}", cos_sin, cos_sin_formula));
}

void AddFeedForward(const contract::ModelConfig& c, Table* t) {
  if (!c.moe) {
    t->Add("feed-forward", fmt::format("dense, {}", c.intermediate_size));
    return;
  }
  const contract::MoeConfig& m = *c.moe;
  t->Add("feed-forward", fmt::format("{} dense layers of {}, {} with experts of {}", c.num_hidden_layers - MoeLayers(c),
                                     c.intermediate_size, MoeLayers(c), m.moe_intermediate_size));
  t->Add("routing", fmt::format("{} experts, {} a token, {} shared; {}, {}; best {} of {} groups; weights {}, times {}",
                                m.n_routed_experts, m.num_experts_per_tok, m.n_shared_experts,
                                ScoringFuncName(m.scoring_func), TopkMethodName(m.topk_method), m.topk_group, m.n_group,
                                m.norm_topk_prob ? "normalised" : "as scored", m.routed_scaling_factor));
}

// Faults that are listed of a kind; a wrong folder can have hundreds of thousands.
constexpr std::size_t kFaultsShown = 20;

void AddFaults(std::string_view kind, const std::vector<std::string>& faults, Table* t) {
  const std::size_t shown = std::min(faults.size(), kFaultsShown);
  for (std::size_t i = 0; i < shown; ++i) t->Add(kind, io::Printable(faults[i]));
  if (faults.size() > shown) t->Add(kind, fmt::format("and {} more", faults.size() - shown));
}

std::vector<std::string> FirstFaults(const std::vector<std::string>& faults) {
  constexpr std::size_t kMost = 1000;
  return {faults.begin(), faults.begin() + static_cast<std::ptrdiff_t>(std::min(faults.size(), kMost))};
}

void AddTensors(const InspectReport::Tensors& tensors, Table* t) {
  t->Add("checkpoint", fmt::format("{} tensors, {}", tensors.count, BytesLine(tensors.file_bytes)));
  if (tensors.report.ok()) {
    t->Add("tensor contract", "every tensor is as the config says");
    return;
  }
  t->Add("tensor contract", fmt::format("{} missing, {} mismatched, {} unexpected", tensors.report.missing.size(),
                                        tensors.report.mismatched.size(), tensors.report.extra.size()));
  AddFaults("  missing", tensors.report.missing, t);
  AddFaults("  mismatched", tensors.report.mismatched, t);
  AddFaults("  unexpected", tensors.report.extra, t);
}

nlohmann::ordered_json RopeJson(const RopeSpec& rope, std::uint64_t fingerprint) {
  nlohmann::ordered_json j = {
      {"layout", RopeLayoutName(rope.layout)}, {"theta", rope.theta}, {"scaling", ScalingName(rope.scaling)}};
  if (rope.scaling == RopeScaling::kYarn) {
    j["factor"] = rope.factor;
    j["original_max_position_embeddings"] = rope.original_max_position_embeddings;
    j["beta_fast"] = rope.beta_fast;
    j["beta_slow"] = rope.beta_slow;
    j["mscale"] = rope.mscale;
    j["mscale_all_dim"] = rope.mscale_all_dim;
  } else if (rope.scaling == RopeScaling::kLongrope) {
    j["original_max_position_embeddings"] = rope.original_max_position_embeddings;
    j["short_factor"] = rope.short_factor;
    j["long_factor"] = rope.long_factor;
    j["attention_factor"] = rope.attention_factor;
  }
  j["fingerprint"] = fmt::format("{:016x}", fingerprint);
  return j;
}

nlohmann::ordered_json DimsJson(const contract::ModelConfig& c) {
  nlohmann::ordered_json j = {{"hidden_size", c.hidden_size},
                              {"num_hidden_layers", c.num_hidden_layers},
                              {"num_attention_heads", c.num_attention_heads},
                              {"q_lora_rank", nullptr},
                              {"kv_lora_rank", c.kv_lora_rank},
                              {"qk_nope_head_dim", c.qk_nope_head_dim},
                              {"qk_rope_head_dim", c.qk_rope_head_dim},
                              {"v_head_dim", c.v_head_dim},
                              {"intermediate_size", c.intermediate_size},
                              {"vocab_size", c.vocab_size},
                              {"max_position_embeddings", c.max_position_embeddings},
                              {"num_nextn_predict_layers", c.num_nextn_predict_layers},
                              {"rms_norm_eps", c.rms_norm_eps},
                              {"latent_norm_eps", c.latent_norm_eps},
                              {"tie_word_embeddings", c.tie_word_embeddings},
                              {"embedding_scale", c.embedding_scale},
                              {"residual_scale", c.residual_scale},
                              {"logit_scale", c.logit_scale}};
  if (c.q_lora_rank) j["q_lora_rank"] = *c.q_lora_rank;
  return j;
}

nlohmann::ordered_json RoutingJson(const contract::ModelConfig& c) {
  if (!c.moe) return nullptr;
  const contract::MoeConfig& m = *c.moe;
  return {{"scoring_func", ScoringFuncName(m.scoring_func)},
          {"topk_method", TopkMethodName(m.topk_method)},
          {"n_routed_experts", m.n_routed_experts},
          {"num_experts_per_tok", m.num_experts_per_tok},
          {"n_shared_experts", m.n_shared_experts},
          {"moe_intermediate_size", m.moe_intermediate_size},
          {"n_group", m.n_group},
          {"topk_group", m.topk_group},
          {"norm_topk_prob", m.norm_topk_prob},
          {"routed_scaling_factor", m.routed_scaling_factor},
          {"moe_layers", MoeLayers(c)}};
}

}  // namespace

std::string SoftmaxFormula(std::int64_t nope, std::int64_t rope_dim, const RopeSpec& rope) {
  std::string formula = fmt::format("({} + {})^-1/2", nope, rope_dim);
  if (rope.scaling == RopeScaling::kYarn && rope.mscale_all_dim != 0) {
    formula += fmt::format(" * (0.1 * {} * ln {} + 1)^2", rope.mscale_all_dim, rope.factor);
  }
  return formula;
}

std::string CosSinFormula(const RopeSpec& rope) {
  switch (rope.scaling) {
    case RopeScaling::kNone: return "1, no scaling";
    case RopeScaling::kLongrope: return "attention factor";
    case RopeScaling::kYarn: break;
  }
  return fmt::format("(0.1 * {} * ln {} + 1) / (0.1 * {} * ln {} + 1)", rope.mscale, rope.factor, rope.mscale_all_dim,
                     rope.factor);
}

std::string OutlineText(const contract::Outline& o) {
  Table t;
  t.Add("family", o.model_type);
  t.Add("can be run", "no: " + o.blocker);
  t.Add("attention",
        fmt::format("{} with latents; {} heads; q_lora_rank {}, kv_lora_rank {}; nope {}, rope {}, v {}",
                    o.latent_layers, o.num_attention_heads, o.q_lora_rank ? std::to_string(*o.q_lora_rank) : "none",
                    o.kv_lora_rank, o.qk_nope_head_dim, o.qk_rope_head_dim, o.v_head_dim));
  AddRope(o.rope, &t);
  AddScales(o.softmax_scale(), SoftmaxFormula(o.qk_nope_head_dim, o.qk_rope_head_dim, o.rope), CosSinScale(o.rope),
            CosSinFormula(o.rope), &t);
  t.Add("latents a token, bf16", fmt::format("{} bytes", Grouped(o.latent_bytes_bf16())));
  return t.text();
}

std::string OutlineJson(const contract::Outline& o) {
  nlohmann::ordered_json j;
  j["model_type"] = o.model_type;
  j["can_be_run"] = false;
  j["blocker"] = o.blocker;
  j["dims"] = {{"latent_layers", o.latent_layers},
               {"num_attention_heads", o.num_attention_heads},
               {"q_lora_rank", nullptr},
               {"kv_lora_rank", o.kv_lora_rank},
               {"qk_nope_head_dim", o.qk_nope_head_dim},
               {"qk_rope_head_dim", o.qk_rope_head_dim},
               {"v_head_dim", o.v_head_dim}};
  if (o.q_lora_rank) j["dims"]["q_lora_rank"] = *o.q_lora_rank;
  j["rope"] = RopeJson(o.rope, RopeFingerprint(o.rope, o.max_position_embeddings));
  j["softmax_scale"] = {{"value", o.softmax_scale()},
                        {"formula", SoftmaxFormula(o.qk_nope_head_dim, o.qk_rope_head_dim, o.rope)}};
  j["cos_sin_scale"] = {{"value", CosSinScale(o.rope)}, {"formula", CosSinFormula(o.rope)}};
  j["latent_bytes_per_token_bf16"] = o.latent_bytes_bf16();
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string InspectText(const InspectReport& r) {
  Table t;
  AddDims(r.config, &t);
  AddRope(r.config.rope, &t);
  t.Add("rope fingerprint", fmt::format("{:016x}, in the full context", r.rope_fingerprint));
  AddScales(r.softmax_scale, r.softmax_formula, r.cos_sin_scale, r.cos_sin_formula, &t);
  AddFeedForward(r.config, &t);
  t.Add("parameters",
        fmt::format("{}, {} active per token", Grouped(r.parameters.total), Grouped(r.parameters.active)));
  if (r.config.num_nextn_predict_layers > 0) {
    t.Add("MTP layers",
          fmt::format("{}, {} parameters more", r.config.num_nextn_predict_layers, Grouped(r.parameters.mtp)));
  }
  if (r.weight_bytes_fp8) t.Add("weights, fp8", BytesLine(*r.weight_bytes_fp8));
  t.Add("weights, bf16", BytesLine(r.weight_bytes_bf16));
  t.Add("weights, f32", BytesLine(r.weight_bytes_f32));
  t.Add("cache a token, bf16",
        fmt::format("{} bytes; MHA with the same heads: {} ({:.1f} times)", Grouped(r.cache_bytes_bf16),
                    Grouped(r.mha_cache_bytes_bf16),
                    static_cast<double>(r.mha_cache_bytes_bf16) / static_cast<double>(r.cache_bytes_bf16)));
  t.Add("cache a token, f32", fmt::format("{} bytes", Grouped(r.cache_bytes_f32)));
  if (r.tensors) {
    AddTensors(*r.tensors, &t);
  } else {
    t.Add("checkpoint", "none: the config alone");
  }
  return t.text();
}

std::string InspectJson(const InspectReport& r) {
  nlohmann::ordered_json j;
  j["model_type"] = r.config.model_type;
  j["dims"] = DimsJson(r.config);
  j["rope"] = RopeJson(r.config.rope, r.rope_fingerprint);
  j["softmax_scale"] = {{"value", r.softmax_scale}, {"formula", r.softmax_formula}};
  j["cos_sin_scale"] = {{"value", r.cos_sin_scale}, {"formula", r.cos_sin_formula}};
  j["routing"] = RoutingJson(r.config);
  j["parameters"] = {{"total", r.parameters.total}, {"active", r.parameters.active}, {"mtp", r.parameters.mtp}};
  j["weight_bytes"] = {{"bf16", r.weight_bytes_bf16}, {"f32", r.weight_bytes_f32}};
  if (r.weight_bytes_fp8) j["weight_bytes"]["fp8"] = *r.weight_bytes_fp8;
  j["cache_bytes_per_token"] = {
      {"bf16", r.cache_bytes_bf16}, {"f32", r.cache_bytes_f32}, {"mha_same_heads_bf16", r.mha_cache_bytes_bf16}};
  j["tensors"] = nullptr;
  if (r.tensors) {
    j["tensors"] = {{"count", r.tensors->count},
                    {"file_bytes", r.tensors->file_bytes},
                    {"ok", r.tensors->report.ok()},
                    {"missing_count", r.tensors->report.missing.size()},
                    {"mismatched_count", r.tensors->report.mismatched.size()},
                    {"unexpected_count", r.tensors->report.extra.size()},
                    {"missing", FirstFaults(r.tensors->report.missing)},
                    {"mismatched", FirstFaults(r.tensors->report.mismatched)},
                    {"unexpected", FirstFaults(r.tensors->report.extra)}};
  }
  return j.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace mla::cli
