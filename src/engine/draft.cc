#include "engine/draft.h"

#include <algorithm>

namespace mla::engine {

void DraftByNgram(std::span<const std::int32_t> ids, std::int64_t most, std::vector<std::int32_t>* drafts) {
  constexpr std::size_t kLongest = 4;
  constexpr std::size_t kShortest = 2;
  const std::size_t size = ids.size();
  if (most <= 0 || size <= kShortest) return;
  std::size_t best_length = kShortest - 1;
  std::size_t best_end = 0;  // one past the match
  for (std::size_t end = size - 1; end >= kShortest && best_length < kLongest; --end) {
    std::size_t length = 0;
    while (length < kLongest && length < end && ids[end - 1 - length] == ids[size - 1 - length]) ++length;
    if (length > best_length) {
      best_length = length;
      best_end = end;
    }
  }
  if (best_end == 0) return;
  const std::size_t count = std::min(static_cast<std::size_t>(most), size - best_end);
  const auto from = ids.subspan(best_end, count);
  drafts->insert(drafts->end(), from.begin(), from.end());
}

std::int64_t DraftThrottle::Next(std::int64_t limit) {
  if (pause_ > 0) {
    --pause_;
    return 0;
  }
  return std::min(length_, limit);
}

void DraftThrottle::Tell(std::int64_t drafted, std::int64_t accepted) {
  if (drafted == 0) return;
  length_ = accepted == drafted ? drafted + 1 : std::max<std::int64_t>(1, accepted + 1);
  if (accepted > 0) {
    misses_ = 0;
    next_pause_ = 4;
  } else if (++misses_ >= kMisses) {
    misses_ = 0;
    pause_ = next_pause_;
    next_pause_ = std::min(kLongestPause, 2 * next_pause_);
  }
}

}  // namespace mla::engine
