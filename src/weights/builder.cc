#include "weights/builder.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/fp8.h"
#include "contract/fp8.h"

namespace mla::weights {
namespace {

constexpr std::int64_t kPanelsPerTask = 4;
constexpr std::int64_t kRowsPerTask = 64;

}  // namespace

Builder::Builder(WeightDType keep, Buffer& arena, const contract::ModelConfig& config, const io::Checkpoint& checkpoint,
                 Executor& executor, const Progress& progress)
    : keep_(keep),
      carver_(arena),
      config_(&config),
      checkpoint_(&checkpoint),
      executor_(&executor),
      progress_(&progress) {
  for (const io::Tensor& tensor : checkpoint.tensors()) total_ += tensor.bytes;
}

const io::Tensor& Builder::Fetch(const std::string& name) const {
  const io::Tensor* tensor = checkpoint_->Find(name);
  MLA_CHECK(tensor != nullptr);  // RequireTensors has passed
  return *tensor;
}

ops::MatrixSource Builder::SourceOf(const io::Tensor& tensor, std::int64_t columns) {
  if (const auto fault = contract::ScaleValueFault(*config_, tensor, *checkpoint_)) status_ = Error{*fault};
  return ops::MatrixSource::Dense(tensor.dtype, tensor.data, columns,
                                  contract::ScalesOf(*config_, tensor, *checkpoint_));
}

bool Builder::HasNan(const ops::MatrixSource& source, std::int64_t begin, std::int64_t end, std::int64_t columns) {
  return source.dtype == DType::kF8E4M3 && begin < end &&
         HasNanE4M3(source.data + begin * columns, (end - begin) * columns);
}

void Builder::Done(const io::Tensor& tensor) {
  std::int64_t bytes = tensor.bytes;
  checkpoint_->Drop(tensor);
  if (tensor.dtype == DType::kF8E4M3) bytes += Fetch(contract::ScaleName(tensor.name)).bytes;
  read_ = std::min(total_, read_ + bytes);  // tied embeddings are read twice
  if (*progress_) (*progress_)(read_, total_);
}

const float* Builder::Vector(const std::string& name, std::int64_t n) {
  auto* out = carver_.Take<float>(n);
  if (!loading()) return out;
  const io::Tensor& tensor = Fetch(name);
  ops::ReadRow(SourceOf(tensor, n), 0, n, out);
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
      if (keep_ == WeightDType::kF32) {
        ops::ReadRow(source, row, columns, reinterpret_cast<float*>(out) + row * columns);
      } else {
        ops::ReadRow(source, row, columns, reinterpret_cast<Bf16Bits*>(out) + row * columns);
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
  std::int64_t first_row = 0;
  for (const Source& source : sources) {
    if (!loading()) break;
    PackInto(matrix, Fetch(source.name), first_row, source.rows);
    first_row += source.rows;
  }
  return matrix;
}

void Builder::PackInto(const ops::PackedMatrix& matrix, const io::Tensor& tensor, std::int64_t first_row,
                       std::int64_t rows) {
  const ops::MatrixSource source = SourceOf(tensor, matrix.k);
  if (!status_.ok()) return;
  const std::int64_t first_panel = first_row / ops::kPanel;
  const std::int64_t panels = ops::Panels(first_row + rows) - first_panel;
  std::atomic<bool> nan = false;
  ParallelFor(*executor_, (panels + kPanelsPerTask - 1) / kPanelsPerTask, [&](std::int64_t task, int /*worker*/) {
    const std::int64_t begin = first_panel + task * kPanelsPerTask;
    const std::int64_t end = std::min(first_panel + panels, begin + kPanelsPerTask);
    const auto row = [&](std::int64_t panel) {
      return std::clamp<std::int64_t>(panel * ops::kPanel - first_row, 0, rows);
    };
    // Beside the packing, while the rows are in cache.
    if (HasNan(source, row(begin), row(end), matrix.k)) nan = true;
    ops::PackPanels(source, first_row, rows, matrix, begin, end);
  });
  if (nan) status_ = Error{contract::NanCodeFault(tensor)};
  Done(tensor);
}

std::optional<KvBWeights> Builder::KvB(const std::string& name, const MlaDims& dims) {
  kv_b_bytes_ += KvBWeights::Bytes(dims, keep_);
  if (!loading()) return std::nullopt;
  const io::Tensor& tensor = Fetch(name);
  const ops::MatrixSource source = SourceOf(tensor, dims.kv_lora_rank);
  if (!status_.ok()) return std::nullopt;
  if (HasNan(source, 0, tensor.shape[0], dims.kv_lora_rank)) {
    status_ = Error{contract::NanCodeFault(tensor)};
    return std::nullopt;
  }
  auto packed = KvBWeights::Pack(dims, tensor.dtype, tensor.data, keep_, *executor_,
                                 contract::ScalesOf(*config_, tensor, *checkpoint_));
  Done(tensor);
  if (!packed.ok()) {
    status_ = packed.error();
    return std::nullopt;
  }
  return std::move(packed).value();
}

}  // namespace mla::weights
