// Models over ranks: shares add up, what can't be cut is refused, and collectives have the bytes of their shapes.
#include "plan/ranks.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_testing.h"
#include "plan/work.h"

namespace mla::testing {
namespace {

using plan::Collective;
using plan::MemoryOptions;
using plan::MemoryUse;
using plan::Part;
using plan::Planner;
using plan::Ranks;
using plan::Shape;
using ::testing::HasSubstr;

MemoryUse Use(const std::string& path, const Ranks& ranks, std::int64_t context = 4096, std::int64_t users = 8) {
  static std::map<std::string, plan::Subject> subjects;
  auto it = subjects.find(path);
  if (it == subjects.end()) it = subjects.emplace(path, SubjectOf(path)).first;
  MemoryOptions options;
  options.row = Row("bf16");
  options.ranks = ranks;
  return Need(Need(Planner::Create(it->second, options)).At(context, users));
}

std::map<std::string, std::int64_t> Weights(const MemoryUse& use) {
  std::map<std::string, std::int64_t> parts;
  for (const plan::WeightBytes& w : use.weight_parts) parts[w.part] += w.bytes;
  return parts;
}

// DeepSeek-V3 over 8: heads and widths are split, what every rank needs is copied; so is the cache.
TEST(Ranks, SplitAndCopiedParts) {
  const auto whole = Weights(Use(LatentConfig("deepseek-v3"), {}));
  const MemoryUse rank = Use(LatentConfig("deepseek-v3"), {.tp = 8});
  const auto part = Weights(rank);
  for (const char* name : {"embedding", "logits", "MLP", "experts", "shared experts", "kv_b (w_kc twice)"}) {
    EXPECT_EQ(part.at(name) * 8, whole.at(name)) << name;
  }
  for (const char* name : {"norms", "router"}) EXPECT_EQ(part.at(name), whole.at(name)) << name;
  // q_b and o are split; q_a and kv_a, [2112, 7168] in fp8 with a scale a lane for each 128 columns, are not.
  const std::int64_t copied = 61 * (2112 * std::int64_t{7168} + 2112 * 56 * 4 + (1536 + 512) * 4);
  EXPECT_EQ((part.at("attention") - copied) * 8, whole.at("attention") - copied);
  EXPECT_EQ(rank.cache, Use(LatentConfig("deepseek-v3"), {}).cache);
  EXPECT_FALSE(rank.engines);
}

TEST(Ranks, ACacheIsDividedByPagesByUsersOrByChannels) {
  const std::int64_t whole = Use(LatentConfig("deepseek-v3"), {}).cache;
  EXPECT_EQ(Use(LatentConfig("deepseek-v3"), {.tp = 8, .dcp = 8}).cache * 8, whole);
  EXPECT_EQ(Use(LatentConfig("deepseek-v3"), {.tp = 8, .dcp = 2}).cache * 2, whole);
  EXPECT_EQ(Use(LatentConfig("deepseek-v3"), {.dp = 4}).cache * 4, whole);
  EXPECT_EQ(Use(LatentConfig("deepseek-v3"), {.dp = 3}).cache * 8, whole * 3) << "eight users over three groups";
  // 512 / 4 channels and all 64 of rope: 192 of 576.
  EXPECT_EQ(Use(LatentConfig("deepseek-v3"), {.tp = 4, .shard_latent = true}).cache * 3, whole);
  // Pages are whole: 65 tokens are two pages, over four ranks one each.
  EXPECT_EQ(Use(LatentConfig("deepseek-v3"), {.tp = 4, .dcp = 4}, 65, 1).pages, 1);
}

TEST(Ranks, KeysAndValuesAreCopiedWhereHeadsRunOut) {
  const std::int64_t whole = Use(OtherConfig("llama-3.1-70b"), {}).cache;  // 8 heads of keys and values
  EXPECT_EQ(Use(OtherConfig("llama-3.1-70b"), {.tp = 4}).cache * 4, whole);
  EXPECT_EQ(Use(OtherConfig("llama-3.1-70b"), {.tp = 8}).cache * 8, whole);
  EXPECT_EQ(Use(OtherConfig("llama-3.1-70b"), {.tp = 32}).cache * 8, whole) << "four copies";
  EXPECT_EQ(Use(OtherConfig("llama-3.1-70b"), {.tp = 32, .dcp = 4}).cache * 32, whole);
  const Shape llama = ShapeAt(OtherConfig("llama-3.1-70b"));
  const Shape rank = plan::RankShape(llama, {.tp = 32});
  EXPECT_EQ(rank.groups[0].heads, 2);
  EXPECT_EQ(rank.groups[0].kv_heads, 1);
  EXPECT_EQ((*rank.parameters)[Part::kKeyValue] * 8, (*llama.parameters)[Part::kKeyValue]);
  EXPECT_EQ((*rank.parameters)[Part::kQuery] * 32, (*llama.parameters)[Part::kQuery]);
}

TEST(Ranks, WholeExpertsOverAllRanks) {
  const auto whole = Weights(Use(LatentConfig("deepseek-v3"), {}));
  const auto part = Weights(Use(LatentConfig("deepseek-v3"), {.tp = 4, .dp = 8, .spread_experts = true}));
  EXPECT_EQ(part.at("experts") * 32, whole.at("experts"));
  EXPECT_EQ(part.at("shared experts"), whole.at("shared experts"));
  EXPECT_EQ(part.at("router"), whole.at("router"));
  EXPECT_LT(part.at("MTP layers") * 8, whole.at("MTP layers"));
}

TEST(Ranks, WhatDoesNotDivideIsRefused) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  const Shape flash = ShapeAt(LatentConfig("glm-4.7-flash"));
  const Shape llama = ShapeAt(OtherConfig("llama-3.1-70b"));
  const auto fault = [](const Shape& shape, const Ranks& ranks) {
    const Status status = plan::CheckRanks(shape, ranks);
    EXPECT_FALSE(status.ok());
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(fault(v3, {.tp = 3}), HasSubstr("--tp: expected a divisor of 128 attention heads, found 3"));
  EXPECT_THAT(fault(flash, {.tp = 8}), HasSubstr("20 attention heads"));
  EXPECT_THAT(fault(v3, {.tp = 4, .dcp = 8}), HasSubstr("--dcp: expected a divisor of 4 ranks"));
  EXPECT_THAT(fault(v3, {.tp = 8, .dp = 7, .spread_experts = true}), HasSubstr("--spread-experts"));
  EXPECT_THAT(fault(llama, {.spread_experts = true}), HasSubstr("expected a model with experts"));
  EXPECT_THAT(fault(llama, {.tp = 2, .shard_latent = true}), HasSubstr("--shard-latent"));
  EXPECT_THAT(fault(v3, {.tp = 4, .dcp = 2, .shard_latent = true}), HasSubstr("--dcp 1"));
  EXPECT_TRUE(plan::CheckRanks(v3, {.tp = 128}).ok());
  EXPECT_TRUE(plan::CheckRanks(llama, {.tp = 16}).ok());
  plan::Shape odd = PlainHeads(24, 6, 8, 1);
  EXPECT_THAT(fault(odd, {.tp = 4}), HasSubstr("6 heads of keys and values"));
}

std::map<std::string, Collective> Sent(const Shape& shape, const Ranks& ranks, const plan::Step& step) {
  std::map<std::string, Collective> all;
  for (const Collective& c : Need(plan::CollectivesOf(shape, ranks, step))) all[c.name + ": " + c.what] = c;
  return all;
}

TEST(Collectives, OfOneRankAreNone) {
  EXPECT_TRUE(Sent(ShapeAt(LatentConfig("deepseek-v3")), {}, {1, 100, 4}).empty());
  EXPECT_TRUE(Sent(ShapeAt(LatentConfig("deepseek-v3")), {.dp = 4}, {1, 100, 4}).empty());
}

TEST(Collectives, HaveTheBytesOfTheirShapes) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  const auto tp = Sent(v3, {.tp = 8}, {2, 100, 4});
  const Collective& reduce = tp.at("all-reduce: embeddings, attention outputs and MLP outputs");
  EXPECT_EQ(reduce.payload, 8 * std::int64_t{7168 * 4});
  EXPECT_EQ(reduce.times, 1 + 61 + 61);
  EXPECT_EQ(reduce.sent, reduce.times * (2 * 7 * reduce.payload / 8));
  EXPECT_EQ(tp.at("all-gather: logits").payload, 4 * std::int64_t{129280 * 4});

  const auto dcp = Sent(v3, {.tp = 8, .dcp = 4}, {1, 100, 2});
  EXPECT_EQ(dcp.at("all-gather: queries of the ranks that share pages").payload, 2 * 64 * std::int64_t{576 * 4});
  EXPECT_EQ(dcp.at("reduce-scatter: outputs and log-sum-exps over pages").payload, 2 * 64 * std::int64_t{513 * 4});
  EXPECT_EQ(dcp.at("all-gather: queries of the ranks that share pages").ranks, 4);

  // Split by channels, every pair's score is a sum over ranks.
  const auto sharded = Sent(v3, {.tp = 4, .shard_latent = true}, {1, 100, 2});
  EXPECT_EQ(sharded.at("all-reduce: scores, summed over the latent's channels").payload,
            2 * 100 * std::int64_t{128 * 4});

  const auto spread = Sent(v3, {.tp = 2, .dp = 4, .spread_experts = true}, {1, 100, 6});
  EXPECT_EQ(spread.at("all-to-all: rows to their experts").ranks, 8);
  EXPECT_EQ(spread.at("all-to-all: rows to their experts").payload, 3 * 8 * std::int64_t{7168 * 4});
  EXPECT_EQ(spread.at("all-reduce: embeddings, attention outputs and MLP outputs").times, 1 + 61 + 3);
}

TEST(Ranks, NeededAreTheFewestThatFit) {
  const plan::Subject subject = SubjectOf(LatentConfig("deepseek-v3"));
  MemoryOptions options;
  options.row = Row("bf16");
  const std::int64_t memory = std::int64_t{80} << 30;
  const auto needed = plan::RanksNeeded(subject, options, 32768, 16, memory);
  ASSERT_TRUE(needed);
  EXPECT_EQ(*needed, 16);
  options.ranks.tp = 16;
  EXPECT_LE(Need(Need(Planner::Create(subject, options)).At(32768, 16)).total, memory);
  options.ranks.tp = 8;
  EXPECT_GT(Need(Need(Planner::Create(subject, options)).At(32768, 16)).total, memory);
  options.ranks.tp = 1;
  EXPECT_FALSE(plan::RanksNeeded(subject, options, 32768, 16, 1 << 20));
}

// Ranks together do the model's work, but for what is copied.
TEST(Ranks, WorkAddsUp) {
  const Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  plan::Kept kept;
  kept.row = Row("bf16");
  const Shape rank = plan::RankShape(v3, {.tp = 8});
  std::map<std::string, std::int64_t> whole;
  for (const auto& p : Need(plan::WorkOfStep(v3, {1, 4096, 5}, Form::kAbsorbed, kept))) whole[p.name] = p.multiply_adds;
  for (const auto& p : Need(plan::WorkOfStep(rank, {1, 4096, 5}, Form::kAbsorbed, kept))) {
    if (p.name == "router" || p.name == "keys and values") {
      EXPECT_EQ(p.multiply_adds, whole.at(p.name)) << p.name;
    } else if (p.name == "queries") {
      EXPECT_EQ(p.multiply_adds * 8, whole.at(p.name) + 7 * 5 * 61 * std::int64_t{1536 * 7168});  // q_a is copied
    } else {
      EXPECT_EQ(p.multiply_adds * 8, whole.at(p.name)) << p.name;
    }
  }
}

}  // namespace
}  // namespace mla::testing
