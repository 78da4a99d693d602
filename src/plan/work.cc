#include "plan/work.h"

#include <algorithm>
#include <cmath>

namespace mla::plan {
namespace {

// Multiply-adds of one row and key, one layer: exact, and the engine's own.
FormWork UnitWork(Form form, const MlaDims& dims) { return WorkOf(form, dims, 1, 1); }
Exact Whole(double count) { return count < 0x1p53 ? Exact(static_cast<std::int64_t>(count)) : Exact(INT64_MAX) + 1; }

// Collects parts, and remembers whether every number fitted.
class Parts {
 public:
  void Add(const char* name, RateKind kind, std::int64_t layers, Exact multiply_adds, Exact weights, Exact cache,
           std::optional<PartWork::Latent> latent = {}) {
    fits_ = fits_ && multiply_adds.fits() && weights.fits() && cache.fits();
    if (!fits_ || layers == 0) return;
    parts_.push_back({name, kind, layers, multiply_adds.value(), weights.value(), cache.value(), latent});
  }
  Result<std::vector<PartWork>> Take() && {
    if (!fits_) return Error{"work: expected multiply-adds and bytes of a step below 2^63, found more"};
    return std::move(parts_);
  }

 private:
  std::vector<PartWork> parts_;
  bool fits_ = true;
};

// Bytes of rows that the step reads and writes, over a group's layers.
Exact CacheTraffic(const LayerGroup& g, const Step& step, const Kept& kept) {
  const std::int64_t seen = g.window == 0 ? step.keys : std::min(step.keys, g.window + step.rows - 1);
  const Exact rows = CeilDiv(Exact(seen) + step.rows, kept.page_ranks);
  return (rows * RowBytes(g, kept.row) + StateBytes(g) * 2) * step.sequences * g.layers;
}

void AddLatent(const LayerGroup& g, const Step& step, Form form, const Kept& kept, Parts* parts) {
  const FormWork unit = UnitWork(form, g.latent);
  const bool mha = form == Form::kMha;
  const Exact times = Exact(step.sequences) * g.layers;
  const Exact projected = Whole(unit.projection) * (mha ? step.keys : step.rows) * times;
  parts->Add(mha ? "expand (kv_b)" : "absorb (kv_b)", mha ? RateKind::kExpand : RateKind::kAbsorb, g.layers, projected,
             Whole(unit.projection) * kept.wide_bytes * g.layers, 0);
  parts->Add("attention", mha ? RateKind::kMha : RateKind::kAbsorbed, g.layers,
             Whole(unit.attention) * Pairs(step.rows, step.keys, g.window) * times, 0, CacheTraffic(g, step, kept),
             PartWork::Latent{g.latent, form, step});
}

void AddHeads(const LayerGroup& g, const Step& step, const Kept& kept, Parts* parts) {
  const Exact pair = Exact(g.heads) * (Exact(g.key_dim) + g.value_dim);
  const Exact times = Exact(step.sequences) * g.layers;
  if (g.kind == AttentionKind::kLinear) {
    // The delta rule reads, corrects and queries a [key, value] matrix a head: three products a row.
    parts->Add("linear attention", RateKind::kMha, g.layers,
               Exact(3) * g.heads * g.key_dim * g.value_dim * step.rows * times, 0, CacheTraffic(g, step, kept));
    return;
  }
  parts->Add(g.window > 0 ? "attention (window)" : "attention", RateKind::kMha, g.layers,
             pair * Pairs(step.rows, step.keys, g.window) * times, 0, CacheTraffic(g, step, kept));
}

std::int64_t AttentionLayers(const Shape& shape) {
  std::int64_t layers = 0;
  for (const LayerGroup& g : shape.groups) layers += g.layers;
  return layers;
}

// What latents' kv_b costs is priced with its form.
Exact PlainKeyValue(const Shape& shape) {
  Exact n = (*shape.parameters)[Part::kKeyValue];
  for (const LayerGroup& g : shape.groups) {
    if (g.kind == AttentionKind::kLatent) n = n - Whole(UnitWork(Form::kAbsorbed, g.latent).projection) * g.layers;
  }
  return n;
}

// The share of a layer's experts that some row of a step is sent to.
double Touched(const ExpertShape& e, Exact rows) {
  if (!rows.fits()) return 1;
  const double chance = std::min(1.0, static_cast<double>(e.per_token) / static_cast<double>(e.of));
  return 1 - std::pow(1 - chance, static_cast<double>(rows.value()) * static_cast<double>(e.groups));
}

void AddFeedForward(const Shape& shape, Exact rows, const Kept& kept, Parts* parts) {
  const Parameters& p = *shape.parameters;
  const ExpertShape& e = shape.experts;
  const auto add = [&](const char* name, Part part, std::int64_t layers) {
    parts->Add(name, RateKind::kProducts, layers, rows * p[part], Exact(p[part]) * kept.product_bytes, 0);
  };
  add("MLP", Part::kDense, shape.layers - e.layers);
  if (e.layers == 0) return;
  // Its bias is added, not multiplied.
  parts->Add(kRouterPart, RateKind::kProducts, e.layers, rows * e.of * shape.hidden * e.layers,
             Exact(p[Part::kRouter]) * kept.router_bytes, 0);
  const double bytes =
      Touched(e, rows) * static_cast<double>(p[Part::kExperts]) * static_cast<double>(kept.product_bytes);
  const Exact chosen = Exact(p[Part::kExperts] / e.experts) * e.per_token;
  parts->Add("experts", RateKind::kProducts, e.layers, CeilDiv(rows * e.groups, e.groups * e.dealt) * chosen,
             bytes < 0x1p62 ? Exact(static_cast<std::int64_t>(bytes)) : Exact(INT64_MAX) + 1, 0);
  if (e.shared_width > 0) add("shared experts", Part::kShared, e.layers);
}

}  // namespace

const char* RateKindName(RateKind kind) {
  switch (kind) {
    case RateKind::kProducts: return "products";
    case RateKind::kExpand: return "expand";
    case RateKind::kAbsorb: return "absorb";
    case RateKind::kMha: return "mha";
    case RateKind::kAbsorbed: return "absorbed";
  }
  return "?";
}

Exact Pairs(std::int64_t rows, std::int64_t keys, std::int64_t window) {
  const Exact t = rows;
  const std::int64_t cached = keys - rows;
  // The sum of 1 to n: one of two neighbours is even.
  const auto triangle = [](std::int64_t n) {
    return n % 2 == 0 ? Exact(n / 2) * (Exact(n) + 1) : Exact(n) * (n / 2 + 1);
  };
  if (window == 0 || keys <= window) return t * cached + triangle(rows);
  if (cached >= window) return t * window;
  const std::int64_t growing = window - cached;  // rows that the window does not cut
  return Exact(growing) * cached + triangle(growing) + Exact(rows - growing) * window;
}

Result<std::vector<PartWork>> WorkOfStep(const Shape& shape, const Step& step, Form form, const Kept& kept) {
  Parts parts;
  const Exact rows = Exact(step.rows) * step.sequences;
  const std::int64_t attentions = AttentionLayers(shape);
  const auto add = [&](const char* name, Exact parameters) {
    parts.Add(name, RateKind::kProducts, attentions, rows * parameters, parameters * kept.product_bytes, 0);
  };
  if (shape.parameters) {
    add("queries", (*shape.parameters)[Part::kQuery]);
    add("keys and values", PlainKeyValue(shape));
  }
  for (const LayerGroup& g : shape.groups) {
    if (g.kind == AttentionKind::kLatent) {
      AddLatent(g, step, form, kept, &parts);
    } else {
      AddHeads(g, step, kept, &parts);
    }
  }
  if (shape.parameters) {
    add("output", (*shape.parameters)[Part::kOutput]);
    AddFeedForward(shape, rows, kept, &parts);
    // Of each sequence's last row.
    const Exact head = Exact(shape.vocab) * shape.hidden;
    parts.Add(kLogitsPart, RateKind::kProducts, 1, head * step.sequences, head * kept.wide_bytes, 0);
  }
  return std::move(parts).Take();
}

namespace {

double RateOf(RateKind kind, const Rates& rates) {
  switch (kind) {
    case RateKind::kProducts: return rates.products;
    case RateKind::kExpand: return rates.expand;
    case RateKind::kAbsorb: return rates.absorb;
    case RateKind::kMha: return rates.mha;
    case RateKind::kAbsorbed: return rates.absorbed;
  }
  return rates.products;
}

// Of products of which each byte of weights meets so many multiply-adds.
double RateOfProducts(const std::vector<ProductRate>& measured, double intensity) {
  if (intensity <= measured.front().intensity) {
    return measured.front().multiply_adds * intensity / measured.front().intensity;
  }
  for (std::size_t i = 1; i < measured.size(); ++i) {
    const ProductRate& low = measured[i - 1];
    const ProductRate& high = measured[i];
    if (intensity > high.intensity) continue;
    const double at = std::log(intensity / low.intensity) / std::log(high.intensity / low.intensity);
    return low.multiply_adds * std::pow(high.multiply_adds / low.multiply_adds, at);
  }
  return measured.back().multiply_adds;
}

double SecondsOfPart(const PartWork& part, const Rates& rates) {
  const auto multiply_adds = static_cast<double>(part.multiply_adds);
  if (rates.forms && (part.kind == RateKind::kExpand || part.kind == RateKind::kAbsorb)) return 0;  // in attention's
  if (rates.forms && part.latent) {
    const Step& s = part.latent->step;
    return FormCost(*rates.forms, part.latent->form, part.latent->dims, s.keys - s.rows, s.rows) *
           static_cast<double>(part.layers * s.sequences);
  }
  if (part.kind == RateKind::kProducts && !rates.measured_products.empty() && part.weight_bytes > 0 &&
      part.multiply_adds > 0) {
    return multiply_adds /
           RateOfProducts(rates.measured_products, multiply_adds / static_cast<double>(part.weight_bytes));
  }
  return std::max(multiply_adds / RateOf(part.kind, rates), static_cast<double>(part.bytes()) / rates.read_bytes);
}

// Whether `rows` new ones after `cached` cost less expanded.
bool ExpandingPays(const MlaDims& dims, std::int64_t cached, std::int64_t rows, const Rates& r) {
  if (r.forms) {
    return FormCost(*r.forms, Form::kMha, dims, cached, rows) < FormCost(*r.forms, Form::kAbsorbed, dims, cached, rows);
  }
  const FormWork mha = WorkOf(Form::kMha, dims, rows, cached + rows);
  const FormWork absorbed = WorkOf(Form::kAbsorbed, dims, rows, cached + rows);
  return mha.projection / r.expand + mha.attention / r.mha <
         absorbed.projection / r.absorb + absorbed.attention / r.absorbed;
}

}  // namespace

double SecondsOf(const std::vector<PartWork>& parts, const Rates& rates) {
  double seconds = 0;
  for (const PartWork& part : parts) seconds += SecondsOfPart(part, rates);
  return seconds;
}

double SecondsOf(const std::vector<Collective>& collectives, const Rates& rates) {
  if (rates.link_bytes <= 0) return 0;
  double seconds = 0;
  for (const Collective& c : collectives) seconds += static_cast<double>(c.sent) / rates.link_bytes;
  return seconds;
}

std::optional<double> CrossingConstant(const MlaDims& dims) {
  const auto r = static_cast<double>(dims.kv_lora_rank);
  const auto nv = static_cast<double>(dims.qk_nope_head_dim + dims.v_head_dim);
  if (2 * r <= nv) return std::nullopt;
  return r * nv / (2 * r - nv);
}

double ClosedCrossing(double a, double keys) { return a * keys / (keys + a); }

std::optional<std::int64_t> CausalCrossing(const MlaDims& dims, std::int64_t cached, const Rates* rates) {
  Rates equal;
  equal.products = equal.expand = equal.absorb = equal.mha = equal.absorbed = 1;
  const Rates& r = rates == nullptr ? equal : *rates;
  // A table prices rows chunk by chunk, and was measured for one.
  const std::int64_t most = r.forms ? r.forms->chunk : std::int64_t{1} << 24;
  if (!ExpandingPays(dims, cached, most, r)) return std::nullopt;
  std::int64_t low = 0;  // does not pay, or is no step
  std::int64_t high = most;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (ExpandingPays(dims, cached, middle, r) ? high : low) = middle;
  }
  return high;
}

double RatioOfTraining(double n, double d, double h, double b) { return h / d + 1 / (b * n); }
double RatioOfDecodingMha(double n, double d, double b) { return n / d + 1 / b; }
double RatioOfDecodingMqa(double n, double d, double h, double b) { return 1 / d + n / (d * h) + 1 / b; }

}  // namespace mla::plan
