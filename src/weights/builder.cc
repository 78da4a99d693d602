#include "weights/builder.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/fp8.h"
#include "base/numa.h"
#include "base/parallel.h"
#include "contract/fp8.h"
#include "ops/placement.h"

namespace mla::weights {
namespace {

constexpr std::int64_t kRowsPerTask = 64;
static_assert(kRowsPerTask % ops::kPanel == 0);
// Of a source, between two looks at what to read next; progress is told as often.
constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;

bool HasNan(const ops::MatrixSource& source, std::int64_t begin, std::int64_t end, std::int64_t columns) {
  return source.dtype == DType::kF8E4M3 && HasNanE4M3(source.data + begin * columns, (end - begin) * columns);
}

ops::PackedFormat WideFormat(WeightDType keep) {
  return keep == WeightDType::kF32 ? ops::PackedFormat::kF32 : ops::PackedFormat::kBF16;
}

}  // namespace

Builder::Builder(const Builder& counting, Buffer& arena, const io::Checkpoint& checkpoint, Executor& executor,
                 const Progress& progress, HugePages huge_pages)
    : config_(counting.config_),
      keep_(counting.keep_),
      stored_(counting.stored_),
      carver_(arena),
      checkpoint_(&checkpoint),
      executor_(&executor),
      progress_(&progress),
      huge_pages_(huge_pages),
      ahead_(std::in_place, checkpoint, counting.names_,
             [&checkpoint](const io::Tensor& tensor, std::int64_t begin, std::int64_t end) {
               checkpoint.Prefetch(tensor, begin, end);
             }) {
  ahead_->Advance(0);
}

bool Builder::Loads(const std::string& name) {
  if (checkpoint_ == nullptr) names_.push_back(name);
  return checkpoint_ != nullptr && status_.ok();
}

const io::Tensor& Builder::Fetch(const std::string& name) {
  const io::Tensor* tensor = checkpoint_->Find(name);
  MLA_CHECK(tensor != nullptr);  // RequireTensors has passed
  const std::string what = name + ' ' + tensor->dtype_name + ' ' + io::ShapeText(tensor->shape);
  hash_.Add(std::as_bytes(std::span(what)));
  const std::span<const std::byte> bytes(tensor->data, static_cast<std::size_t>(tensor->bytes));
  const std::size_t end = std::min<std::size_t>(bytes.size(), 4096);
  hash_.Add(bytes.first(end));
  hash_.Add(bytes.last(end));
  return *tensor;
}

Result<ops::MatrixSource> Builder::SourceOf(const io::Tensor& tensor, std::int64_t columns) {
  if (const auto fault = contract::ScaleValueFault(config_, tensor, *checkpoint_)) return Error{*fault};
  const BlockScales scales = contract::ScalesOf(config_, tensor, *checkpoint_);
  if (scales.data != nullptr) Read(Fetch(contract::ScaleName(tensor.name)).bytes);
  return ops::MatrixSource::Dense(tensor.dtype, tensor.data, columns, scales);
}

void Builder::Read(std::int64_t bytes) {
  read_ += bytes;
  ahead_->Advance(read_);
  if (*progress_) (*progress_)(read_, ahead_->bytes());
}

template <class Work>
void Builder::ForRows(const io::Tensor& tensor, std::int64_t first, std::int64_t rows, std::int64_t whole,
                      const Work& work) {
  const std::int64_t row_bytes = tensor.bytes / rows;
  const std::int64_t last = first + rows;
  const std::int64_t first_block = first / kRowsPerTask;
  const std::int64_t blocks = (last + kRowsPerTask - 1) / kRowsPerTask - first_block;
  const std::int64_t piece = std::max<std::int64_t>(1, kPieceBytes / (kRowsPerTask * row_bytes));
  const std::int64_t pieces = (blocks + piece - 1) / piece;
  // A piece takes its part of every node's rows, so that each node's workers have rows of their own to pack.
  const NodeShares shares(*executor_);
  const auto border = [&](int node, std::int64_t part) {
    const auto clipped = [&](int n) {
      const std::int64_t row = ops::FirstPanelOf(shares, whole, n) * ops::kPanel;
      return std::clamp((row + kRowsPerTask - 1) / kRowsPerTask, first_block, first_block + blocks);
    };
    const std::int64_t begin = node == 0 ? first_block : clipped(node);
    const std::int64_t end = node + 1 == shares.nodes() ? first_block + blocks : clipped(node + 1);
    return begin + (end - begin) * part / pieces;
  };
  const auto row_of = [&](std::int64_t block) { return std::clamp(block * kRowsPerTask, first, last); };
  std::array<std::int64_t, kMaxNodes> counts{};
  for (std::int64_t part = 0; part < pieces; ++part) {
    std::int64_t packed = 0;
    for (int node = 0; node < shares.nodes(); ++node) {
      const std::int64_t begin = border(node, part);
      const std::int64_t end = border(node, part + 1);
      counts[static_cast<std::size_t>(node)] = end - begin;
      packed += row_of(end) - row_of(begin);
    }
    ParallelForPlaced(*executor_, std::span(counts).first(static_cast<std::size_t>(shares.nodes())),
                      [&](int node, std::int64_t index, int worker) {
                        const bool away = executor_->node_of(worker) != node;
                        const PreferNode near_readers(away ? executor_->system_node(node) : -1);
                        const std::int64_t block = border(node, part) + index;
                        work(row_of(block), row_of(block + 1));
                      });
    Read(packed * row_bytes);
  }
  checkpoint_->Drop(tensor);
}

const float* Builder::Vector(const std::string& name, std::int64_t n) {
  auto* out = Take<float>(ops::PackedFormat::kF32, n);
  if (!Loads(name)) return out;
  const io::Tensor& tensor = Fetch(name);
  ops::ReadRow({tensor.dtype, tensor.data, n, 1}, 0, n, out);
  Read(tensor.bytes);
  return out;
}

Embedding Builder::Table(const std::string& name, std::int64_t rows, std::int64_t columns) {
  const WeightDType kept = keep_ == WeightDType::kF32 ? keep_ : WeightDType::kBF16;
  auto* out = Take<std::byte>(WideFormat(keep_), rows * columns * (kept == WeightDType::kF32 ? 4 : 2));
  if (!Loads(name)) return {kept, columns, out};
  const io::Tensor& tensor = Fetch(name);
  const ops::MatrixSource source{tensor.dtype, tensor.data, columns, 1};
  ForRows(tensor, 0, rows, rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (kept == WeightDType::kF32) {
        ops::ReadRow(source, row, columns, reinterpret_cast<float*>(out) + row * columns);
      } else {
        ops::ReadRow(source, row, columns, reinterpret_cast<Bf16Bits*>(out) + row * columns);
      }
    }
  });
  return {kept, columns, out};
}

bool Builder::StaysFp8(std::initializer_list<Source> sources) const {
  if (keep_ != WeightDType::kFp8 || !config_.fp8 || !ops::CanKeepF8(config_.fp8->block_columns)) return false;
  return std::all_of(sources.begin(), sources.end(), [this](const Source& source) {
    const io::Tensor* tensor = stored_ == nullptr ? nullptr : stored_->Find(source.name);
    return tensor == nullptr || (tensor->known_dtype && tensor->dtype == DType::kF8E4M3);
  });
}

ops::PackedMatrix Builder::FormatOf(std::initializer_list<Source> sources, std::int64_t k) const {
  if (StaysFp8(sources)) return {ops::PackedFormat::kF8, 0, k, nullptr, config_.fp8->block_columns};
  return {WideFormat(keep_), 0, k};
}

ops::PackedMatrix Builder::Product(std::initializer_list<Source> sources, std::int64_t k) {
  return Stacked(sources, FormatOf(sources, k));
}

ops::PackedMatrix Builder::Matrix(const Source& source, std::int64_t k) {
  return Stacked({source}, {WideFormat(keep_), 0, k});
}

ops::PackedMatrix Builder::Matrix(const Source& source, std::int64_t k, ops::PackedFormat format) {
  return Stacked({source}, {format, 0, k});
}

ops::PackedMatrix Builder::Stacked(std::initializer_list<Source> sources, ops::PackedMatrix matrix) {
  for (const Source& source : sources) matrix.n += source.rows;
  matrix.data = Take<std::byte>(matrix.format, matrix.bytes());
  std::int64_t first_row = 0;
  for (const Source& source : sources) {
    if (Loads(source.name)) status_ = PackInto(matrix, Fetch(source.name), first_row, source.rows);
    first_row += source.rows;
  }
  return matrix;
}

ops::PackedMatrix Builder::Swiglu(const std::string& gate, const std::string& up, std::int64_t width, std::int64_t k) {
  ops::PackedMatrix matrix = FormatOf({{gate, width}, {up, width}}, k);
  matrix.n = ops::SwigluRows(width);
  matrix.data = Take<std::byte>(matrix.format, matrix.bytes());
  ops::PackedMatrix part = matrix;
  part.n = width;
  for (const std::string& name : {gate, up}) {
    if (Loads(name)) status_ = PackInto(part, Fetch(name), 0, width, 2);
    part.data += matrix.panel_bytes();
  }
  return matrix;
}

Status Builder::PackInto(const ops::PackedMatrix& matrix, const io::Tensor& tensor, std::int64_t first_row,
                         std::int64_t rows, std::int64_t panel_step) {
  MLA_ASSIGN_OR_RETURN(const ops::MatrixSource source, SourceOf(tensor, matrix.k));
  std::atomic<bool> nan = false;
  ForRows(tensor, first_row, rows, matrix.n, [&](std::int64_t begin, std::int64_t end) {
    ops::PackPanels(source, first_row, rows, matrix, begin / ops::kPanel, ops::Panels(end), panel_step);
    // After the packing, while the rows are in cache.
    if (HasNan(source, begin - first_row, end - first_row, matrix.k)) nan = true;
  });
  if (nan) return Error{contract::NanCodeFault(tensor)};
  return {};
}

std::optional<KvBWeights> Builder::KvB(const std::string& name, const MlaDims& dims) {
  const std::int64_t bytes = KvBWeights::Bytes(dims, keep_);
  kv_b_bytes_ += bytes;
  bytes_of_[{part_, WideFormat(keep_)}] += bytes;
  if (!Loads(name)) return std::nullopt;
  const io::Tensor& tensor = Fetch(name);
  const Result<ops::MatrixSource> source = SourceOf(tensor, dims.kv_lora_rank);
  if (!source.ok()) {
    status_ = source.error();
    return std::nullopt;
  }
  auto packed = KvBWeights::Pack(dims, tensor.dtype, tensor.data, keep_, *executor_,
                                 contract::ScalesOf(config_, tensor, *checkpoint_), huge_pages_);
  Read(tensor.bytes);
  checkpoint_->Drop(tensor);
  if (!packed.ok()) {
    // Pack does not know the tensor's name.
    const bool nan = HasNan(*source, 0, tensor.shape[0], dims.kv_lora_rank);
    status_ = nan ? Error{contract::NanCodeFault(tensor)} : packed.error();
    return std::nullopt;
  }
  return std::move(packed).value();
}

}  // namespace mla::weights
