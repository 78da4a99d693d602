#include "bench/tune.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <system_error>

#include "base/clock.h"
#include "bench/synthetic_config.h"
#include "weights/weights.h"

namespace mla::bench {
namespace {

// models/demo: small enough that a call's fixed cost decides, which no larger shape tells of.
constexpr MlaDims kDemoDims{8, 32, 16, 32, 64};

constexpr std::int64_t kMostPasses = 25;
constexpr std::size_t kFewestCached = 2;

// The samples of a shape, point by point.
struct Grid {
  const TuneGrid& axes;
  std::size_t cached = 0;  // columns in use
  std::vector<FormPairs> points;

  explicit Grid(const TuneGrid& grid) : axes(grid), points(grid.rows.size() * grid.cached.size()) {}
  FormPairs& At(std::size_t row, std::size_t column) { return points[row * axes.cached.size() + column]; }

  double MeasureColumn(FormBench* bench, std::int64_t pass, std::size_t column) {
    const auto begin = Clock::now();
    for (std::size_t k = 0; k < axes.rows.size(); ++k) {
      const std::size_t row = AlongPass(pass, k, axes.rows.size());
      AddPairs(bench, axes.cached[column], axes.rows[row], kPointSeconds, kMostPairs, &At(row, column));
    }
    return Since(begin);
  }
};

double ColumnWork(const MlaDims& dims, const TuneGrid& grid, std::int64_t cached) {
  double work = 0;
  for (const std::int64_t rows : grid.rows) {
    work += WorkOf(Form::kMha, dims, rows, rows + cached).total();
    work += WorkOf(Form::kAbsorbed, dims, rows, rows + cached).total();
  }
  return work;
}

// More rows or keys take no less time: a point that took longer than one of more work met something else on the
// machine, and takes the other's time.
void LevelOutliers(const TuneGrid& grid, std::size_t columns, std::vector<double>* seconds) {
  for (std::size_t row = grid.rows.size(); row-- > 0;) {
    for (std::size_t column = columns; column-- > 0;) {
      double& s = (*seconds)[row * columns + column];
      if (row + 1 < grid.rows.size()) s = std::min(s, (*seconds)[(row + 1) * columns + column]);
      if (column + 1 < columns) s = std::min(s, (*seconds)[row * columns + column + 1]);
    }
  }
}

}  // namespace

Result<TuneShape> TuneShapeOf(const std::string& like) {
  if (like == "demo") return TuneShape{like, kDemoDims};
  SyntheticOptions options;
  options.like = like;
  std::error_code error;
  if (std::filesystem::is_directory(like, error)) options.like += "/config.json";
  MLA_ASSIGN_OR_RETURN(const SyntheticConfig made, MakeSyntheticConfig(options));
  return TuneShape{like, weights::DimsOf(made.config)};
}

std::vector<std::string> DefaultTuneShapes() {
  return {"demo", "deepseek-v2-lite", "deepseek-v3", "glm-4.7-flash", "minicpm3"};
}

FormPlan TunePlan(const TuneShape& shape, const TuneGrid& grid, DType kv_dtype, WeightDType weights) {
  FormPlan plan;
  plan.dims = shape.dims;
  plan.kv_dtype = kv_dtype;
  plan.weights = weights;
  plan.chunk = grid.rows.back();
  plan.max_keys = grid.cached.back() + grid.rows.back();
  plan.layers = LayersFor(plan);
  return plan;
}

TunedShape Tune(FormBench* bench, const TuneShape& shape, const TuneGrid& grid, double seconds) {
  const auto begin = Clock::now();
  Grid samples(grid);
  // Code, pages and clocks warm up; nothing of it is kept.
  FormPairs ignored;
  for (const std::int64_t rows : grid.rows) AddPairs(bench, grid.cached[0], rows, 0, 1, &ignored);
  double pass = 0;
  double last = 0;
  for (std::size_t column = 0; column < grid.cached.size(); ++column) {
    if (column >= kFewestCached) {
      const double growth =
          ColumnWork(shape.dims, grid, grid.cached[column]) / ColumnWork(shape.dims, grid, grid.cached[column - 1]);
      if (Since(begin) + last * growth > seconds) break;
    }
    last = samples.MeasureColumn(bench, 0, column);
    pass += last;
    ++samples.cached;
  }
  TunedShape tuned;
  tuned.name = shape.name;
  for (tuned.passes = 1; tuned.passes < kMostPasses && Since(begin) + pass <= seconds; ++tuned.passes) {
    for (std::size_t k = 0; k < samples.cached; ++k) {
      samples.MeasureColumn(bench, tuned.passes, AlongPass(tuned.passes, k, samples.cached));
    }
  }
  MeasuredForms& m = tuned.forms;
  m.dims = shape.dims;
  m.rows = grid.rows;
  m.cached.assign(grid.cached.begin(), grid.cached.begin() + static_cast<std::ptrdiff_t>(samples.cached));
  for (std::size_t row = 0; row < grid.rows.size(); ++row) {
    for (std::size_t column = 0; column < samples.cached; ++column) {
      m.mha_seconds.push_back(samples.At(row, column).Seconds(Form::kMha));
      m.absorbed_seconds.push_back(samples.At(row, column).Seconds(Form::kAbsorbed));
    }
  }
  LevelOutliers(grid, samples.cached, &m.mha_seconds);
  LevelOutliers(grid, samples.cached, &m.absorbed_seconds);
  return tuned;
}

std::vector<double> ShareSeconds(std::span<const TuneShape> shapes, const TuneGrid& grid, double seconds) {
  std::vector<double> work;
  work.reserve(shapes.size());
  for (const TuneShape& shape : shapes) {
    double sum = 0;
    for (const std::int64_t cached : grid.cached) sum += ColumnWork(shape.dims, grid, cached);
    work.push_back(sum);
  }
  const double whole = std::accumulate(work.begin(), work.end(), 0.0);
  const double least = seconds / 20;
  const double rest = std::max(0.0, seconds - least * static_cast<double>(shapes.size()));
  std::vector<double> shares;
  shares.reserve(work.size());
  for (const double w : work) shares.push_back(least + rest * w / whole);
  return shares;
}

std::int64_t FewestMhaRows(const FormTable& table, const MlaDims& dims, std::int64_t keys) {
  std::int64_t rows = std::min(keys, table.chunk);
  if (ChooseForm(table, dims, keys - rows, rows) == Form::kAbsorbed) return 0;
  while (rows > 1 && ChooseForm(table, dims, keys - rows + 1, rows - 1) == Form::kMha) --rows;
  return rows;
}

double RateAt(const MeasuredForms& m, Form form, std::size_t row, std::size_t cached) {
  const std::vector<double>& seconds = form == Form::kMha ? m.mha_seconds : m.absorbed_seconds;
  return WorkOf(form, m.dims, m.rows[row], m.rows[row] + m.cached[cached]).total() /
         seconds[row * m.cached.size() + cached];
}

}  // namespace mla::bench
