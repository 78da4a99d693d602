#include "plan/ranks.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/exact.h"
#include "plan/work.h"

namespace mla::plan {
namespace {

Status Divides(const char* flag, std::int64_t ways, const char* what, std::int64_t n) {
  if (n % ways == 0) return {};
  return Error{fmt::format("{}: expected a divisor of {} {}, found {}", flag, n, what, ways)};
}

// Heads of keys and values on one rank: split while there are enough, then copied.
std::int64_t RankKvHeads(const LayerGroup& g, std::int64_t tp) { return std::max<std::int64_t>(1, g.kv_heads / tp); }

LayerGroup RankGroup(LayerGroup g, const Ranks& ranks) {
  if (ranks.shard_latent) {
    g.latent.kv_lora_rank /= ranks.tp;  // for all heads
    return g;
  }
  g.heads /= ranks.tp;
  if (g.kind == AttentionKind::kLatent) {
    g.latent.num_attention_heads = g.heads;
  } else {
    g.kv_heads = RankKvHeads(g, ranks.tp);
  }
  return g;
}

// Keys and values of the rank over those of the model: 1 / tp, or more where heads run out.
std::int64_t KeyValueShare(const Shape& shape, std::int64_t parameters, std::int64_t tp) {
  std::int64_t heads = 0;
  for (const LayerGroup& g : shape.groups) heads = std::max(heads, g.kv_heads);
  return Ceil(parameters, std::min(tp, std::max<std::int64_t>(heads, 1)));
}

Parameters RankParameters(const Shape& shape, const Ranks& ranks) {
  Parameters p = *shape.parameters;
  for (const Part part : {Part::kEmbedding, Part::kQuery, Part::kOutput, Part::kDense, Part::kExperts, Part::kHead}) {
    p[part] = Ceil(p[part], ranks.tp);
  }
  if (!ranks.spread_experts) p[Part::kShared] = Ceil(p[Part::kShared], ranks.tp);
  p[Part::kKeyValue] = KeyValueShare(shape, p[Part::kKeyValue], ranks.tp);
  return p;
}

}  // namespace

Status CheckRanks(const Shape& shape, const Ranks& r) {
  MLA_RETURN_IF_ERROR(Divides("--dcp", r.dcp, "ranks (--tp)", r.tp));
  for (const LayerGroup& g : shape.groups) {
    MLA_RETURN_IF_ERROR(Divides("--tp", r.tp, "attention heads", g.heads));
    if (g.kind == AttentionKind::kHeads && g.kv_heads % r.tp != 0 && r.tp % g.kv_heads != 0) {
      return Error{fmt::format("--tp: expected a divisor or a multiple of {} heads of keys and values, found {}",
                               g.kv_heads, r.tp)};
    }
    if (r.shard_latent && g.kind != AttentionKind::kLatent) {
      return Error{"--shard-latent: expected a model with a latent, found heads of keys and values"};
    }
    if (r.shard_latent)
      MLA_RETURN_IF_ERROR(Divides("--shard-latent", r.tp, "channels of the latent", g.latent.kv_lora_rank));
    if (g.kind == AttentionKind::kLinear)
      MLA_RETURN_IF_ERROR(Divides("--tp", r.tp, "key heads of linear attention", g.kv_heads));
  }
  if (r.shard_latent && r.dcp > 1)
    return Error{"--shard-latent: expected --dcp 1, since each rank then has every page"};
  if (shape.dense_width > 0)
    MLA_RETURN_IF_ERROR(Divides("--tp", r.tp, "channels (intermediate_size)", shape.dense_width));
  const ExpertShape& e = shape.experts;
  if (r.spread_experts && e.experts == 0) return Error{"--spread-experts: expected a model with experts, found none"};
  if (r.spread_experts) return Divides("--spread-experts", r.count(), "experts", e.experts);
  if (e.experts == 0) return {};
  MLA_RETURN_IF_ERROR(Divides("--tp", r.tp, "channels of the shared experts", e.shared_width));
  return Divides("--tp", r.tp, "channels (moe_intermediate_size)", e.width);
}

contract::ModelConfig RankConfig(const contract::ModelConfig& config, const Ranks& ranks) {
  contract::ModelConfig c = config;
  c.num_attention_heads /= ranks.tp;
  c.intermediate_size /= ranks.tp;
  c.vocab_size = Ceil(c.vocab_size, ranks.tp);
  if (c.moe && !ranks.spread_experts) c.moe->moe_intermediate_size /= ranks.tp;
  return c;
}

contract::ModelConfig ExpertConfig(const contract::ModelConfig& config, const Ranks& ranks) {
  contract::ModelConfig c = config;
  c.moe->n_routed_experts /= ranks.count();
  return c;
}

contract::ModelConfig LatentConfig(const contract::ModelConfig& config, const Ranks& ranks) {
  contract::ModelConfig c = config;
  c.kv_lora_rank /= ranks.tp;
  return c;
}

Shape RankShape(const Shape& shape, const Ranks& ranks) {
  if (ranks.count() == 1) return shape;
  Shape rank = shape;
  for (LayerGroup& g : rank.groups) g = RankGroup(g, ranks);
  rank.vocab = Ceil(shape.vocab, ranks.tp);
  rank.dense_width /= ranks.tp;
  if (ranks.spread_experts) {
    rank.experts.experts /= ranks.count();
    rank.experts.groups = ranks.dp;
    rank.experts.dealt = ranks.tp;
  } else {
    rank.experts.width /= ranks.tp;
    rank.experts.shared_width /= ranks.tp;
  }
  if (shape.parameters) {
    rank.parameters =
        shape.config ? *ShapeOf(RankConfig(*shape.config, ranks)).parameters : RankParameters(shape, ranks);
    if (ranks.spread_experts) (*rank.parameters)[Part::kExperts] = (*shape.parameters)[Part::kExperts] / ranks.count();
  }
  if (shape.config) rank.config = RankConfig(*shape.config, ranks);
  return rank;
}

std::vector<Placement> PlacementsOf(const Shape& shape, const Ranks& r) {
  const auto split = [&](const char* by) {
    return r.tp == 1 ? std::string("whole") : fmt::format("split by {} over {}", by, r.tp);
  };
  const std::string copied = r.tp == 1 ? "whole" : fmt::format("copied on {}", r.tp);
  std::vector<Placement> placements = {
      {"embedding, logits", split("vocabulary")}, {"queries, output", split("heads")}, {"norms, router", copied}};
  for (const LayerGroup& g : shape.groups) {
    if (g.kind == AttentionKind::kLatent) {
      placements.push_back({"kv_a", copied});
      placements.push_back({"kv_b", split(r.shard_latent ? "channels of the latent" : "heads")});
      std::string how = r.shard_latent ? split("channels of the latent") + ", rope copied" : copied;
      if (r.dcp > 1) how = fmt::format("pages over {}, {} copies", r.dcp, r.tp / r.dcp);
      placements.push_back({"cache", how});
    } else if (g.kind == AttentionKind::kHeads) {
      const std::int64_t ways = std::min(r.tp, g.kv_heads);
      std::string how = ways == 1 ? copied : fmt::format("split by heads over {}", ways);
      if (ways > 1 && ways < r.tp) how += fmt::format(", {} copies", r.tp / ways);
      if (r.dcp > 1) how += fmt::format("; pages over {}", r.dcp);
      placements.push_back({"keys, values, cache", how});
    }
  }
  if (shape.experts.experts > 0) {
    placements.push_back({"experts", r.spread_experts ? fmt::format("{} whole ones on each of {}",
                                                                    shape.experts.experts / r.count(), r.count())
                                                      : split("width")});
  }
  if (shape.experts.shared_width > 0)
    placements.push_back({"shared experts", r.spread_experts ? copied : split("width")});
  if (shape.experts.layers < shape.layers) placements.push_back({"MLPs", split("width")});
  if (r.dp > 1) placements.push_back({"users", fmt::format("dealt to {} groups of {}", r.dp, r.tp)});
  return placements;
}

namespace {

constexpr std::int64_t kNumber = sizeof(float);

// Collects, and remembers the first number that did not fit.
class Collectives {
 public:
  // reduce: every rank has all of the sum at the end, which a ring sends twice.
  void Add(const char* name, std::string what, std::int64_t ranks, std::int64_t times, Exact numbers) {
    if (ranks < 2 || times == 0) return;
    const bool twice = std::string_view(name) == "all-reduce";
    const Exact payload = numbers * kNumber;
    const Exact sent = CeilDiv(payload * (ranks - 1) * (twice ? 2 : 1), ranks) * times;
    fits_ = fits_ && payload.fits() && sent.fits();
    if (fits_) list_.push_back({name, std::move(what), ranks, times, payload.value(), sent.value()});
  }
  Result<std::vector<Collective>> Take() && {
    if (!fits_) return Error{"collectives: expected bytes below 2^63, found more"};
    return std::move(list_);
  }

 private:
  std::vector<Collective> list_;
  bool fits_ = true;
};

void AddAttention(const LayerGroup& g, const Ranks& r, const Step& step, Exact rows, Collectives* c) {
  const bool latent = g.kind == AttentionKind::kLatent;
  if (r.dcp > 1 && g.kind != AttentionKind::kLinear) {
    const std::int64_t heads = g.heads / r.tp * r.dcp;
    const std::int64_t key = latent ? g.latent.kv_lora_rank + g.latent.qk_rope_head_dim : g.key_dim;
    const std::int64_t value = latent ? g.latent.kv_lora_rank : g.value_dim;
    c->Add("all-gather", "queries of the ranks that share pages", r.dcp, g.layers, rows * heads * key);
    c->Add("reduce-scatter", "outputs and log-sum-exps over pages", r.dcp, g.layers, rows * heads * (value + 1));
  }
  if (r.shard_latent) {
    const Exact pairs = Pairs(step.rows, step.keys, g.window) * step.sequences;
    c->Add("all-gather", "queries of all heads", r.tp, g.layers, rows * g.heads * g.key_dim);
    c->Add("all-reduce", "scores, summed over the latent's channels", r.tp, g.layers, pairs * g.heads);
    c->Add("reduce-scatter", "outputs, summed over the latent's channels", r.tp, g.layers,
           rows * g.heads * g.value_dim);
  }
}

}  // namespace

Result<std::vector<Collective>> CollectivesOf(const Shape& shape, const Ranks& r, const Step& step) {
  Collectives c;
  const Exact rows = Exact(step.rows) * step.sequences;
  const Exact stream = rows * shape.hidden;
  const std::int64_t experts = r.spread_experts ? shape.experts.layers : 0;
  std::int64_t attentions = 0;
  for (const LayerGroup& g : shape.groups) {
    attentions += g.layers;
    AddAttention(g, r, step, rows, &c);
  }
  c.Add("all-reduce", "embeddings, attention outputs and MLP outputs", r.tp, 1 + attentions + shape.layers - experts,
        stream);
  // Each rank of a group hands on its share of the group's rows.
  const Exact handed = CeilDiv(rows, r.tp) * shape.experts.per_token * shape.hidden;
  c.Add("all-to-all", "rows to their experts", r.count(), experts, handed);
  c.Add("all-to-all", "results back", r.count(), experts, handed);
  c.Add("all-gather", "experts' results within a group", r.tp, experts, stream);
  c.Add("all-gather", "logits", r.tp, 1, Exact(step.sequences) * shape.vocab);
  return std::move(c).Take();
}

}  // namespace mla::plan
