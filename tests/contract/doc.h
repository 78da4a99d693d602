// A small deepseek_v3 config as fields of raw JSON, to be edited.
#ifndef MLA_TESTS_CONTRACT_DOC_H_
#define MLA_TESTS_CONTRACT_DOC_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/config.h"

namespace mla::contract {

// The base is written out here, apart from the helper of other tests.
class Doc {
 public:
  Doc()
      : fields_({{"model_type", R"("deepseek_v3")"},
                 {"vocab_size", "100"},
                 {"hidden_size", "64"},
                 {"intermediate_size", "96"},
                 {"moe_intermediate_size", "32"},
                 {"num_hidden_layers", "3"},
                 {"num_nextn_predict_layers", "1"},
                 {"num_attention_heads", "4"},
                 {"num_key_value_heads", "4"},
                 {"n_shared_experts", "1"},
                 {"n_routed_experts", "16"},
                 {"routed_scaling_factor", "2.5"},
                 {"kv_lora_rank", "32"},
                 {"q_lora_rank", "48"},
                 {"qk_rope_head_dim", "8"},
                 {"v_head_dim", "24"},
                 {"qk_nope_head_dim", "16"},
                 {"topk_method", R"("noaux_tc")"},
                 {"n_group", "4"},
                 {"topk_group", "2"},
                 {"num_experts_per_tok", "4"},
                 {"moe_layer_freq", "1"},
                 {"first_k_dense_replace", "1"},
                 {"norm_topk_prob", "true"},
                 {"scoring_func", R"("sigmoid")"},
                 {"hidden_act", R"("silu")"},
                 {"max_position_embeddings", "4096"},
                 {"rms_norm_eps", "1e-05"},
                 {"rope_theta", "50000"},
                 {"rope_scaling", Yarn()},
                 {"bos_token_id", "0"},
                 {"eos_token_id", "1"}}) {}

  static std::string Yarn(const std::string& more = "") {
    return R"({"type": "yarn", "factor": 40, "original_max_position_embeddings": 1024, "beta_fast": 16, "beta_slow": 2, )"
           R"("mscale": 0.7, "mscale_all_dim": 0.5)" +
           more + "}";
  }

  Doc& Set(const std::string& name, const std::string& raw) {
    const auto at = std::find_if(fields_.begin(), fields_.end(), [&](const auto& f) { return f.first == name; });
    if (at != fields_.end()) {
      at->second = raw;
    } else {
      fields_.emplace_back(name, raw);
    }
    return *this;
  }
  Doc& Remove(const std::string& name) {
    std::erase_if(fields_, [&](const auto& f) { return f.first == name; });
    return *this;
  }
  std::string text() const {
    std::string out = "{";
    for (const auto& [name, raw] : fields_) out += (out.size() > 1 ? ",\n\"" : "\"") + name + "\": " + raw;
    return out + "}";
  }
  Result<ModelConfig> Parse() const { return ParseConfig(text(), "config.json"); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

inline ModelConfig Good(const Doc& doc) {
  const Result<ModelConfig> config = doc.Parse();
  EXPECT_TRUE(config.ok()) << config.error().message;
  return config.ok() ? *config : ModelConfig();
}

// The message, which must be one line that opens with the place; "" where the config was taken.
inline std::string Fault(const Doc& doc) {
  const Result<ModelConfig> config = doc.Parse();
  if (config.ok()) return "";
  const std::string& message = config.error().message;
  EXPECT_EQ(message.rfind("config.json: ", 0), 0U) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  EXPECT_THAT(message, ::testing::AllOf(::testing::HasSubstr("expected "), ::testing::HasSubstr("found "))) << message;
  return message;
}

}  // namespace mla::contract

#endif  // MLA_TESTS_CONTRACT_DOC_H_
