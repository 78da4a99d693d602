// What the forms cost by a table: measured seconds between the points of its grid, or work over rates.
#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "mla/attention.h"

namespace mla {
namespace {

constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;
constexpr std::int64_t kMostDim = std::int64_t{1} << 24;
constexpr double kMostSeconds = 1e9;

Status CheckAxis(const char* name, const std::vector<std::int64_t>& axis, std::int64_t first) {
  if (axis.size() < 2 || axis.front() != first) {
    return Error{fmt::format("{}: expected two numbers or more that begin with {}, found {}", name, first,
                             axis.empty() ? "none" : fmt::format("{} from {}", axis.size(), axis.front()))};
  }
  for (std::size_t i = 1; i < axis.size(); ++i) {
    if (axis[i] <= axis[i - 1] || axis[i] > kMostPositions) {
      return Error{
          fmt::format("{}: expected ascending numbers up to 2^40, found {} after {}", name, axis[i], axis[i - 1])};
    }
  }
  return {};
}

Status CheckSeconds(const char* name, const std::vector<double>& seconds, std::size_t expected) {
  if (seconds.size() != expected) {
    return Error{
        fmt::format("{}: expected {} numbers, one of each rows and cached, found {}", name, expected, seconds.size())};
  }
  for (const double s : seconds) {
    if (!(s > 0 && s < kMostSeconds)) return Error{fmt::format("{}: expected seconds above 0, found {}", name, s)};
  }
  return {};
}

Status CheckDims(const MlaDims& d) {
  const auto check = [](const char* name, std::int64_t value, std::int64_t least) -> Status {
    if (value >= least && value <= kMostDim) return {};
    return Error{fmt::format("{}: expected a number from {} to {}, found {}", name, least, kMostDim, value)};
  };
  MLA_RETURN_IF_ERROR(check("num_attention_heads", d.num_attention_heads, 1));
  MLA_RETURN_IF_ERROR(check("qk_nope_head_dim", d.qk_nope_head_dim, 1));
  MLA_RETURN_IF_ERROR(check("qk_rope_head_dim", d.qk_rope_head_dim, 0));
  MLA_RETURN_IF_ERROR(check("v_head_dim", d.v_head_dim, 1));
  return check("kv_lora_rank", d.kv_lora_rank, 1);
}

// How far two shapes are apart: octaves, summed over the dims. Shapes of one machine's table are few.
double Distance(const MlaDims& a, const MlaDims& b) {
  const auto octaves = [](std::int64_t x, std::int64_t y) {
    return std::fabs(std::log2(static_cast<double>(x + 1)) - std::log2(static_cast<double>(y + 1)));
  };
  return octaves(a.num_attention_heads, b.num_attention_heads) + octaves(a.qk_nope_head_dim, b.qk_nope_head_dim) +
         octaves(a.qk_rope_head_dim, b.qk_rope_head_dim) + octaves(a.v_head_dim, b.v_head_dim) +
         octaves(a.kv_lora_rank, b.kv_lora_rank);
}

const MeasuredForms& Nearest(const FormTable& table, const MlaDims& dims) {
  return *std::min_element(
      table.measured.begin(), table.measured.end(),
      [&](const MeasuredForms& a, const MeasuredForms& b) { return Distance(a.dims, dims) < Distance(b.dims, dims); });
}

// The part of an axis that a value lies in, or that is nearest to it, and where in it: 0 at its begin, 1 at its end.
struct Place {
  std::size_t low = 0;
  double at = 0;
};

Place PlaceOn(const std::vector<std::int64_t>& axis, std::int64_t value) {
  Place place;
  while (place.low + 2 < axis.size() && axis[place.low + 1] <= value) ++place.low;
  const auto begin = static_cast<double>(axis[place.low]);
  place.at = (static_cast<double>(value) - begin) / (static_cast<double>(axis[place.low + 1]) - begin);
  return place;
}

// A straight line through both; beyond the second, noise may not make more work cheaper.
double Line(double low, double high, double at) {
  return at <= 1 ? low + (high - low) * at : high + std::max(0.0, high - low) * (at - 1);
}

double MeasuredSeconds(const MeasuredForms& m, Form form, std::int64_t rows, std::int64_t cached) {
  const std::vector<double>& seconds = form == Form::kMha ? m.mha_seconds : m.absorbed_seconds;
  const Place row = PlaceOn(m.rows, rows);
  const Place column = PlaceOn(m.cached, cached);
  const auto along_cached = [&](std::size_t i) {
    const double* at = seconds.data() + i * m.cached.size() + column.low;
    return Line(at[0], at[1], column.at);
  };
  return Line(along_cached(row.low), along_cached(row.low + 1), row.at);
}

}  // namespace

Status CheckFormTable(const FormTable& table) {
  if (table.chunk < 1 || table.chunk > kMostPositions) {
    return Error{fmt::format("chunk: expected a number from 1 to 2^40, found {}", table.chunk)};
  }
  for (const double rate : {table.expand_rate, table.absorb_rate, table.mha_rate, table.absorbed_rate}) {
    if (!(rate > 0 && std::isfinite(rate)))
      return Error{fmt::format("rates: expected numbers above 0, found {}", rate)};
  }
  for (const MeasuredForms& m : table.measured) {
    MLA_RETURN_IF_ERROR(CheckDims(m.dims));
    MLA_RETURN_IF_ERROR(CheckAxis("rows", m.rows, 1));
    MLA_RETURN_IF_ERROR(CheckAxis("cached", m.cached, 0));
    MLA_RETURN_IF_ERROR(CheckSeconds("mha_seconds", m.mha_seconds, m.rows.size() * m.cached.size()));
    MLA_RETURN_IF_ERROR(CheckSeconds("absorbed_seconds", m.absorbed_seconds, m.rows.size() * m.cached.size()));
  }
  return {};
}

double FormCost(const FormTable& table, Form form, const MlaDims& dims, std::int64_t first, std::int64_t rows) {
  MLA_CHECK_LT(0, table.chunk);
  const MeasuredForms* measured = table.measured.empty() ? nullptr : &Nearest(table, dims);
  const bool mha = form == Form::kMha;
  double cost = 0;
  for (std::int64_t done = 0; done < rows; done += table.chunk) {
    const std::int64_t t = std::min(table.chunk, rows - done);
    const std::int64_t cached = first + done;
    const FormWork work = WorkOf(form, dims, t, cached + t);
    if (measured != nullptr) {
      cost += MeasuredSeconds(*measured, form, t, cached) * work.total() /
              WorkOf(form, measured->dims, t, cached + t).total();
    } else {
      cost += work.projection / (mha ? table.expand_rate : table.absorb_rate) +
              work.attention / (mha ? table.mha_rate : table.absorbed_rate);
    }
  }
  return cost;
}

}  // namespace mla
