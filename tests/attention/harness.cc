#include "attention/harness.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "base/cpu_info.h"

namespace mla::testing {
namespace {

constexpr float kSentinel = -12345.0F;

}  // namespace

double TestWeights::Stored(std::int64_t row, std::int64_t column) const {
  const float value = raw[static_cast<std::size_t>(row * dims.kv_lora_rank + column)];
  return keep == WeightDType::kBF16 ? RoundToBf16(value) : value;
}

MlaAttention::Options OptionsFor(const MlaDims& dims, std::int64_t max_rows, std::int64_t max_keys) {
  MlaAttention::Options options;
  options.dims = dims;
  options.softmax_scale = 0.3;
  options.max_rows = max_rows;
  options.max_keys = max_keys;
  return options;
}

void PoisonPages(const LatentCache& cache) {
  // All bits set is NaN in both dtypes. Layers lie one after another.
  std::memset(cache.Layer(0).data, 0xff, static_cast<std::size_t>(cache.bytes()));
}

std::vector<float> RandomFloats(std::int64_t count, std::mt19937_64& rng) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(rng() >> 40) * 0x1p-23F - 1.0F;
  return values;
}

TestWeights RandomWeights(const MlaDims& dims, WeightDType keep, std::mt19937_64& rng) {
  const std::int64_t rows = dims.num_attention_heads * (dims.qk_nope_head_dim + dims.v_head_dim);
  return {dims, keep, RandomFloats(rows * dims.kv_lora_rank, rng)};
}

TestSequence RandomSequence(const MlaDims& dims, std::int64_t rows, std::int64_t keys, Form form,
                            std::mt19937_64& rng) {
  TestSequence s;
  s.rows = rows;
  s.keys = keys;
  s.form = form;
  s.latent = RandomFloats(keys * dims.kv_lora_rank, rng);
  s.rope = RandomFloats(keys * dims.qk_rope_head_dim, rng);
  s.q = RandomFloats(rows * dims.num_attention_heads * (dims.qk_nope_head_dim + dims.qk_rope_head_dim), rng);
  return s;
}

std::vector<std::string> KernelTables() {
  std::vector<std::string> names;
  const CpuInfo cpu = DetectCpu();
  for (const Isa isa : kIsas) {
    if (cpu.Has(isa)) names.emplace_back(IsaName(isa));
  }
  return names;
}

bool RoundsInputs(const std::string& kernels) { return kernels == "avx512bf16" || kernels == "amx"; }

namespace {

// The cache of a run and the sequences' page tables.
struct Paged {
  LatentCache cache;
  std::vector<std::vector<std::int32_t>> tables;
};

Paged MakePaged(const MlaDims& dims, std::span<const TestSequence> sequences, const TestPaging& paging) {
  const CacheLayout layout =
      MakeLatentLayout(dims.kv_lora_rank, dims.qk_rope_head_dim, 1, paging.dtype, paging.page_tokens);
  std::int64_t needed = 0;
  for (const TestSequence& s : sequences) needed += layout.PagesFor(s.keys);
  const std::int64_t pages = needed + 3;
  Result<LatentCache> cache = LatentCache::Create(layout, pages);
  EXPECT_TRUE(cache.ok());
  PoisonPages(*cache);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(pages));
  std::iota(ids.begin(), ids.end(), 0);
  if (paging.shuffle != 0) {
    std::mt19937_64 rng(paging.shuffle);
    std::shuffle(ids.begin(), ids.end(), rng);
  }
  Paged paged{std::move(cache).value(), {}};
  auto next = ids.begin();
  for (const TestSequence& s : sequences) {
    const auto count = layout.PagesFor(s.keys);
    std::vector<std::int32_t> table(next, next + count);
    next += count;
    table.resize(table.size() + 4, kNoPage);
    paged.tables.push_back(std::move(table));
  }
  return paged;
}

void WritePositions(const MlaDims& dims, const Paged& paged, std::size_t sequence, const TestSequence& s,
                    std::int64_t begin, std::int64_t end) {
  const CacheLayerView view = paged.cache.Layer(0);
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t page = paged.tables[sequence][static_cast<std::size_t>(p / view.page_tokens)];
    WriteCacheRow(view, page * view.page_tokens + p % view.page_tokens, s.latent.data() + p * dims.kv_lora_rank,
                  s.rope.data() + p * dims.qk_rope_head_dim);
  }
}

// One call: rows [begin, begin + chunk) of every sequence that has them, a row of nobody's before each sequence.
struct Call {
  std::vector<AttentionSequence> sequences;
  std::vector<std::int64_t> begins;
  std::vector<float> q;
  std::int64_t rows = 0;
};

Call MakeCall(const MlaDims& dims, const Paged& paged, std::span<const TestSequence> sequences, std::int64_t begin,
              std::int64_t chunk) {
  const std::int64_t width = dims.num_attention_heads * (dims.qk_nope_head_dim + dims.qk_rope_head_dim);
  Call call;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const TestSequence& s = sequences[i];
    const std::int64_t count = std::clamp<std::int64_t>(s.rows - begin, 0, chunk);
    call.q.insert(call.q.end(), static_cast<std::size_t>(width), std::numeric_limits<float>::quiet_NaN());
    ++call.rows;
    AttentionSequence out;
    out.pages = paged.tables[i];
    out.first_row = call.rows;
    out.rows = count;
    out.keys = s.keys - s.rows + std::min(s.rows, begin + chunk);
    out.form = s.form;
    out.kept_as = i + 1;
    out.keep = begin + chunk < s.rows;
    call.sequences.push_back(out);
    const auto from = s.q.begin() + std::min(s.rows, begin) * width;
    call.q.insert(call.q.end(), from, from + count * width);
    call.rows += count;
  }
  return call;
}

// Takes the rows of a call's results to the sequences, and checks that nobody's rows are as they were.
void Collect(const Call& call, const std::vector<float>& values, std::int64_t width,
             std::vector<std::vector<float>>* to) {
  std::int64_t expected_next = 0;
  for (std::size_t i = 0; i < call.sequences.size(); ++i) {
    const AttentionSequence& s = call.sequences[i];
    for (std::int64_t at = expected_next * width; at < s.first_row * width; ++at) {
      ASSERT_EQ(values[static_cast<std::size_t>(at)], kSentinel) << "a row of no sequence was written";
    }
    const auto from = values.begin() + s.first_row * width;
    (*to)[i].insert((*to)[i].end(), from, from + s.rows * width);
    expected_next = s.first_row + s.rows;
  }
}

}  // namespace

TestOutput RunAttention(const TestWeights& weights, std::span<const TestSequence> sequences, const TestPaging& paging,
                        double scale, const TestRun& run) {
  const MlaDims& dims = weights.dims;
  const Paged paged = MakePaged(dims, sequences, paging);
  const std::unique_ptr<Executor> pool = MakeThreadPool(run.workers);
  Result<KvBWeights> packed =
      KvBWeights::Pack(dims, DType::kF32, reinterpret_cast<const std::byte*>(weights.raw.data()), weights.keep, *pool);
  EXPECT_TRUE(packed.ok());
  MlaAttention::Options options = OptionsFor(dims, 0, 0);
  options.softmax_scale = scale;
  options.workers = run.workers;
  options.expand_bytes = run.expand_bytes;
  options.keep_bytes = run.keep_bytes;
  options.kernels = run.kernels;
  options.profile = run.profile;
  std::int64_t longest = 0;
  for (const TestSequence& s : sequences) {
    options.max_keys = std::max(options.max_keys, s.keys);
    longest = std::max(longest, s.rows);
  }
  const std::int64_t chunk = run.chunk > 0 ? run.chunk : std::max<std::int64_t>(longest, 1);
  for (const TestSequence& s : sequences) options.max_rows += std::min(s.rows, chunk);
  options.max_rows = std::max<std::int64_t>(options.max_rows, 1);
  Result<MlaAttention> attention = MlaAttention::Create(options);
  EXPECT_TRUE(attention.ok()) << (attention.ok() ? "" : attention.error().message);

  TestOutput result;
  result.out.resize(sequences.size());
  result.lse.resize(sequences.size());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    WritePositions(dims, paged, i, sequences[i], 0, sequences[i].keys - sequences[i].rows);
  }
  for (std::int64_t begin = 0; begin < std::max<std::int64_t>(longest, 1); begin += chunk) {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const TestSequence& s = sequences[i];
      WritePositions(dims, paged, i, s, s.keys - s.rows + std::min(begin, s.rows),
                     s.keys - s.rows + std::min(begin + chunk, s.rows));
    }
    const Call call = MakeCall(dims, paged, sequences, begin, chunk);
    std::vector<float> out(static_cast<std::size_t>(call.rows * dims.num_attention_heads * dims.v_head_dim), kSentinel);
    std::vector<float> lse(static_cast<std::size_t>(call.rows * dims.num_attention_heads), kSentinel);
    attention->Run(paged.cache.Layer(0), *packed, call.sequences, call.q.data(), out.data(), lse.data(), *pool);
    Collect(call, out, dims.num_attention_heads * dims.v_head_dim, &result.out);
    Collect(call, lse, dims.num_attention_heads, &result.lse);
  }
  result.counters = attention->counters();
  if (run.profile) result.profile = attention->profile();
  return result;
}

namespace {

double Compare(const std::vector<float>& got, const std::vector<double>& want, const std::vector<double>& bound,
               const std::string& label) {
  if (got.size() != want.size()) {
    ADD_FAILURE() << label << ": " << got.size() << " values, expected " << want.size();
    return std::numeric_limits<double>::infinity();
  }
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) {
      ADD_FAILURE() << label << ": [" << i << "] is " << got[i] << ", expected " << want[i];
      return std::numeric_limits<double>::infinity();
    }
    const double ratio = std::abs(static_cast<double>(got[i]) - want[i]) / bound[i];
    if (ratio > worst) {
      worst = ratio;
      worst_at = i;
    }
  }
  EXPECT_LE(worst, 1.0) << label << ": worst at [" << worst_at << "]: " << got[worst_at] << ", expected "
                        << want[worst_at] << " within " << bound[worst_at];
  return worst;
}

}  // namespace

double ExpectWithin(const TestOutput& got, std::size_t sequence, const Expected& expected, const std::string& label) {
  return std::max(Compare(got.out[sequence], expected.out, expected.out_bound, label + " out"),
                  Compare(got.lse[sequence], expected.lse, expected.lse_bound, label + " lse"));
}

double ScaleOf(const MlaDims& dims) {
  return 1 / std::sqrt(static_cast<double>(dims.qk_nope_head_dim + dims.qk_rope_head_dim));
}

void ExpectEveryTableWithin(const TestWeights& weights, const std::vector<TestSequence>& sequences,
                            const TestPaging& paging, double scale, const std::string& label, bool exact_scores) {
  // Tables of the same rules share an oracle's answers.
  std::map<bool, std::vector<Expected>> answers;
  for (const std::string& kernels : KernelTables()) {
    const bool rounds = RoundsInputs(kernels);
    const OracleRules rules{exact_scores, rounds && weights.keep == WeightDType::kBF16,
                            rounds && paging.dtype == DType::kBF16};
    std::vector<Expected>& expected = answers[rules.bf16_inputs || rules.bf16_attention];
    for (std::size_t i = expected.size(); i < sequences.size(); ++i) {
      const TestSequence& s = sequences[i];
      // Often the same rows stand side by side in both forms: where nothing is rounded the oracle knows no form.
      const bool again = !rounds && i > 0 && s.rows == sequences[i - 1].rows && s.q == sequences[i - 1].q &&
                         s.latent == sequences[i - 1].latent && s.rope == sequences[i - 1].rope;
      expected.push_back(again ? expected.back() : Oracle(weights, s, paging.dtype, scale, rules));
    }
    const TestOutput got = RunAttention(weights, sequences, paging, scale, {.kernels = kernels});
    double worst = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const TestSequence& s = sequences[i];
      worst = std::max(worst, ExpectWithin(got, i, expected[i],
                                           label + " " + kernels + " " + FormName(s.form) + " T " +
                                               std::to_string(s.rows) + " S " + std::to_string(s.keys)));
    }
    ::testing::Test::RecordProperty(label + " " + kernels, std::to_string(worst));
  }
}

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const std::string& label) {
  ASSERT_EQ(a.size(), b.size()) << label;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i])) continue;
    FAIL() << label << ": [" << i << "] of " << a.size() << " is " << a[i] << " in one and " << b[i] << " in the other";
  }
}

}  // namespace mla::testing
