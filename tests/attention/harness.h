// Attention problems for tests, and a float64 oracle of them written from the definition: it shares no code with src/.
#ifndef MLA_TESTS_ATTENTION_HARNESS_H_
#define MLA_TESTS_ATTENTION_HARNESS_H_

#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mla/attention.h"

namespace mla::testing {

// Round to nearest even at 8 significant bits, by arithmetic on the value (normal range).
double NearestBf16(double value);
float RoundToBf16(float value);

// kv_b_proj [H (N+V), R].
struct TestWeights {
  MlaDims dims;
  WeightDType keep = WeightDType::kF32;
  std::vector<float> raw;  // as the checkpoint has them
  double Stored(std::int64_t row, std::int64_t column) const;
};

struct TestSequence {
  std::int64_t rows = 0;  // T, the last of its keys
  std::int64_t keys = 0;  // S
  Form form = Form::kAbsorbed;
  std::vector<float> latent;  // [S, R]
  std::vector<float> rope;    // [S, P]
  std::vector<float> q;       // [T, H, N + P]
};

// How rows lie in the cache.
struct TestPaging {
  DType dtype = DType::kF32;
  std::int64_t page_tokens = kDefaultPageTokens;
  std::uint64_t shuffle = 1;  // seed of the page ids' order; 0 hands them out in order
};

struct TestRun {
  std::string kernels;
  int workers = 1;
  std::int64_t chunk = 0;  // rows of each sequence in a call; 0 for all in one
  std::int64_t expand_bytes = std::int64_t{64} << 20;
  std::int64_t keep_bytes = 0;  // of which every sequence may have, but for its last call
  bool profile = false;
};

struct TestOutput {
  std::vector<std::vector<float>> out;  // per sequence [T, H, V]
  std::vector<std::vector<float>> lse;  // per sequence [T, H]
  AttentionCounters counters;
  AttentionProfile profile;  // of a run that asks for it
};

// Options of a small case: scale 0.3, one worker, the fastest kernels.
MlaAttention::Options OptionsFor(const MlaDims& dims, std::int64_t max_rows, std::int64_t max_keys);

// What stands in page tables past the last page: an index that no cache has.
inline constexpr std::int32_t kNoPage = std::numeric_limits<std::int32_t>::max();

// Fills every slot with NaN, so that whatever reads one that was not written shows.
void PoisonPages(const LatentCache& cache);

// Values in [-1, 1).
std::vector<float> RandomFloats(std::int64_t count, std::mt19937_64& rng);
TestWeights RandomWeights(const MlaDims& dims, WeightDType keep, std::mt19937_64& rng);
TestSequence RandomSequence(const MlaDims& dims, std::int64_t rows, std::int64_t keys, Form form, std::mt19937_64& rng);

// Writes the sequences' rows into pages of a cache whose dead slots hold NaN, gives page tables whose unused entries
// are INT32_MAX, and runs the sequences in calls of `chunk` rows each, rows being written just before the call that
// brings them. Rows of `out` that belong to no sequence are checked to be left alone.
TestOutput RunAttention(const TestWeights& weights, std::span<const TestSequence> sequences, const TestPaging& paging,
                        double scale, const TestRun& run);

// The oracle's answer for a row and head, and how far fp32 may be from it.
struct Expected {
  std::vector<double> out;        // [T, H, V]
  std::vector<double> out_bound;  // [T, H, V]
  std::vector<double> lse;        // [T, H]
  std::vector<double> lse_bound;  // [T, H]
};

// How what is held to the oracle was computed.
struct OracleRules {
  bool exact_scores = false;    // the caller has made every product and sum inside the scores exact in fp32
  bool bf16_inputs = false;     // products with the weights round what meets them to bf16
  bool bf16_attention = false;  // the attention multiplies bf16 by bf16
};
Expected Oracle(const TestWeights& weights, const TestSequence& sequence, DType cache_dtype, double scale,
                const OracleRules& rules = {});

// Compares: NaN and infinity positions first, then the bound; prints the worst place. Returns the largest error divided
// by its bound.
double ExpectWithin(const TestOutput& got, std::size_t sequence, const Expected& expected, const std::string& label);

// (N + P)^-1/2.
double ScaleOf(const MlaDims& dims);

// Runs the sequences with every kernel table that this machine has, against one oracle.
void ExpectEveryTableWithin(const TestWeights& weights, const std::vector<TestSequence>& sequences,
                            const TestPaging& paging, double scale, const std::string& label,
                            bool exact_scores = false);

// Bit for bit, printing the first difference.
void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const std::string& label);

// The kernel tables that this machine and build have.
std::vector<std::string> KernelTables();
// Whether a table's products with bf16 weights, and its attention over bf16 caches, round to bf16 what they multiply.
bool RoundsInputs(const std::string& kernels);

}  // namespace mla::testing

#endif  // MLA_TESTS_ATTENTION_HARNESS_H_
