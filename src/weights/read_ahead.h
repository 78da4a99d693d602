// Reads a checkpoint ahead of the packing, so that the disk and the processors work at the same time.
#ifndef MLA_WEIGHTS_READ_AHEAD_H_
#define MLA_WEIGHTS_READ_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.h"

namespace mla::weights {

class ReadAhead {
 public:
  // Asks for bytes [begin, end) of a tensor.
  using Ask = std::function<void(const io::Tensor&, std::int64_t begin, std::int64_t end)>;

  // Bytes that are asked for before they are needed. A disk of 5 GB/s needs 13 ms for them, longer than a request
  // takes; more would only hold memory.
  static constexpr std::int64_t kWindow = std::int64_t{64} << 20;

  // `names` are tensors in the order of their use; those that the checkpoint lacks are passed over. Scales of fp8 come
  // right before their product. The checkpoint outlives this.
  ReadAhead(const io::Checkpoint& checkpoint, std::span<const std::string> names, Ask ask);

  // The user has done the first `done` bytes of all tensors in order, and goes on: asks for what is within the window,
  // each byte once.
  void Advance(std::int64_t done);

  // Bytes of all tensors in order; one that is used twice counts twice.
  std::int64_t bytes() const { return bytes_; }

 private:
  Ask ask_;
  std::vector<const io::Tensor*> order_;
  std::int64_t bytes_ = 0;
  std::size_t next_ = 0;         // the first tensor that was not asked for whole
  std::int64_t next_begin_ = 0;  // what of it was
  std::int64_t asked_ = 0;       // bytes asked for, of all tensors in order
};

}  // namespace mla::weights

#endif  // MLA_WEIGHTS_READ_AHEAD_H_
