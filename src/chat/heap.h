// What one rendering may take: steps, and bytes that are alive at a time. A template comes with a checkpoint and what
// it is given with a request; neither is to be trusted with a machine.
#ifndef MLA_CHAT_HEAP_H_
#define MLA_CHAT_HEAP_H_

#include <cstdint>
#include <string>

#include "mla/result.h"

namespace mla::chat {

// Counts, and remembers that a bound was passed: whoever loops or makes values asks ok() as it goes, and an evaluation
// ends with Fault(). For one thread.
class Heap {
 public:
  Heap(std::int64_t max_steps, std::int64_t max_bytes) : steps_left_(max_steps), bytes_left_(max_bytes) {}

  void Spend(std::int64_t steps) { steps_left_ -= steps; }
  // Reading or writing so many bytes: a step for 64 of them.
  void SpendBytes(std::size_t bytes) { Spend(1 + static_cast<std::int64_t>(bytes / 64)); }
  void Take(std::int64_t bytes) {
    bytes_left_ -= bytes;
    if (bytes_left_ < 0) out_of_bytes_ = true;
  }
  void GiveBack(std::int64_t bytes) { bytes_left_ += bytes; }

  // Lists and dicts lie deeper in each other than kMaxNesting.
  void NestsTooDeep() { too_deep_ = true; }

  bool ok() const { return steps_left_ >= 0 && !out_of_bytes_ && !too_deep_; }
  // Whether a value of so many bytes may be made at all.
  bool Fits(std::int64_t bytes) const { return bytes <= bytes_left_; }
  Error Fault() const {
    if (too_deep_) return Error{"lists or mappings lie too deep in each other"};
    return Error{out_of_bytes_ ? "it takes more memory than any conversation should"
                               : "it takes more steps than any conversation should"};
  }

 private:
  std::int64_t steps_left_;
  std::int64_t bytes_left_;
  bool out_of_bytes_ = false;
  bool too_deep_ = false;
};

}  // namespace mla::chat

#endif  // MLA_CHAT_HEAP_H_
