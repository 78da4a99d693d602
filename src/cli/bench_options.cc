#include "cli/bench_options.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "bench/published_configs.h"
#include "bench/random_weights.h"
#include "bench/shapes.h"
#include "bench/synthetic_config.h"
#include "bench/tune.h"
#include "cli/flags.h"
#include "weights/weights.h"

namespace mla::cli {
namespace {

constexpr std::int64_t kMostRows = 1 << 16;
constexpr std::int64_t kMostDim = 1 << 24;

// A size that may be zero.
Result<std::int64_t> ParseWorkingSet(const std::string& text) {
  if (text == "0") return std::int64_t{0};
  return ParseSize(text);
}

struct Shape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

Result<Shape> ParseShape(const std::string& text) {
  Shape shape;
  const char* at = text.data();
  const char* end = at + text.size();
  bool good = true;
  for (std::int64_t* value : {&shape.m, &shape.n, &shape.k}) {
    const auto [next, fault] = std::from_chars(at, end, *value);
    good = good && fault == std::errc() && *value >= 1 && *value <= (value == &shape.m ? kMostRows : kMostDim);
    good = good && (value == &shape.k ? next == end : next != end && *next == ',');
    if (!good) break;
    at = next + 1;
  }
  if (good) return shape;
  return Error{fmt::format("expected M,N,K as 8,2112,7168, M up to {}, N and K up to {}, found '{}'", kMostRows,
                           kMostDim, text)};
}

Result<contract::ModelConfig> ConfigLike(const std::string& like, std::optional<std::int64_t> experts) {
  bench::SyntheticOptions options;
  options.like = like;
  options.experts = experts;
  MLA_ASSIGN_OR_RETURN(const bench::SyntheticConfig made, bench::MakeSyntheticConfig(options));
  return made.config;
}

// "deepseek-v3:32": the model's layer cut to 32 routed experts.
Result<contract::ModelConfig> MoeConfigLike(const std::string& like) {
  std::string name = like;
  std::optional<std::int64_t> experts;
  const std::size_t colon = like.rfind(':');
  if (colon != std::string::npos && colon + 1 < like.size()) {
    const std::string count = like.substr(colon + 1);
    if (const std::string fault = WholeIn(1, 1 << 16)(count); !fault.empty()) {
      return Error{fmt::format("after the colon, {}", fault)};
    }
    name = like.substr(0, colon);
    experts = std::stoll(count);
  }
  MLA_ASSIGN_OR_RETURN(contract::ModelConfig config, ConfigLike(name, experts));
  if (!config.moe) return Error{fmt::format("expected a model with experts, found {}", name)};
  return config;
}

std::string PublishedNames() {
  std::vector<std::string_view> names;
  for (const bench::PublishedConfig& config : bench::PublishedConfigs()) names.push_back(config.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void AddOutputFlags(CLI::App& c, BenchOptions* o) {
  CLI::Option* json = c.add_flag("--json", o->json, "Print one JSON object instead of the table");
  c.add_flag("--csv", o->csv, "Print CSV instead of the table")->excludes(json);
}

void AddWorkingSetFlag(CLI::App& c, BenchOptions* o) {
  c.add_option("--working-set", o->working_set,
               "Bytes of memory that are passed over before a weight is read again, as 2G; 0: none, so that weights "
               "come from the cache that holds them; default: 1G, or twice the last-level cache, so that they come "
               "from memory")
      ->check(Checked(ParseWorkingSet));
}

void AddCaseFlags(CLI::App& c, BenchOptions* o, const char* rows) {
  c.add_option("--rows", o->rows, rows)
      ->delimiter(',')
      ->check(WholeIn(1, static_cast<std::uint64_t>(kMostRows)))
      ->capture_default_str();
  AddWorkingSetFlag(c, o);
  c.add_option("--seconds", o->repeats.seconds, "Repeat a case for so long")
      ->check(NumberIn(0, true, 3600))
      ->capture_default_str();
  c.add_option("--repeats", o->repeats.most, "Most repeats of a case; three at least")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  AddThreadFlag(c, o);
  AddKernelsFlag(c, o);
  AddOutputFlags(c, o);
}

void AddProfileFlag(CLI::App& c, BenchOptions* o) {
  c.add_flag("--profile", o->profile, "Tell where the time goes: phases, workers' loads, bytes moved, waste");
}

void AddFormatFlag(CLI::App& c, BenchOptions* o) {
  std::vector<std::string> formats;
  for (const bench::WeightFormat& format : bench::WeightFormats()) formats.emplace_back(format.name);
  c.add_option("--format", o->formats, fmt::format("How weights are kept: {}", fmt::join(formats, ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(formats))
      ->capture_default_str();
}

std::vector<bench::WeightFormat> FormatsOf(const BenchOptions& o) {
  std::vector<bench::WeightFormat> formats;
  for (const std::string& name : o.formats) formats.push_back(*bench::FindWeightFormat(name));
  return formats;
}

}  // namespace

void AddPeakFlags(CLI::App& c, BenchOptions* o) {
  AddWorkingSetFlag(c, o);
  AddThreadFlag(c, o);
  AddOutputFlags(c, o);
}

void AddGemmFlags(CLI::App& c, BenchOptions* o) {
  o->like = {"deepseek-v3", "deepseek-v2-lite", "minicpm3"};
  o->rows = {1, 2, 4, 8, 16, 32, 64, 128, 512};
  CLI::Option* shapes = c.add_option("--shape", o->shapes, "Products y [M, N] = x [M, K] W^T, as 8,2112,7168")
                            ->check(Checked(ParseShape));
  c.add_option("--like", o->like, fmt::format("Whose projections: {}, or the path of a config.json", PublishedNames()))
      ->delimiter(',')
      ->check(Checked([](const std::string& like) { return ConfigLike(like, std::nullopt); }))
      ->capture_default_str()
      ->excludes(shapes);
  AddCaseFlags(c, o, "Numbers of rows, M, as 1,8,512");
  AddFormatFlag(c, o);
  shapes->excludes(c.get_option("--rows"));
}

void AddMoeFlags(CLI::App& c, BenchOptions* o) {
  o->like = {"deepseek-v2-lite", "deepseek-v3:32"};
  o->rows = {1, 8, 64, 512};
  c.add_option("--like", o->like,
               fmt::format("Whose layer: {}, or the path of a config.json; cut to 32 experts where :32 follows",
                           PublishedNames()))
      ->delimiter(',')
      ->check(Checked(MoeConfigLike))
      ->capture_default_str();
  AddCaseFlags(c, o, "Numbers of rows, M, as 1,8,512");
  AddFormatFlag(c, o);
}

namespace {

// Whose heads, in which form, over how many keys of which kind.
void AddHeadFlags(CLI::App& c, BenchOptions* o, const std::vector<std::string>& forms) {
  o->like = {"deepseek-v3"};
  c.add_option("--like", o->like, fmt::format("Whose heads: {}, or the path of a config.json", PublishedNames()))
      ->delimiter(',')
      ->check(Checked([](const std::string& like) { return ConfigLike(like, std::nullopt); }))
      ->capture_default_str();
  c.add_option("--form", o->forms, fmt::format("Forms of the attention: {}", fmt::join(forms, ", ")))
      ->delimiter(',')
      ->check(CLI::IsMember(forms))
      ->capture_default_str();
  c.add_option("--keys", o->keys, "Positions of each request, S, its new rows included")
      ->delimiter(',')
      ->check(WholeIn(1, 1 << 24))
      ->capture_default_str();
  c.add_option("--kv-dtype", o->kv_dtype, "How cache rows are kept: bf16, f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
}

}  // namespace

void AddAttentionFlags(CLI::App& c, BenchOptions* o) {
  o->rows = {1};
  o->keys = {4096, 32768};
  o->forms = {"absorbed"};
  AddHeadFlags(c, o, {"absorbed", "mha"});
  c.add_option("--requests", o->requests, "Requests in a call, each with its own cache rows")
      ->check(WholeIn(1, 1 << 12))
      ->capture_default_str();
  c.add_option("--keys-range", o->keys_range,
               "Requests of different lengths in place of --keys: LOW:HIGH positions each, each doubling as likely as "
               "the next")
      ->check(Checked(ParseLengthRange))
      ->excludes(c.get_option("--keys"));
  c.add_option("--seed", o->seed, "Of those lengths")->check(WholeIn(0, UINT64_MAX))->capture_default_str();
  c.add_option("--expand", o->expand,
               "Memory that the MHA form may expand keys and values into at a time; what does not fit is expanded in "
               "pieces; default: 64M, as an engine has it")
      ->check(Checked(ParseSize));
  AddProfileFlag(c, o);
  AddCaseFlags(c, o, "New rows of each request, T, as 1,4,512");
}

void AddLayerFlags(CLI::App& c, BenchOptions* o) {
  o->rows = {1, 512};
  o->keys = {8192};
  o->forms = {"auto"};
  AddHeadFlags(c, o, {"auto", "absorbed", "mha"});
  AddProfileFlag(c, o);
  AddCaseFlags(c, o, "New rows, T, as 1,4,512");
}

void AddModelFlags(CLI::App& c, BenchOptions* o) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 31;
  AddModelArgument(c, o);
  c.add_option("--context", o->engine.context, "Tokens before the output that is timed")
      ->check(WholeIn(0, kMost))
      ->capture_default_str();
  c.add_option("--tokens", o->engine.tokens, "Tokens of output, timed one by one")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--sequences", o->engine.sequences,
               "Sequences of --context tokens each, that are decoded together; prompts are timed one at a time")
      ->check(WholeIn(1, 1 << 12))
      ->capture_default_str();
  c.add_option("--prompt", o->engine.prompt, "Tokens of the prompt that is timed")
      ->check(WholeIn(1, kMost))
      ->capture_default_str();
  c.add_option("--prompt-after", o->engine.prompt_after, "Tokens before them, whose rows are found in the cache")
      ->check(WholeIn(0, kMost))
      ->capture_default_str();
  c.add_option("--repeats", o->engine.repeats, "How often the prompt is timed")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--mode", o->mode, "Form of the attention, as in mla run")
      ->check(CLI::IsMember({"auto", "role", "mha", "absorb"}))
      ->capture_default_str();
  AddTuneTableFlag(c, o);
  c.add_option("--prefill-chunk", o->prefill_chunk, "Prompt tokens a step")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  AddKeepExpandedFlag(c, o);
  c.add_option("--working-set", o->working_set,
               "Bytes that the rate of reading memory is measured over, as 2G; 0: measure no limits, and tell no least "
               "time; default: 1G, or twice the last-level cache")
      ->check(Checked(ParseWorkingSet));
  AddMachineFlags(c, o);
  AddOutputFlags(c, o);
  AddProfileFlag(c, o);
  c.add_flag("--quiet,-q", o->quiet, "No progress");
}

void AddCrossoverFlags(CLI::App& c, BenchOptions* o) {
  o->like = {"deepseek-v3"};
  c.add_option("--like", o->like, fmt::format("Whose heads: demo, {}, or the path of a config.json", PublishedNames()))
      ->expected(1)
      ->check(Checked(bench::TuneShapeOf))
      ->capture_default_str();
  c.add_option("--max-rows", o->max_rows, "Most new rows, T")->check(WholeIn(1, kMostRows))->capture_default_str();
  c.add_option("--max-keys", o->max_keys, "Most positions, S, the new rows included")
      ->check(WholeIn(1, 1 << 24))
      ->capture_default_str();
  c.add_option("--layers", o->layers,
               "Layers that runs take in turn; 0: as many as keep weights and rows out of caches")
      ->check(WholeIn(0, 1 << 10))
      ->capture_default_str();
  c.add_option("--seconds", o->effort.seconds,
               "About how long to measure; points that no time is left for stay unmeasured")
      ->check(NumberIn(0, false, 1e6))
      ->capture_default_str();
  c.add_option("--pairs", o->effort.most, "Most pairs of runs a point")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_flag("--quick", o->quick, "Powers of four in place of two");
  c.add_option("--svg", o->svg, "Write a chart of the crossing to this file");
  c.add_option("--kv-dtype", o->kv_dtype, "How cache rows are kept: bf16, f32")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  c.add_option("--weights", o->weights, "How kv_b_proj is kept: auto (bf16), bf16 or f32")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->capture_default_str();
  AddTuneTableFlag(c, o);
  AddThreadFlag(c, o);
  AddKernelsFlag(c, o);
  AddOutputFlags(c, o);
}

Result<bench::LengthRange> ParseLengthRange(const std::string& text) {
  const std::size_t colon = text.find(':');
  const auto check = WholeIn(1, std::uint64_t{1} << 24);
  const std::string low = text.substr(0, colon);
  const std::string high = colon == std::string::npos ? low : text.substr(colon + 1);
  if (check(low).empty() && check(high).empty()) {
    const bench::LengthRange range{std::stoll(low), std::stoll(high)};
    if (range.low <= range.high) return range;
  }
  return Error{fmt::format("expected a number of tokens or LOW:HIGH, up to {}, found '{}'", 1 << 24, text)};
}

std::int64_t DefaultWorkingSet() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  return std::max<std::int64_t>(bench::kStreamed, 2 * sysconf(_SC_LEVEL3_CACHE_SIZE));
#else
  return bench::kStreamed;
#endif
}

Result<std::int64_t> WorkingSetOf(const BenchOptions& options) {
  if (options.working_set.empty()) return DefaultWorkingSet() / 64 * 64;
  MLA_ASSIGN_OR_RETURN(const std::int64_t asked, ParseWorkingSet(options.working_set));
  return (asked + 63) / 64 * 64;
}

Result<std::vector<GemmJob>> GemmJobs(const BenchOptions& o) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  std::vector<GemmJob> jobs;
  const auto add = [&](const bench::WeightShape& shape, const std::vector<std::int64_t>& rows) {
    for (const bench::WeightFormat& format : FormatsOf(o)) {
      jobs.push_back({{shape, format, *std::max_element(rows.begin(), rows.end()), working_set}, rows});
    }
  };
  for (const std::string& text : o.shapes) {
    MLA_ASSIGN_OR_RETURN(const Shape shape, ParseShape(text));
    add({"product", shape.n, shape.k}, {shape.m});
  }
  if (!o.shapes.empty()) return jobs;
  for (const std::string& like : o.like) {
    MLA_ASSIGN_OR_RETURN(const contract::ModelConfig config, ConfigLike(like, std::nullopt));
    for (bench::WeightShape shape : bench::ProjectionShapes(config)) {
      shape.name = like + " " + shape.name;
      add(shape, o.rows);
    }
  }
  return jobs;
}

Result<std::vector<MoeJob>> MoeJobs(const BenchOptions& o) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  std::vector<MoeJob> jobs;
  for (const std::string& like : o.like) {
    MLA_ASSIGN_OR_RETURN(const contract::ModelConfig config, MoeConfigLike(like));
    for (const bench::WeightFormat& format : FormatsOf(o)) {
      jobs.push_back({{like, config, format, *std::max_element(o.rows.begin(), o.rows.end()), working_set}, o.rows});
    }
  }
  return jobs;
}

namespace {

// Calls add(like, config, form, keys, rows) for each case of the flags; rows beyond its keys are left out, and the case
// with them where none are left. Of requests of different lengths keys are the least. Fails where that is every case.
template <class Add>
Status EachHeadCase(const BenchOptions& o, Add&& add) {
  std::vector<std::int64_t> all_keys = o.keys;
  if (!o.keys_range.empty()) {
    MLA_ASSIGN_OR_RETURN(const bench::LengthRange range, ParseLengthRange(o.keys_range));
    all_keys = {range.low};
  }

  bool any = false;
  for (const std::string& like : o.like) {
    MLA_ASSIGN_OR_RETURN(const contract::ModelConfig config, ConfigLike(like, std::nullopt));
    for (const std::string& form : o.forms) {
      for (const std::int64_t keys : all_keys) {
        std::vector<std::int64_t> rows;
        std::copy_if(o.rows.begin(), o.rows.end(), std::back_inserter(rows), [&](std::int64_t t) { return t <= keys; });
        if (rows.empty()) continue;
        add(like, config, form, keys, std::move(rows));
        any = true;
      }
    }
  }
  if (any) return {};
  return Error{fmt::format("--rows: expected at most {}, found {}",
                           o.keys_range.empty() ? "the largest of --keys" : "the least of --keys-range",
                           o.rows.front())};
}

}  // namespace

namespace {

// Lengths by --keys-range, and what the case's name says of them; without it `keys` each.
void SetLengths(const BenchOptions& o, std::int64_t keys, bench::AttentionPlan* plan) {
  plan->keys = keys;
  plan->requests = o.requests;
  plan->name += fmt::format(" S={}", o.keys_range.empty() ? std::to_string(keys) : o.keys_range);
  if (o.requests > 1) plan->name += fmt::format(" x{}", o.requests);
  if (o.keys_range.empty()) return;
  const bench::LengthRange range = ParseLengthRange(o.keys_range).value();
  plan->mixed_keys = bench::DrawLengths(o.requests, range, bench::Lengths::kLogUniform, o.seed);
  plan->keys = *std::max_element(plan->mixed_keys.begin(), plan->mixed_keys.end());
}

}  // namespace

Result<std::vector<AttentionJob>> AttentionJobs(const BenchOptions& o) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  std::optional<std::int64_t> expand;
  if (!o.expand.empty()) {
    MLA_ASSIGN_OR_RETURN(expand, ParseSize(o.expand));
  }
  std::vector<AttentionJob> jobs;
  MLA_RETURN_IF_ERROR(EachHeadCase(o, [&](const std::string& like, const contract::ModelConfig& config,
                                          const std::string& form, std::int64_t keys, std::vector<std::int64_t> rows) {
    AttentionJob job{{}, std::move(rows)};
    bench::AttentionPlan& plan = job.plan;
    plan.name = fmt::format("{} {}", like, form);
    SetLengths(o, keys, &plan);
    plan.dims = weights::DimsOf(config);
    plan.form = form == "mha" ? Form::kMha : Form::kAbsorbed;
    plan.kv_dtype = KvDTypeOf(o);
    plan.expand_bytes = expand.value_or(plan.expand_bytes);
    plan.max_rows = *std::max_element(job.rows.begin(), job.rows.end());
    plan.working_set = working_set;
    plan.profile = o.profile;
    jobs.push_back(std::move(job));
  }));
  return jobs;
}

Result<std::vector<LayerJob>> LayerJobs(const BenchOptions& o) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t working_set, WorkingSetOf(o));
  std::vector<LayerJob> jobs;
  MLA_RETURN_IF_ERROR(EachHeadCase(o, [&](const std::string& like, const contract::ModelConfig& config,
                                          const std::string& form, std::int64_t keys, std::vector<std::int64_t> rows) {
    LayerJob job{{}, std::move(rows)};
    bench::LayerPlan& plan = job.plan;
    plan.name = like;
    plan.config = config;
    if (form != "auto") plan.form = form == "mha" ? Form::kMha : Form::kAbsorbed;
    plan.kv_dtype = KvDTypeOf(o);
    plan.keys = keys;
    plan.max_rows = *std::max_element(job.rows.begin(), job.rows.end());
    plan.working_set = working_set;
    plan.profile = o.profile;
    jobs.push_back(std::move(job));
  }));
  return jobs;
}

}  // namespace mla::cli
