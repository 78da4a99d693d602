#include "contract/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "contract/config_parts.h"
#include "contract/families.h"
#include "contract/fields.h"
#include "io/file.h"
#include "io/json.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

constexpr NumberRange kModelScale = {0, false, 1e6, "a number above 0, at most 1e6"};
constexpr NumberRange kNormEps = {0, false, 1, "a number above 0, at most 1"};

// Fields that change nothing of what a token's path computes.
constexpr std::string_view kHarmless[] = {
    // Names and versions of classes and files; the tensors carry their own types.
    "architectures", "auto_map", "torch_dtype", "dtype", "transformers_version", "_name_or_path", "model_name",
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation", "_commit_hash", "tokenizer_class",
    "unsloth_fixed", "unsloth_version",
    // How the model was trained, or is spread over devices.
    "initializer_range", "attention_dropout", "aux_loss_alpha", "seq_aux", "router_aux_loss_coef", "pretraining_tp",
    "ep_size", "gradient_checkpointing",
    // What Hugging Face's model class returns, and how it caches.
    "use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "use_return_dict",
    "torchscript", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward", "pruned_heads",
    // Roles that a decoder of text does not have.
    "is_decoder", "tie_encoder_decoder", "cross_attention_hidden_size", "decoder_start_token_id", "finetuning_task",
    "id2label", "label2id", "problem_type", "task_specific_params", "prefix", "sep_token_id",
    // No padding is ever fed to the model.
    "pad_token_id",
    // Defaults of Hugging Face's generate(), as older versions wrote them here; generation_config.json is read instead.
    "bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams",
    "num_return_sequences", "output_scores", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "suppress_tokens", "temperature", "top_k", "top_p", "typical_p"};

// The family; the first one, with a fault recorded, where it is unknown.
const Family& ParseFamily(Fields* fields, ModelConfig* config) {
  const io::JsonValue* value = fields->Take("model_type");
  const Family* family = value != nullptr && value->is_string() ? FindFamily(value->string()) : nullptr;
  if (family == nullptr) {
    fields->Fail("model_type", fmt::format("a supported one ({})", FamilyList()), Describe(value));
    family = &Families().front();
  }
  config->model_type = family->model_type;
  return *family;
}

void ParseDims(Fields* fields, const Family& family, ModelConfig* config) {
  config->vocab_size = fields->Int("vocab_size", 1, kMaxPositions);
  config->hidden_size = fields->Int("hidden_size", 1, kMaxDim);
  config->intermediate_size = fields->Int("intermediate_size", 1, kMaxDim);
  config->num_hidden_layers = fields->Int("num_hidden_layers", 1, kMaxDim);
  config->num_nextn_predict_layers = fields->OptionalInt("num_nextn_predict_layers", 0, kMaxDim).value_or(0);
  config->num_attention_heads = fields->Int("num_attention_heads", 1, kMaxHeads);
  if (fields->Take("q_lora_rank") == nullptr) {
    fields->Fail("q_lora_rank", fmt::format("a whole number from 1 to {}, or null", kMaxDim), "nothing");
  }
  config->q_lora_rank = fields->OptionalInt("q_lora_rank", 1, kMaxDim);
  config->kv_lora_rank = fields->Int("kv_lora_rank", 1, kMaxDim);
  config->qk_nope_head_dim = fields->Int("qk_nope_head_dim", 1, kMaxDim);
  config->qk_rope_head_dim = fields->Int("qk_rope_head_dim", 0, kMaxDim);
  if (config->qk_rope_head_dim % 2 != 0) {
    fields->Fail("qk_rope_head_dim", "an even number", fmt::format("{}", config->qk_rope_head_dim));
  }
  if (family.v_head_dim_follows && fields->TakeValue("v_head_dim") == nullptr) {
    config->v_head_dim = std::max<std::int64_t>(1, config->hidden_size / config->num_attention_heads);
  } else {
    config->v_head_dim = fields->Int("v_head_dim", 1, kMaxDim);
  }
  config->max_position_embeddings = fields->Int("max_position_embeddings", 1, kMaxPositions);
  config->rms_norm_eps = fields->Number("rms_norm_eps", kNormEps);
}

void ParseTokens(Fields* fields, const Family& family, ModelConfig* config) {
  config->tie_word_embeddings = fields->OptionalBool("tie_word_embeddings").value_or(family.tie_word_embeddings);
  config->bos_token_id = fields->OptionalInt("bos_token_id", 0, config->vocab_size - 1);
  config->eos_token_ids = fields->OptionalIds("eos_token_id", config->vocab_size);
}

// MiniCPM's scales. Null means none, as in its configuration class; a missing one is not guessed.
void ParseScales(Fields* fields, const Family& family, ModelConfig* config) {
  if (!family.minicpm_scales) return;
  const auto is_null = [&](const char* name) {
    const io::JsonValue* value = fields->Take(name);
    return value != nullptr && value->is_null();
  };
  config->embedding_scale = fields->Number("scale_emb", kModelScale);
  if (!is_null("scale_depth")) {
    config->residual_scale =
        fields->Number("scale_depth", kModelScale) / std::sqrt(static_cast<double>(config->num_hidden_layers));
  }
  if (!is_null("dim_model_base")) {
    const std::int64_t base = fields->Int("dim_model_base", 1, kMaxDim);
    config->logit_scale = static_cast<double>(base) / static_cast<double>(config->hidden_size);
  }
  // Of its training: how learning rates were scaled.
  fields->OptionalNumber("mup_denominator", kModelScale);
}

// A field that follows from others, or that has one value here.
void ExpectInt(Fields* fields, std::string_view name, std::int64_t expected, std::string_view why) {
  const io::JsonValue* value = fields->TakeValue(name);
  if (value == nullptr || (value->is_int() && value->integer() == expected)) return;
  fields->Fail(name, fmt::format("{} ({})", expected, why), value->Describe());
}

void ExpectFalse(Fields* fields, std::string_view name) {
  const io::JsonValue* value = fields->TakeValue(name);
  if (value == nullptr || (value->is_bool() && !value->boolean())) return;
  fields->Fail(name, "false", value->Describe());
}

void CheckFixed(Fields* fields, const ModelConfig& config) {
  fields->Word("hidden_act", {"silu"});
  for (const char* name : {"attention_bias", "mlp_bias", "is_encoder_decoder", "add_cross_attention"}) {
    ExpectFalse(fields, name);
  }
  ExpectInt(fields, "num_key_value_heads", config.num_attention_heads, "num_attention_heads");
  ExpectInt(fields, "qk_head_dim", config.qk_nope_head_dim + config.qk_rope_head_dim,
            "qk_nope_head_dim + qk_rope_head_dim");
  ExpectInt(fields, "head_dim", config.qk_rope_head_dim, "qk_rope_head_dim");
}

void CheckUnknown(Fields* fields) {
  for (const std::string_view name : kHarmless) fields->Take(name);
  if (const auto unknown = fields->FirstUnknown()) {
    fields->FailText(
        fmt::format("{}: expected no such field, found one that this version does not know", io::Quoted(*unknown, 80)));
  }
}

}  // namespace

Result<ModelConfig> ParseConfig(std::string_view json_text, std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue json, io::ParseJson(json_text, where));
  if (!json.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, json.Describe())};
  Fields fields(json, where);
  ModelConfig config;
  const Family& family = ParseFamily(&fields, &config);
  ParseQuantization(&fields, &config);
  ParseDims(&fields, family, &config);
  config.rope = ParseRope(&fields, family,
                          {.rope_dim = config.qk_rope_head_dim,
                           .head_dim = config.qk_nope_head_dim + config.qk_rope_head_dim,
                           .max_positions = config.max_position_embeddings});
  ParseMoe(&fields, family, &config);
  ParseTokens(&fields, family, &config);
  ParseScales(&fields, family, &config);
  CheckFixed(&fields, config);
  CheckUnknown(&fields);
  if (fields.ok()) CheckTotals(&fields, config);
  if (!fields.ok()) return fields.error();
  return config;
}

Result<ConfigFile> ReadConfigFile(const std::string& path) {
  std::error_code error;
  const std::string file =
      std::filesystem::is_directory(path, error) ? (std::filesystem::path(path) / "config.json").string() : path;
  MLA_ASSIGN_OR_RETURN(std::string text, io::ReadFile(file, kMaxConfigBytes));
  return ConfigFile{std::move(text), io::Printable(file)};
}

Result<ModelConfig> LoadConfig(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const ConfigFile file, ReadConfigFile(path));
  return ParseConfig(file.text, file.where);
}

double SoftmaxScale(const ModelConfig& config) {
  return mla::SoftmaxScale(config.qk_nope_head_dim + config.qk_rope_head_dim, config.rope);
}

}  // namespace mla::contract
