// Tiny checkpoints whose products are kept in blocks of fp8, and the same numbers written wide.
#ifndef MLA_TESTS_TESTING_FP8_CHECKPOINT_H_
#define MLA_TESTS_TESTING_FP8_CHECKPOINT_H_

#include <cstdint>
#include <string>

#include "mla/dtypes.h"

namespace mla::testing {

struct Fp8Options {
  std::int64_t block_rows = 128;
  std::int64_t block_columns = 128;
  DType scale_dtype = DType::kF32;  // kF32, kBF16 or kF8E8M0
  bool power_of_two = false;        // scale_fmt ue8m0; kF8E8M0 is of powers of two anyway
};

// Writes into `dir` what WriteTinyCheckpoint makes of (config_json, seed), its products in fp8: a block's scale is its
// largest magnitude over 448, rounded up to what scale_dtype can hold; a code the nearest to value / scale. Other
// tensors are BF16, the router's bias F32. config.json gets the quantization_config. Into `wide_dir` go the same
// numbers in F32, each product rounded once, with the config as it was. Aborts with the reason where something fails.
void WriteFp8Checkpoint(const std::string& dir, const std::string& wide_dir, const std::string& config_json,
                        std::uint64_t seed, const Fp8Options& options = {});

// The config with a quantization_config of these options.
std::string Fp8ConfigJson(const std::string& config_json, const Fp8Options& options);

}  // namespace mla::testing

#endif  // MLA_TESTS_TESTING_FP8_CHECKPOINT_H_
