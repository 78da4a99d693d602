#include "bench/crossover.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "bench/tune.h"
#include "plan/work.h"

namespace mla::bench {
namespace {

std::optional<double> Rows(std::int64_t rows) {
  return rows > 0 ? std::optional<double>(static_cast<double>(rows)) : std::nullopt;
}

double LogRatio(const CrossoverPoint& p) { return std::log(p.Seconds(Form::kMha) / p.Seconds(Form::kAbsorbed)); }

// Points of one number of keys, by rows: from the most rows down to the last two with a change of sign between them.
std::optional<double> MeasuredCrossingOf(std::span<const CrossoverPoint* const> points) {
  for (std::size_t i = points.size(); i-- > 1;) {
    const double low = LogRatio(*points[i - 1]);
    const double high = LogRatio(*points[i]);
    if (high >= 0) return std::nullopt;  // absorbing is the better one to the end
    if (low < 0) continue;
    const double at = low / (low - high);
    const double begin = std::log(static_cast<double>(points[i - 1]->rows));
    return std::exp(begin + at * (std::log(static_cast<double>(points[i]->rows)) - begin));
  }
  return std::nullopt;
}

FormRule Threshold(const char* name, const char* about, std::int64_t most) {
  return {name, about,
          [most](std::int64_t rows, std::int64_t /*keys*/) { return rows <= most ? Form::kAbsorbed : Form::kMha; }};
}

}  // namespace

double CrossoverPoint::Regret(Form form) const {
  return Seconds(form) / std::min(Seconds(Form::kMha), Seconds(Form::kAbsorbed)) - 1;
}

std::vector<CrossoverPoint> CrossoverGrid(std::int64_t max_rows, std::int64_t max_keys, std::int64_t base) {
  std::vector<CrossoverPoint> points;
  for (std::int64_t keys = 1; keys <= max_keys; keys *= base) {
    for (std::int64_t rows = 1; rows <= std::min(max_rows, keys); rows *= base) {
      CrossoverPoint point;
      point.rows = rows;
      point.keys = keys;
      points.push_back(point);
    }
  }
  return points;
}

void MeasureCrossover(FormBench* bench, const CrossoverEffort& effort, const std::function<void(std::size_t)>& step,
                      std::vector<CrossoverPoint>* points) {
  const auto begin = Clock::now();
  FormPairs warm_up;
  AddPairs(bench, 0, 1, 0, 1, &warm_up);
  bool more = true;
  for (int pass = 0; more; ++pass) {
    more = false;
    for (std::size_t k = 0; k < points->size(); ++k) {
      const std::size_t i = AlongPass(pass, k, points->size());
      CrossoverPoint& p = (*points)[i];
      if (Since(begin) > effort.seconds) return;
      const std::int64_t wanted = effort.most - std::ssize(p.pairs.mha);
      if (wanted <= 0) continue;
      AddPairs(bench, p.keys - p.rows, p.rows, kPointSeconds, std::min(kMostPairs, wanted), &p.pairs);
      more = more || std::ssize(p.pairs.mha) < effort.most;
      if (pass == 0) step(i);
    }
  }
}

std::vector<FormRule> FormRules(const FormTable& table, const MlaDims& dims) {
  const auto by_table = [dims](const FormTable& t) {
    return [dims, t](std::int64_t rows, std::int64_t keys) { return ChooseForm(t, dims, keys - rows, rows); };
  };
  std::vector<FormRule> rules;
  rules.push_back({"auto", "table " + table.id, by_table(table)});
  if (const FormTable shipped; shipped.id != table.id) {
    rules.push_back({"auto, shipped", "table " + shipped.id, by_table(shipped)});
  }
  rules.push_back(Threshold("mha", "always", 0));
  rules.push_back(Threshold("absorbed", "always", std::int64_t{1} << 62));
  rules.push_back({"SGLang", "mha without a cached prefix, or from 8192 tokens of it on; a single row absorbed",
                   [](std::int64_t rows, std::int64_t keys) {
                     const std::int64_t cached = keys - rows;
                     if (rows == 1 && cached > 0) return Form::kAbsorbed;
                     return cached == 0 || cached >= 8192 ? Form::kMha : Form::kAbsorbed;
                   }});
  rules.push_back(Threshold("vLLM, 128", "FlashMLA: absorbed up to 128 new rows, mha beyond", 128));
  rules.push_back(Threshold("vLLM, 512", "FlashAttention MLA: absorbed up to 512 new rows, mha beyond", 512));
  return rules;
}

RuleResult Judge(const FormRule& rule, std::span<const CrossoverPoint> points) {
  RuleResult result;
  double sum = 0;
  for (const CrossoverPoint& p : points) {
    if (!p.measured()) continue;
    const double regret = p.Regret(rule.choose(p.rows, p.keys));
    sum += std::log1p(regret);
    ++result.points;
    result.other_form += regret > 0 ? 1 : 0;
    if (regret <= result.worst) continue;
    result.worst = regret;
    result.worst_rows = p.rows;
    result.worst_keys = p.keys;
  }
  if (result.points > 0) result.mean = std::expm1(sum / static_cast<double>(result.points));
  return result;
}

std::vector<Crossings> CrossingsOf(const FormTable& table, const MlaDims& dims,
                                   std::span<const CrossoverPoint> points) {
  std::map<std::int64_t, std::vector<const CrossoverPoint*>> by_keys;
  for (const CrossoverPoint& p : points) {
    auto& column = by_keys[p.keys];
    if (p.measured()) column.push_back(&p);
  }
  FormTable analytic;
  analytic.chunk = table.chunk;
  const std::optional<double> a = plan::CrossingConstant(dims);
  std::vector<Crossings> crossings;
  for (const auto& [keys, column] : by_keys) {
    Crossings c;
    c.keys = keys;
    if (a) c.closed = plan::ClosedCrossing(*a, static_cast<double>(keys));
    c.causal = Rows(FewestMhaRows(analytic, dims, keys));
    c.measured = MeasuredCrossingOf(column);
    c.table = Rows(FewestMhaRows(table, dims, keys));
    crossings.push_back(c);
  }
  return crossings;
}

}  // namespace mla::bench
