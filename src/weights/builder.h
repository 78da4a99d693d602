// Lays the weights out, and fills them where there is a checkpoint. One code path plans and loads, so that planned
// bytes are allocated bytes.
#ifndef MLA_WEIGHTS_BUILDER_H_
#define MLA_WEIGHTS_BUILDER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/buffer.h"
#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "mla/result.h"
#include "ops/packed.h"
#include "weights/weights.h"

namespace mla::weights {

class Builder {
 public:
  // Counts bytes; everything handed out is null.
  explicit Builder(WeightDType keep) : keep_(keep) {}
  // Fills `arena`, which is as large as a counting builder said. `config` says what fp8 looks like; everything outlives
  // this.
  Builder(WeightDType keep, Buffer& arena, const contract::ModelConfig& config, const io::Checkpoint& checkpoint,
          Executor& executor, const Progress& progress);

  // A 1-d tensor, widened to floats.
  const float* Vector(const std::string& name, std::int64_t n);
  // Rows kept as they are read.
  Embedding Table(const std::string& name, std::int64_t rows, std::int64_t columns);

  struct Source {
    std::string name;
    std::int64_t rows;
  };
  // Tensors [rows, k] stacked into one packed matrix of the kept dtype, or of `format`.
  ops::PackedMatrix Matrix(std::initializer_list<Source> sources, std::int64_t k);
  ops::PackedMatrix Matrix(std::initializer_list<Source> sources, std::int64_t k, ops::PackedFormat format);
  // kv_b_proj, in buffers of its own.
  std::optional<KvBWeights> KvB(const std::string& name, const MlaDims& dims);

  std::int64_t arena_bytes() const { return carver_.used(); }
  std::int64_t kv_b_bytes() const { return kv_b_bytes_; }
  // The first failure, if any: memory for kv_b, or numbers of fp8 that are none. Nothing is packed after it.
  const Status& status() const { return status_; }

 private:
  // Whether there is something to pack.
  bool loading() const { return checkpoint_ != nullptr && status_.ok(); }
  const io::Tensor& Fetch(const std::string& name) const;
  // A tensor [rows, columns] as products read it, its scales checked; records a fault.
  ops::MatrixSource SourceOf(const io::Tensor& tensor, std::int64_t columns);
  // The same for its codes, of rows [begin, end): true where one is NaN.
  static bool HasNan(const ops::MatrixSource& source, std::int64_t begin, std::int64_t end, std::int64_t columns);
  // Packs a tensor's rows from row `first_row` of the matrix on.
  void PackInto(const ops::PackedMatrix& matrix, const io::Tensor& tensor, std::int64_t first_row, std::int64_t rows);
  void Done(const io::Tensor& tensor);

  WeightDType keep_;
  Carver carver_;
  const contract::ModelConfig* config_ = nullptr;
  const io::Checkpoint* checkpoint_ = nullptr;
  Executor* executor_ = nullptr;
  const Progress* progress_ = nullptr;
  std::int64_t kv_b_bytes_ = 0;
  std::int64_t read_ = 0;
  std::int64_t total_ = 0;
  Status status_;
};

}  // namespace mla::weights

#endif  // MLA_WEIGHTS_BUILDER_H_
