// A checkpoint as named, typed, shaped bytes: one safetensors file, or shards named by an index. Mapped, not read.
//
// Limit: a file that another process cuts short while it is mapped ends this one with SIGBUS where the lost bytes are
// touched. Replace checkpoints by renaming new files over them, as SafetensorsWriter does; never write into them.
#ifndef MLA_IO_CHECKPOINT_H_
#define MLA_IO_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/dtypes.h"
#include "mla/result.h"

namespace mla::io {

// One tensor of a checkpoint. `data` points into the mapped file and may be unaligned; it lives as long as the
// Checkpoint. `dtype_name` is the file's own word; `dtype` holds only where known_dtype is true.
struct Tensor {
  std::string name;
  std::string dtype_name;
  bool known_dtype = false;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;
  std::string file;  // name of the file that holds it, for messages

  std::int64_t elements() const;
};

// "[2048, 256]".
std::string ShapeText(const std::vector<std::int64_t>& shape);
// "[2048, 256] of BF16 in FILE", for messages.
std::string Describe(const Tensor& tensor);

// Whether a folder has weights beside its config: *.safetensors or their index. True for one that can't be listed:
// opening it tells why.
bool HasSafetensors(const std::string& path);

class Checkpoint {
 public:
  // Opens DIR/model.safetensors.index.json with its shards, or DIR/model.safetensors, or exactly one *.safetensors
  // file; or a path to one .safetensors file. Fails, naming file and fault, where a file is missing, truncated or
  // malformed, a shard's name is no plain name ('/', '..', NUL, empty), the index and the shards disagree, or two
  // shards hold the same tensor. Symbolic links are followed wherever they lead. Reads headers alone.
  static Result<Checkpoint> Open(const std::string& path);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  // Sorted by name.
  std::span<const Tensor> tensors() const;
  // nullptr where there is none.
  const Tensor* Find(std::string_view name) const;
  // Bytes of all files.
  std::int64_t file_bytes() const;

  // Hint: bytes [begin, end) of this tensor will be read soon. The system reads them meanwhile. Safe from several
  // threads.
  void Prefetch(const Tensor& tensor, std::int64_t begin, std::int64_t end) const;

  // Hint: the pages of this tensor's bytes won't be read again soon. They may be dropped from memory, and are read
  // back from the file if touched. Safe from several threads.
  void Drop(const Tensor& tensor) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla::io

#endif  // MLA_IO_CHECKPOINT_H_
