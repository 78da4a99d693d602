// The file that rows of a cache are kept in: format, and the refusal of what does not fit (docs/cache-files.md).
#ifndef MLA_ENGINE_CACHE_FILE_H_
#define MLA_ENGINE_CACHE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/sequence.h"
#include "io/file.h"
#include "mla/result.h"

namespace mla::engine {

inline constexpr std::uint32_t kCacheFileVersion = 1;

// What a row's bits depend on beside its tokens and forms, and how they lie. Rows pass from a file to an engine only
// where all of it is equal.
struct CacheSchema {
  std::int64_t layers = 0;
  std::int64_t latent_elements = 0;
  std::int64_t rope_elements = 0;
  std::int64_t row_bytes = 0;
  std::int64_t vocab_size = 0;
  std::uint64_t rope_fingerprint = 0;
  std::uint64_t model_fingerprint = 0;
  std::string dtype;    // of rows
  std::string weights;  // as they are kept
  std::string mode;
  std::string kernels;
};

struct CacheFileContent {
  CacheSchema schema;
  std::vector<std::int32_t> ids;
  std::int64_t output = 0;     // of the last so many ids, fewer than all: output that is to go on
  std::int64_t rows = 0;       // of the first so many ids
  std::vector<FormRun> forms;  // of those rows: the first begins at 0, neighbours differ
};

// Memory of rows of one layer that lie one after another, the first that of position `token`: a whole number of them,
// at least one, none past the last.
using RowsAt = std::function<std::span<std::byte>(std::int64_t layer, std::int64_t token)>;

// Writes a file that appears whole, or leaves what was there. Returns its bytes. Fails, naming the path, where it can't
// be written.
Result<std::int64_t> WriteCacheFile(const std::string& path, const CacheFileContent& content, const RowsAt& rows);

// Reads one in three steps, so that nothing is allocated or written for a file that is refused: Open, then ReadIds,
// then ReadRows. Each fails, naming the path, what was expected and what was found.
class CacheFileReader {
 public:
  // Reads the header alone. Fails where it is none, is damaged or of another version, or states another size than the
  // file has.
  static Result<CacheFileReader> Open(const std::string& path);

  const CacheSchema& schema() const { return content_.schema; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t rows() const { return content_.rows; }
  std::int64_t bytes() const { return file_.bytes; }
  // Fails where what was asked of a row differs, naming the first difference.
  Status Require(const CacheSchema& expected) const;
  // Fails on more tokens than a context holds, or more rows than a cache does.
  Status RequireAtMost(std::int64_t tokens, std::int64_t rows) const;

  // Ids and forms. Four bytes a token are allocated: see to their number first.
  Status ReadIds();
  // Valid from ReadIds on.
  const CacheFileContent& content() const { return content_; }
  // Rows, to where they belong. What was written is worth nothing unless it succeeds: the checksum comes last.
  Status ReadRows(const RowsAt& rows);

 private:
  CacheFileReader(std::string path, io::RegularFile file);
  Status ReadHeader();
  Status CheckSizes() const;
  Status CheckContent() const;
  Status Read(std::span<std::byte> bytes);
  Error Fault(const std::string& what) const;

  std::string path_;  // fit for a message
  io::RegularFile file_;
  std::int64_t at_ = 0;  // bytes read
  Hash64 hash_;          // of them
  std::int64_t tokens_ = 0;
  std::int64_t form_runs_ = 0;
  CacheFileContent content_;
};

}  // namespace mla::engine

#endif  // MLA_ENGINE_CACHE_FILE_H_
