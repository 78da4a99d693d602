// The reordering of rope rows: which rows, where to, and back.
#include "contract/rope_rows.h"

#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "contract/tensors.h"
#include "testing/models.h"

namespace mla::contract {
namespace {

using testing::Need;
using testing::TinyOptions;

ModelConfig Parsed(const TinyOptions& options) { return Need(ParseConfig(TinyConfigJson(options), "config.json")); }

std::vector<std::int64_t> Order(const RopeRows& rows, std::int64_t count, RopeLayout to) {
  std::vector<std::int64_t> order;
  for (std::int64_t row = 0; row < count; ++row) order.push_back(rows.Source(row, to));
  return order;
}

TEST(RopeRows, ByHand) {
  // Two heads of 1 + 6 rows, pairs (1, 2), (3, 4), (5, 6) of the first.
  const RopeRows rows{1, 7, 2, 6};
  EXPECT_EQ(Order(rows, 14, RopeLayout::kHalfSplit),
            (std::vector<std::int64_t>{0, 1, 3, 5, 2, 4, 6, 7, 8, 10, 12, 9, 11, 13}));
  EXPECT_EQ(Order(rows, 14, RopeLayout::kInterleaved),
            (std::vector<std::int64_t>{0, 1, 4, 2, 5, 3, 6, 7, 8, 11, 9, 12, 10, 13}));
  // Rows past the last run stay.
  EXPECT_EQ(rows.Source(14, RopeLayout::kHalfSplit), 14);
  EXPECT_EQ(rows.Source(16, RopeLayout::kHalfSplit), 16);
}

// Over dims with P = 2, where nothing moves, and odd heads.
TEST(RopeRows, ThereAndBackIsTheIdentity) {
  for (const std::int64_t heads : {1, 3, 20}) {
    for (const std::int64_t p : {2, 4, 6, 64}) {
      for (const bool q_lora : {true, false}) {
        TinyOptions o;
        o.num_attention_heads = heads;
        o.qk_rope_head_dim = p;
        o.num_nextn_predict_layers = 1;
        if (!q_lora) o.q_lora_rank.reset();
        const ModelConfig config = Parsed(o);
        std::int64_t found = 0;
        for (const TensorSpec& spec : ExpectedTensors(config)) {
          const auto rows = RopeRowsOf(config, spec.name);
          if (!rows) continue;
          ++found;
          const std::int64_t count = spec.shape[0];
          const auto there = Order(*rows, count, RopeLayout::kHalfSplit);
          const auto back = Order(*rows, count, RopeLayout::kInterleaved);
          EXPECT_EQ(std::set(there.begin(), there.end()).size(), there.size()) << spec.name;
          std::int64_t moved = 0;
          for (std::int64_t row = 0; row < count; ++row) {
            const auto at = static_cast<std::size_t>(row);
            EXPECT_EQ(there[static_cast<std::size_t>(back[at])], row) << spec.name;
            moved += there[at] != row ? 1 : 0;
          }
          // Channel i is taken from 2i modulo P - 1: the first and the last of a run stay, and no other.
          const std::int64_t runs = spec.name.ends_with("kv_a_proj_with_mqa.weight") ? 1 : heads;
          EXPECT_EQ(moved, runs * (p - 2)) << spec.name;
        }
        EXPECT_EQ(found, 2 * (config.num_hidden_layers + 1));
      }
    }
  }
}

TEST(RopeRows, OfQueriesAndTheKeyAlone) {
  const ModelConfig config = Parsed({});
  for (const char* name :
       {"model.layers.0.self_attn.q_a_proj.weight", "model.layers.0.self_attn.kv_b_proj.weight", "lm_head.weight",
        "model.layers.0.self_attn.o_proj.weight", "model.layers.0.self_attn.kv_a_layernorm.weight",
        "model.layers.0.self_attn.q_b_proj.weight_scale_inv"}) {
    EXPECT_FALSE(RopeRowsOf(config, name).has_value()) << name;
  }
  const auto key = RopeRowsOf(config, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight");
  EXPECT_EQ(key->first, config.kv_lora_rank);
  EXPECT_EQ(key->blocks, 1);
  EXPECT_FALSE(RopeRowsOf(Parsed(testing::OddOptions()), "model.layers.0.self_attn.q_proj.weight").has_value());
}

TEST(RopeRows, RunsThatPassFromOneBlockOfScalesToTheNext) {
  // DeepSeek-V3's heads of 128 + 64 rows, and its key.
  EXPECT_EQ(RopeBlockFault({128, 192, 128, 64}, {128, 128, false}), std::nullopt);
  EXPECT_EQ(RopeBlockFault({512, 576, 1, 64}, {128, 128, false}), std::nullopt);
  EXPECT_EQ(RopeBlockFault({128, 192, 4, 64}, {1 << 20, 1, false}), std::nullopt);
  // The third head's run begins at row 40 and crosses row 44.
  EXPECT_EQ(*RopeBlockFault({8, 16, 3, 8}, {44, 128, false}),
            "expected its rope rows 40 to 47 within one block of 44 rows of fp8, found them in two or more");
  EXPECT_TRUE(RopeBlockFault({8, 16, 3, 2}, {1, 128, false}).has_value());
}

}  // namespace
}  // namespace mla::contract
