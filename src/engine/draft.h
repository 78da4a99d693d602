// Guesses at the next tokens, and how many of them are worth a step's rows.
#ifndef MLA_ENGINE_DRAFT_H_
#define MLA_ENGINE_DRAFT_H_

#include <cstdint>
#include <span>
#include <vector>

namespace mla::engine {

// Appends to *drafts up to `most` tokens that followed the last tokens of `ids` where they stood before: the longest
// match of up to 4 of them, the latest of equals. None where not even the last two stood together before. Reads ids
// once, from the end: linear in their number.
void DraftByNgram(std::span<const std::int32_t> ids, std::int64_t most, std::vector<std::int32_t>* drafts);

// How many tokens to guess, by what became of earlier guesses of the same sequence: guesses that miss cost rows of
// every product. One more after a step whose guesses all held, as many as held and one after a miss; after a run of
// misses a pause, doubled each time up to kLongestPause steps. A pure function of the outcomes, so that a replay
// guesses the same.
class DraftThrottle {
 public:
  static constexpr std::int64_t kMisses = 4;  // steps in a row without one guess that held, before a pause
  static constexpr std::int64_t kLongestPause = 64;

  // Guesses for the next step, at most `limit`.
  std::int64_t Next(std::int64_t limit);
  // What became of a step's guesses.
  void Tell(std::int64_t drafted, std::int64_t accepted);

 private:
  std::int64_t length_ = 2;
  std::int64_t misses_ = 0;
  std::int64_t pause_ = 0;  // steps left of it
  std::int64_t next_pause_ = 4;
};

}  // namespace mla::engine

#endif  // MLA_ENGINE_DRAFT_H_
