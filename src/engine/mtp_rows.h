// The rows that the multi-token-prediction layer runs behind a step.
#ifndef MLA_ENGINE_MTP_ROWS_H_
#define MLA_ENGINE_MTP_ROWS_H_

#include <cstdint>
#include <vector>

#include "engine/limits.h"
#include "engine/sequence.h"
#include "mla/attention.h"

namespace mla::engine {

// A sequence that wants so many guesses.
struct Guessing {
  Sequence* sequence = nullptr;
  std::int64_t wanted = 0;
};

// Row i has the hidden state in row from[i] of what the transformer returned last, and the token ids[i] behind it.
struct MtpRows {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> from;
  std::vector<std::int64_t> slots;
  std::vector<AttentionSequence> parts;
  std::vector<Sequence*> owners;   // [parts]
  std::vector<Guessing> guessing;  // who wants one more guess
  std::vector<Guessing> next;
  std::vector<std::int32_t> last;  // [guessing] the row that it comes from

  // Room for any step of these sizes: running allocates nothing.
  void Reserve(const Sizes& sizes);
  void Clear();  // the rows
  void Begin(Sequence* s, std::int64_t rows, std::int64_t keys, Form form);
  void Add(std::int32_t id, std::int64_t position, std::int64_t slot, std::int64_t hidden);
};

}  // namespace mla::engine

#endif  // MLA_ENGINE_MTP_ROWS_H_
