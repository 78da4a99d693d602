#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include <fmt/format.h>

#include "cli/output.h"
#include "cli/plan_report.h"

namespace mla::cli {
namespace {

using plan::AttentionKind;
using plan::Report;

const char* KindName(const plan::LayerGroup& g) {
  switch (g.kind) {
    case AttentionKind::kLatent: return "MLA";
    case AttentionKind::kLinear: return "linear";
    case AttentionKind::kHeads: break;
  }
  if (g.kv_heads == g.heads) return "MHA";
  return g.kv_heads == 1 ? "MQA" : "GQA";
}

std::string WordsOf(const plan::LayerGroup& g) {
  std::string text = fmt::format("{} layers of {}: {} heads", g.layers, KindName(g), g.heads);
  switch (g.kind) {
    case AttentionKind::kLatent:
      text += fmt::format(", R {}, N {}, P {}, V {}", g.latent.kv_lora_rank, g.latent.qk_nope_head_dim,
                          g.latent.qk_rope_head_dim, g.latent.v_head_dim);
      break;
    case AttentionKind::kHeads:
      text += fmt::format(", {} of keys and values, widths {} and {}", g.kv_heads, g.key_dim, g.value_dim);
      break;
    case AttentionKind::kLinear:
      text += fmt::format(" of {} x {}, a state of fixed size", g.key_dim, g.value_dim);
      break;
  }
  if (g.window > 0) text += fmt::format("; the last {} positions", g.window);
  return text;
}

std::string Kinds(const plan::Shape& shape) {
  std::string text;
  for (const plan::LayerGroup& g : shape.groups) {
    text += fmt::format("{}{} {}{}", text.empty() ? "" : " + ", g.layers, KindName(g), g.window > 0 ? " (window)" : "");
  }
  return text;
}

// "models/v3/config.json as mha" -> "v3 as mha".
std::string ShortName(const std::string& path) {
  const std::size_t as = std::min(path.find(" as "), path.size());
  std::filesystem::path file = std::filesystem::path(path.substr(0, as)).lexically_normal();
  if (!file.has_filename() || file.filename() == "config.json") file = file.parent_path();
  const std::string name = file.extension() == ".json" ? file.stem().string() : file.filename().string();
  return (name.empty() ? path.substr(0, as) : name) + path.substr(as);
}

template <class Of>
std::string OrDash(bool known, const Of& of) {
  return known ? std::string(of()) : "-";
}

// Elements a token and layer, of the first group that caches any.
std::string ElementsOf(const Report& r) {
  for (const plan::LayerGroup& g : r.shape.groups) {
    if (g.elements() > 0) return Grouped(g.elements());
  }
  return "0";
}

// Shazeer's ratio for one layer's kind of attention while decoding: memory accesses over arithmetic.
std::string ShazeerOf(const Report& r) {
  const auto n = static_cast<double>(r.options.context);
  const auto b = static_cast<double>(r.step.sequences);
  for (const plan::LayerGroup& g : r.shape.groups) {
    if (g.kind != AttentionKind::kHeads || r.shape.hidden == 0) continue;
    const auto d = static_cast<double>(r.shape.hidden);
    if (g.kv_heads == g.heads) return fmt::format("{:.3g}", plan::RatioOfDecodingMha(n, d, b));
    if (g.kv_heads == 1) {
      return fmt::format("{:.3g}", plan::RatioOfDecodingMqa(n, d, static_cast<double>(g.heads), b));
    }
  }
  return "-";
}

}  // namespace

std::vector<std::string> AttentionWords(const plan::Shape& shape) {
  std::vector<std::string> words;
  for (const plan::LayerGroup& g : shape.groups) words.push_back(WordsOf(g));
  return words;
}

std::vector<std::string> PlanNames(const PlanReports& reports) {
  std::vector<std::string> names;
  for (const Report& r : reports) names.push_back(ShortName(r.shape.name));
  const std::set<std::string> different(names.begin(), names.end());
  if (different.size() == names.size()) return names;
  std::transform(reports.begin(), reports.end(), names.begin(), [](const Report& r) { return r.shape.name; });
  return names;
}

std::vector<PlanItem> PlanMemory(const Report& r) {
  const plan::MemoryUse& m = r.memory;
  std::vector<PlanItem> items;
  for (const plan::WeightBytes& w : m.weight_parts) items.push_back({"weights: " + w.part, w.dtype, w.bytes});
  items.push_back({"cache", fmt::format("{} pages", Grouped(m.pages)), m.cache});
  items.push_back({"states", "of linear attention", m.states});
  items.push_back({"workspace", r.rank.config ? "of a step" : "of a step, an estimate", m.workspace});
  items.push_back({"tables", "rope, page counts", m.tables});
  items.push_back({"page lists and token ids", "which also find prefixes", m.sequences});
  items.push_back({"communication", "a send and a receive buffer", m.buffers});
  items.push_back({"reserve", "", m.reserve});
  std::erase_if(items, [](const PlanItem& item) { return item.bytes == 0; });
  items.push_back({"in all", "", m.total});
  return items;
}

std::vector<PlanRow> PlanComparison(const PlanReports& reports) {
  std::vector<PlanRow> rows;
  const auto add = [&](const char* name, const std::function<std::string(const Report&)>& value) {
    PlanRow row{name, {}};
    for (const Report& r : reports) row.values.push_back(value(r));
    if (std::any_of(row.values.begin(), row.values.end(), [](const std::string& v) { return v != "-"; })) {
      rows.push_back(std::move(row));
    }
  };
  rows.push_back({"model", PlanNames(reports)});
  add("runs here", [](const Report& r) { return r.shape.not_run.empty() ? "yes" : "no"; });
  add("attention", [](const Report& r) { return Kinds(r.shape); });
  add("parameters", [](const Report& r) {
    return OrDash(r.shape.parameters.has_value(), [&] { return Grouped(r.shape.parameters->total()); });
  });
  add("elements a token, a layer", ElementsOf);
  add("elements a token", [](const Report& r) { return Grouped(r.elements); });
  add("bytes a token", [](const Report& r) { return Grouped(r.token_bytes); });
  add("context", [](const Report& r) { return Grouped(r.options.context); });
  add("cache of a sequence", [](const Report& r) { return HumanBytes(r.sequence_bytes); });
  add("weights",
      [](const Report& r) { return OrDash(r.memory.weights_known, [&] { return HumanBytes(r.memory.weights); }); });
  add("in all",
      [](const Report& r) { return OrDash(r.memory.weights_known, [&] { return HumanBytes(r.memory.total); }); });
  add("longest context", [](const Report& r) {
    return OrDash(r.longest_context.has_value(), [&] { return Grouped(*r.longest_context); });
  });
  add("most users",
      [](const Report& r) { return OrDash(r.most_users.has_value(), [&] { return Grouped(*r.most_users); }); });
  add("multiply-adds of the step", [](const Report& r) { return Grouped(r.forms.front().multiply_adds); });
  add("bytes of the step", [](const Report& r) { return HumanBytes(r.forms.front().bytes); });
  add("memory/arithmetic", ShazeerOf);
  add("first token", [](const Report& r) {
    return OrDash(r.times.has_value(), [&] { return HumanSeconds(r.times->first_token()); });
  });
  add("a token",
      [](const Report& r) { return OrDash(r.times.has_value(), [&] { return HumanSeconds(r.times->token); }); });
  add("tokens a second", [](const Report& r) {
    return OrDash(r.times.has_value(), [&] { return fmt::format("{:.4g}", r.times->tokens_per_second); });
  });
  return rows;
}

}  // namespace mla::cli
