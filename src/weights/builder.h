// Lays the weights out, and fills them where there is a checkpoint. One code path plans and loads, so that planned
// bytes are allocated bytes.
#ifndef MLA_WEIGHTS_BUILDER_H_
#define MLA_WEIGHTS_BUILDER_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/hash.h"
#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/attention.h"
#include "mla/executor.h"
#include "mla/result.h"
#include "ops/packed.h"
#include "weights/read_ahead.h"
#include "weights/weights.h"

namespace mla::weights {

class Builder {
 public:
  // Counts bytes, and notes which tensors are asked for; everything handed out is null. `stored` is where the tensors
  // are, or null; products that it lacks are as the config says. Everything outlives this.
  Builder(const contract::ModelConfig& config, WeightDType keep, const io::Checkpoint* stored)
      : config_(config), keep_(keep), stored_(stored) {}
  // Fills `arena`, which is as large as `counting` said, a builder that was asked for the same model and looked at the
  // same checkpoint. Everything outlives this.
  Builder(const Builder& counting, Buffer& arena, const io::Checkpoint& checkpoint, Executor& executor,
          const Progress& progress, HugePages huge_pages);

  // What follows belongs to `part`; once MTP layers have begun, all of it to them.
  void Begin(Part part) {
    if (part_ != Part::kMtp) part_ = part;
  }

  // Whether the checkpoint has an optional tensor.
  bool Has(const std::string& name) const { return stored_ != nullptr && stored_->Find(name) != nullptr; }

  // A 1-d tensor, widened to floats.
  const float* Vector(const std::string& name, std::int64_t n);
  // Rows kept as they are read.
  Embedding Table(const std::string& name, std::int64_t rows, std::int64_t columns);

  struct Source {
    std::string name;
    std::int64_t rows;
  };
  // Products [rows, k] stacked into one packed matrix, of the kept dtype. Fp8 stays so if all of them are in fp8.
  ops::PackedMatrix Product(std::initializer_list<Source> sources, std::int64_t k);
  // A matrix that is never in fp8, in the kept dtype or in `format`.
  ops::PackedMatrix Matrix(const Source& source, std::int64_t k);
  ops::PackedMatrix Matrix(const Source& source, std::int64_t k, ops::PackedFormat format);
  // A gate and an up projection [width, k] as one matrix for ops::GemmProblem::swiglu, kept as Product's.
  ops::PackedMatrix Swiglu(const std::string& gate, const std::string& up, std::int64_t width, std::int64_t k);
  // kv_b_proj, in buffers of its own.
  std::optional<KvBWeights> KvB(const std::string& name, const MlaDims& dims);

  std::int64_t arena_bytes() const { return carver_.used(); }
  std::int64_t kv_b_bytes() const { return kv_b_bytes_; }
  // Bytes taken so far, padding included, by part and format; their sum is arena_bytes() + kv_b_bytes().
  const std::map<std::pair<Part, ops::PackedFormat>, std::int64_t>& bytes_of() const { return bytes_of_; }
  // ModelWeights::fingerprint.
  std::uint64_t fingerprint() const { return hash_.Value(); }
  // The first failure, if any: memory for kv_b, or numbers of fp8 that are none. Nothing is packed after it.
  const Status& status() const { return status_; }

 private:
  // Room in the arena, counted as the current part's.
  template <class T>
  T* Take(ops::PackedFormat format, std::int64_t n) {
    const std::int64_t before = carver_.used();
    T* out = carver_.Take<T>(n);
    bytes_of_[{part_, format}] += carver_.used() - before;
    return out;
  }
  bool StaysFp8(std::initializer_list<Source> sources) const;
  ops::PackedMatrix Stacked(std::initializer_list<Source> sources, ops::PackedMatrix matrix);
  // Whether there is something to pack. Where not, the name is noted.
  bool Loads(const std::string& name);
  // A tensor to be read now; the fingerprint counts it in.
  const io::Tensor& Fetch(const std::string& name);
  // A tensor of so many columns as products read it. Fails on scales of fp8 that can't be used.
  Result<ops::MatrixSource> SourceOf(const io::Tensor& tensor, std::int64_t columns);
  // An empty matrix as these are kept.
  ops::PackedMatrix FormatOf(std::initializer_list<Source> sources, std::int64_t k) const;
  // Packs a tensor's rows from row `first_row` of the matrix on. panel_step as in ops::PackPanels.
  Status PackInto(const ops::PackedMatrix& matrix, const io::Tensor& tensor, std::int64_t first_row, std::int64_t rows,
                  std::int64_t panel_step = 1);
  // Runs work(begin, end) for blocks of [first, first + rows), which begin at multiples of 64, by all workers: the rows
  // of a tensor in their place among `whole` rows. In pieces, with progress after each. A block's pages come from the
  // memory of the node that reads it (ops::FirstPanelOf), by whichever worker packs it.
  template <class Work>
  void ForRows(const io::Tensor& tensor, std::int64_t first, std::int64_t rows, std::int64_t whole, const Work& work);
  // So many bytes more were read.
  void Read(std::int64_t bytes);

  const contract::ModelConfig& config_;
  WeightDType keep_;
  const io::Checkpoint* stored_;
  Carver carver_;
  Part part_ = Part::kEmbedding;
  std::map<std::pair<Part, ops::PackedFormat>, std::int64_t> bytes_of_;
  std::vector<std::string> names_;
  const io::Checkpoint* checkpoint_ = nullptr;
  Executor* executor_ = nullptr;
  const Progress* progress_ = nullptr;
  HugePages huge_pages_ = HugePages::kAuto;
  std::optional<ReadAhead> ahead_;
  std::int64_t kv_b_bytes_ = 0;
  std::int64_t read_ = 0;
  Hash64 hash_;
  Status status_;
};

}  // namespace mla::weights

#endif  // MLA_WEIGHTS_BUILDER_H_
