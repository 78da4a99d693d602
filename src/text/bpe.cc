#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "io/quote.h"
#include "text/byte_level.h"

namespace mla::text {

Result<Bpe> Bpe::Make(std::vector<BpeEntry> entries, const std::vector<Merge>& merges, bool whole_words,
                      std::string_view where) {
  Bpe bpe;
  bpe.whole_words_ = whole_words;
  bpe.entries_ = std::move(entries);
  std::sort(bpe.entries_.begin(), bpe.entries_.end(),
            [](const BpeEntry& a, const BpeEntry& b) { return a.token < b.token; });
  bpe.byte_entry_.resize(256);
  for (int byte = 0; byte < 256; ++byte) {
    const std::string_view character = ByteCharacter(static_cast<unsigned char>(byte));
    const std::int32_t entry = bpe.IndexOf(character);
    if (entry < 0) {
      return Error{
          fmt::format("{}: model.vocab: expected all 256 characters of the byte-level alphabet, found no \"{}\" "
                      "(byte {:#04x})",
                      where, character, byte)};
    }
    bpe.byte_entry_[static_cast<std::size_t>(byte)] = entry;
  }
  MLA_RETURN_IF_ERROR(bpe.AddMerges(merges, where));
  return bpe;
}

Status Bpe::AddMerges(const std::vector<Merge>& merges, std::string_view where) {
  struct Row {
    std::int32_t left;
    Right right;
  };
  std::vector<Row> rows;
  rows.reserve(merges.size());
  result_.reserve(merges.size());
  for (const auto& [left, right] : merges) {
    const std::size_t rank = result_.size();
    const std::int32_t left_entry = IndexOf(left);
    const std::int32_t right_entry = IndexOf(right);
    const std::int32_t result = IndexOf(left + right);
    if (left_entry < 0 || right_entry < 0 || result < 0) {
      const std::string missing = left_entry < 0 ? left : right_entry < 0 ? right : left + right;
      return Error{
          fmt::format("{}: model.merges[{}]: expected both parts and the result in the vocabulary, found no {}", where,
                      rank, io::Quoted(missing, 80))};
    }
    rows.push_back({left_entry, {right_entry, static_cast<std::uint32_t>(rank)}});
    result_.push_back(result);
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::tie(a.left, a.right.entry, b.right.rank) < std::tie(b.left, b.right.entry, a.right.rank);
  });
  // Of equal pairs the latest comes first, and stays.
  const auto same = [](const Row& a, const Row& b) { return a.left == b.left && a.right.entry == b.right.entry; };
  rows.erase(std::unique(rows.begin(), rows.end(), same), rows.end());
  first_right_.assign(entries_.size() + 1, 0);
  for (const Row& row : rows) {
    ++first_right_[static_cast<std::size_t>(row.left) + 1];
    rights_.push_back(row.right);
  }
  for (std::size_t i = 1; i < first_right_.size(); ++i) first_right_[i] += first_right_[i - 1];
  return {};
}

std::int32_t Bpe::IndexOf(std::string_view token) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), token,
                                      [](const BpeEntry& entry, std::string_view key) { return entry.token < key; });
  if (found == entries_.end() || found->token != token) return -1;
  return static_cast<std::int32_t>(found - entries_.begin());
}

std::int32_t Bpe::Find(std::string_view token) const {
  const std::int32_t index = IndexOf(token);
  return index < 0 ? -1 : entries_[static_cast<std::size_t>(index)].id;
}

std::uint32_t Bpe::RankOf(std::int32_t left, std::int32_t right) const {
  const auto begin = rights_.begin() + first_right_[static_cast<std::size_t>(left)];
  const auto end = rights_.begin() + first_right_[static_cast<std::size_t>(left) + 1];
  const auto found =
      std::lower_bound(begin, end, right, [](const Right& row, std::int32_t entry) { return row.entry < entry; });
  return found == end || found->entry != right ? kNoMerge : found->rank;
}

namespace {

// The heap's order is the order of merging: rank, then place.
std::uint64_t Candidate(std::uint32_t rank, std::int32_t at) {
  return std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(at);
}

void Push(std::vector<std::uint64_t>& heap, std::uint64_t candidate) {
  heap.push_back(candidate);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

std::uint64_t Pop(std::vector<std::uint64_t>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const std::uint64_t top = heap.back();
  heap.pop_back();
  return top;
}

}  // namespace

void Bpe::Start(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  const auto count = static_cast<std::int32_t>(word.size());
  for (std::int32_t at = 0; at < count; ++at) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(at)]);
    symbols.push_back({byte_entry_[byte], at - 1, at + 1 < count ? at + 1 : -1, kNoMerge});
  }
  for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
    symbols[at].rank = RankOf(symbols[at].entry, symbols[at + 1].entry);
    if (symbols[at].rank != kNoMerge) {
      scratch.heap.push_back(Candidate(symbols[at].rank, static_cast<std::int32_t>(at)));
    }
  }
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

// Merges symbol `at` with its next one, and looks up the two pairs that this makes.
void Bpe::MergeAt(std::int32_t at, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& left = symbols[static_cast<std::size_t>(at)];
  auto& right = symbols[static_cast<std::size_t>(left.next)];
  left.entry = result_[left.rank];
  left.next = right.next;
  left.rank = kNoMerge;
  right.rank = kNoMerge;
  if (left.next >= 0) {
    auto& next = symbols[static_cast<std::size_t>(left.next)];
    next.previous = at;
    left.rank = RankOf(left.entry, next.entry);
    if (left.rank != kNoMerge) Push(scratch.heap, Candidate(left.rank, at));
  }
  if (left.previous >= 0) {
    auto& previous = symbols[static_cast<std::size_t>(left.previous)];
    previous.rank = RankOf(previous.entry, left.entry);
    if (previous.rank != kNoMerge) Push(scratch.heap, Candidate(previous.rank, left.previous));
  }
}

void Bpe::Encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  MLA_CHECK_LE(word.size(), std::size_t{0x7FFFFFFF});
  if (whole_words_) {
    const std::int32_t id = Find(ToByteLevel(word));
    if (id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  Start(word, scratch);
  while (!scratch.heap.empty()) {
    const std::uint64_t top = Pop(scratch.heap);
    const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFF);
    // A candidate whose pair has changed since is stale: a rank names one pair, and a symbol merged away has none.
    if (scratch.symbols[static_cast<std::size_t>(at)].rank == top >> 32) MergeAt(at, scratch);
  }
  for (std::int32_t at = 0; at >= 0; at = scratch.symbols[static_cast<std::size_t>(at)].next) {
    ids.push_back(entries_[static_cast<std::size_t>(scratch.symbols[static_cast<std::size_t>(at)].entry)].id);
  }
}

}  // namespace mla::text
