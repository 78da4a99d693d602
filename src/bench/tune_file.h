// A measured table as a file: JSON, versioned, with the machine that it was measured on.
#ifndef MLA_BENCH_TUNE_FILE_H_
#define MLA_BENCH_TUNE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/tune.h"
#include "bench/tune_products.h"
#include "mla/attention.h"
#include "mla/dtypes.h"
#include "mla/result.h"
#include "plan/work.h"

namespace mla::bench {

// What seconds hold for.
struct TuneMachine {
  std::string processor;
  std::string kernels;
  std::string build;  // version, commit, compiler
  int threads = 1;
  std::string kv_dtype;  // of cache rows: "bf16" or "f32"
  std::string weights;   // kv_b_proj and the products: "bf16" or "f32"
};

struct TuneFile {
  std::string name;  // 1 to 64 of letters, digits, '.', '_' and '-'
  TuneMachine machine;
  TunedProducts products;
  std::int64_t chunk = 512;
  std::vector<TunedShape> shapes;
};

bool IsTableName(std::string_view name);

// The file's text, with a newline.
std::string TuneFileText(const TuneFile& file);

struct ReadTable {
  FormTable table;  // its id is the name and a hash of the text
  TuneFile file;
};
// Fails, in one line that opens with `where`, on what is no such file: bad JSON, another format or version, a field
// that lacks, is unknown or out of its range, no shape, a shape that is there twice.
Result<ReadTable> ParseTuneFile(std::string_view text, std::string_view where);
// Fails also where the file can't be read or is larger than 4 MiB.
Result<ReadTable> ReadTuneFile(const std::string& path);

// What `mla plan` prices by: the products' rates by the bytes of their weights, the attention by the table. What was
// not measured (attention of keys and values by head) takes the highest rate of a product, and the rate of reading.
plan::Rates RatesOf(const ReadTable& table);

}  // namespace mla::bench

#endif  // MLA_BENCH_TUNE_FILE_H_
