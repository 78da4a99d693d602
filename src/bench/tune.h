// What `auto` goes by: both forms of a shape's attention, measured over a grid of rows and cached positions.
#ifndef MLA_BENCH_TUNE_H_
#define MLA_BENCH_TUNE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_info.h"
#include "bench/form_bench.h"
#include "mla/attention.h"
#include "mla/result.h"

namespace mla::bench {

struct TuneShape {
  std::string name;
  MlaDims dims;
};

// Of a name of PublishedConfigs, "demo", a model's folder or the path of a config.json. Fails where it is none of them,
// or the config is refused.
Result<TuneShape> TuneShapeOf(const std::string& like);

// What is tuned unless told otherwise: the demo, and published shapes that are far from each other.
std::vector<std::string> DefaultTuneShapes();

struct TuneGrid {
  std::vector<std::int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512};
  std::vector<std::int64_t> cached = {0, 64, 128, 256, 512, 2048, 8192};
};

struct TunedShape {
  std::string name;
  MeasuredForms forms;      // tenth percentiles
  std::int64_t passes = 0;  // over the whole grid
};

// The plan whose bench Tune runs: everything is allocated once.
FormPlan TunePlan(const TuneShape& shape, const TuneGrid& grid, DType kv_dtype, WeightDType weights);

// Measures until `seconds` are over, in passes over the whole grid, so that a moment's load does not meet one form
// alone or all samples of a point. On a machine too slow for a pass, the longest cached lengths are left out, but for
// the first two; the first pass is always finished.
TunedShape Tune(FormBench* bench, const TuneShape& shape, const TuneGrid& grid, double seconds);

// What each shape gets of so many seconds: by the work of its grid, and a twentieth at least.
std::vector<double> ShareSeconds(std::span<const TuneShape> shapes, const TuneGrid& grid, double seconds);

// The fewest new rows from which on, up to a chunk, MHA is the cheaper over so many keys by that table; 0: never.
std::int64_t FewestMhaRows(const FormTable& table, const MlaDims& dims, std::int64_t keys);

// Multiply-adds a second at a point of a measured grid, of all of a form.
double RateAt(const MeasuredForms& forms, Form form, std::size_t row, std::size_t cached);

}  // namespace mla::bench

#endif  // MLA_BENCH_TUNE_H_
