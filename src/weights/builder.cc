#include "weights/builder.h"

#include <algorithm>

#include "base/check.h"

namespace mla::weights {
namespace {

constexpr std::int64_t kPanelsPerTask = 4;
constexpr std::int64_t kRowsPerTask = 64;

ops::MatrixSource SourceOf(const io::Tensor& tensor, std::int64_t columns) {
  return {tensor.dtype, tensor.data, columns, 1};
}

}  // namespace

Builder::Builder(WeightDType keep, Buffer& arena, const io::Checkpoint& checkpoint, Executor& executor,
                 const Progress& progress)
    : keep_(keep), carver_(arena), checkpoint_(&checkpoint), executor_(&executor), progress_(&progress) {
  for (const io::Tensor& tensor : checkpoint.tensors()) total_ += tensor.bytes;
}

const io::Tensor& Builder::Fetch(const std::string& name) const {
  const io::Tensor* tensor = checkpoint_->Find(name);
  MLA_CHECK(tensor != nullptr);  // RequireTensors has passed
  return *tensor;
}

void Builder::Done(const io::Tensor& tensor) {
  checkpoint_->Drop(tensor);
  read_ = std::min(total_, read_ + tensor.bytes);  // tied embeddings are read twice
  if (*progress_) (*progress_)(read_, total_);
}

const float* Builder::Vector(const std::string& name, std::int64_t n) {
  auto* out = carver_.Take<float>(n);
  if (!loading()) return out;
  const io::Tensor& tensor = Fetch(name);
  for (std::int64_t i = 0; i < n; ++i) out[i] = ops::ElementAt(SourceOf(tensor, n), 0, i);
  Done(tensor);
  return out;
}

Embedding Builder::Table(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const std::int64_t width = keep_ == WeightDType::kF32 ? 4 : 2;
  auto* out = carver_.Take<std::byte>(rows * columns * width);
  if (!loading()) return {keep_, columns, out};
  const io::Tensor& tensor = Fetch(name);
  const ops::MatrixSource source = SourceOf(tensor, columns);
  ParallelFor(*executor_, (rows + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int /*worker*/) {
    const std::int64_t end = std::min(rows, (task + 1) * kRowsPerTask);
    for (std::int64_t row = task * kRowsPerTask; row < end; ++row) {
      for (std::int64_t i = 0; i < columns; ++i) {
        const float value = ops::ElementAt(source, row, i);
        if (keep_ == WeightDType::kF32) {
          reinterpret_cast<float*>(out)[row * columns + i] = value;
        } else {
          reinterpret_cast<Bf16Bits*>(out)[row * columns + i] = Bf16FromFloat(value);
        }
      }
    }
  });
  Done(tensor);
  return {keep_, columns, out};
}

ops::PackedMatrix Builder::Matrix(std::initializer_list<Source> sources, std::int64_t k) {
  return Matrix(sources, k, keep_ == WeightDType::kF32 ? ops::PackedFormat::kF32 : ops::PackedFormat::kBF16);
}

ops::PackedMatrix Builder::Matrix(std::initializer_list<Source> sources, std::int64_t k, ops::PackedFormat format) {
  ops::PackedMatrix matrix{format, 0, k, nullptr};
  for (const Source& source : sources) matrix.n += source.rows;
  matrix.data = carver_.Take<std::byte>(matrix.bytes());
  if (!loading()) return matrix;
  const std::int64_t panels = ops::Panels(matrix.n);
  std::int64_t first_row = 0;
  for (const Source& source : sources) {
    const io::Tensor& tensor = Fetch(source.name);
    ParallelFor(*executor_, (panels + kPanelsPerTask - 1) / kPanelsPerTask, [&](std::int64_t task, int /*worker*/) {
      ops::PackPanels(SourceOf(tensor, k), first_row, source.rows, matrix, task * kPanelsPerTask,
                      std::min(panels, (task + 1) * kPanelsPerTask));
    });
    first_row += source.rows;
    Done(tensor);
  }
  return matrix;
}

std::optional<KvBWeights> Builder::KvB(const std::string& name, const MlaDims& dims) {
  kv_b_bytes_ += KvBWeights::Bytes(dims, keep_);
  if (!loading() || !status_.ok()) return std::nullopt;
  const io::Tensor& tensor = Fetch(name);
  auto packed = KvBWeights::Pack(dims, tensor.dtype, tensor.data, keep_, *executor_);
  Done(tensor);
  if (!packed.ok()) {
    status_ = packed.error();
    return std::nullopt;
  }
  return std::move(packed).value();
}

}  // namespace mla::weights
