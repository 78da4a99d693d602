#include "weights/read_ahead.h"

#include <algorithm>
#include <utility>

#include "contract/fp8.h"

namespace mla::weights {

ReadAhead::ReadAhead(const io::Checkpoint& checkpoint, std::span<const std::string> names, Ask ask)
    : ask_(std::move(ask)) {
  const auto add = [&](const io::Tensor* tensor) {
    if (tensor == nullptr) return;
    order_.push_back(tensor);
    bytes_ += tensor->bytes;
  };
  for (const std::string& name : names) {
    const io::Tensor* tensor = checkpoint.Find(name);
    if (tensor != nullptr && tensor->dtype == DType::kF8E4M3) add(checkpoint.Find(contract::ScaleName(name)));
    add(tensor);
  }
}

void ReadAhead::Advance(std::int64_t done) {
  const std::int64_t wanted = done + kWindow;
  while (asked_ < wanted && next_ < order_.size()) {
    const io::Tensor& tensor = *order_[next_];
    const std::int64_t end = std::min(tensor.bytes, next_begin_ + wanted - asked_);
    ask_(tensor, next_begin_, end);
    asked_ += end - next_begin_;
    next_begin_ = end;
    if (end < tensor.bytes) return;
    ++next_;
    next_begin_ = 0;
  }
}

}  // namespace mla::weights
