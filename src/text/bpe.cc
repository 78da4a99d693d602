#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "io/quote.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace mla::text {

Bpe::Bpe(Kind kind, std::vector<BpeEntry> entries) : entries_(std::move(entries)), byte_entry_(256, -1), kind_(kind) {
  std::sort(entries_.begin(), entries_.end(), [](const BpeEntry& a, const BpeEntry& b) { return a.token < b.token; });
}

Result<Bpe> Bpe::Make(std::vector<BpeEntry> entries, const std::vector<Merge>& merges, bool whole_words,
                      std::string_view where) {
  Bpe bpe(Kind::kByteLevel, std::move(entries));
  bpe.whole_words_ = whole_words;
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

Result<Bpe> Bpe::MakeRanked(std::vector<BpeEntry> entries, std::string_view where) {
  Bpe bpe(Kind::kRanked, std::move(entries));
  bpe.whole_words_ = true;
  bpe.result_.resize(bpe.entries_.size());
  bpe.index_.reserve(bpe.entries_.size());
  for (std::size_t i = 0; i < bpe.entries_.size(); ++i) {
    const BpeEntry& entry = bpe.entries_[i];
    if (entry.token.size() > kLongestRanked) {
      return Error{fmt::format("{}: expected tokens of at most {} bytes, found one of {} with id {}", where,
                               kLongestRanked, entry.token.size(), entry.id)};
    }
    bpe.longest_ = std::max(bpe.longest_, entry.token.size());
    bpe.index_.emplace(entry.token, static_cast<std::int32_t>(i));
    bpe.result_[static_cast<std::size_t>(entry.id)] = static_cast<std::int32_t>(i);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto character = static_cast<char>(byte);
    const std::int32_t entry = bpe.IndexOf({&character, 1});
    if (entry < 0) {
      return Error{fmt::format("{}: expected a token for each of the 256 bytes, found none for {:#04x}", where, byte)};
    }
    bpe.byte_entry_[static_cast<std::size_t>(byte)] = entry;
  }
  return bpe;
}

Result<Bpe> Bpe::MakeOfCharacters(std::vector<BpeEntry> entries, const std::vector<Merge>& merges, bool whole_words,
                                  const UnknownCharacters& unknown, std::string_view where) {
  Bpe bpe(Kind::kCharacters, std::move(entries));
  bpe.whole_words_ = whole_words;
  for (std::size_t i = 0; i < bpe.entries_.size(); ++i) {
    const std::string_view token = bpe.entries_[i].token;
    if (token.empty()) continue;
    const Utf8Step step = NextUtf8(token);
    if (step.bytes == token.size()) bpe.characters_.emplace(step.code_point, static_cast<std::int32_t>(i));
  }
  MLA_RETURN_IF_ERROR(bpe.AddUnknown(unknown, where));
  MLA_RETURN_IF_ERROR(bpe.AddMerges(merges, where));
  return bpe;
}

Status Bpe::AddUnknown(const UnknownCharacters& unknown, std::string_view where) {
  fuse_unknown_ = unknown.fuse;
  int missing = 256;
  for (int byte = 0; unknown.as_bytes && byte < 256; ++byte) {
    const std::int32_t entry = IndexOf(fmt::format("<0x{:02X}>", byte));
    byte_entry_[static_cast<std::size_t>(byte)] = entry;
    if (entry >= 0) --missing;
  }
  if (!unknown.token.empty()) {
    unknown_entry_ = IndexOf(unknown.token);
    if (unknown_entry_ < 0) {
      return Error{fmt::format("{}: model.unk_token: expected a token of the vocabulary, found {}", where,
                               io::Quoted(unknown.token))};
    }
  } else if (missing > 0) {
    return Error{
        fmt::format("{}: model: expected an unk_token, or byte_fallback with all of <0x00> to <0xFF> in the "
                    "vocabulary, found {}",
                    where, unknown.as_bytes ? fmt::format("{} of them missing", missing) : "neither")};
  }
  return {};
}

Status Bpe::AddMerges(const std::vector<Merge>& merges, std::string_view where) {
  struct Row {
    std::int32_t left;
    Right right;
  };
  std::vector<Row> rows;
  rows.reserve(merges.size());
  result_.reserve(merges.size());
  std::string whole;
  for (const auto& [left, right] : merges) {
    const std::size_t rank = result_.size();
    const std::int32_t left_entry = IndexOf(left);
    const std::int32_t right_entry = IndexOf(right);
    whole.assign(left).append(right);
    const std::int32_t result = IndexOf(whole);
    if (left_entry < 0 || right_entry < 0 || result < 0) {
      const std::string_view missing = left_entry < 0 ? left : right_entry < 0 ? right : whole;
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
  if (kind_ == Kind::kRanked) {
    const auto found = index_.find(token);
    return found == index_.end() ? -1 : found->second;
  }
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

// Of the pair that begins at symbol `at`, which has a next one.
std::uint32_t Bpe::RankAt(std::int32_t at, std::string_view word, const Scratch& scratch) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(at)];
  const Scratch::Symbol& right = scratch.symbols[static_cast<std::size_t>(left.next)];
  if (kind_ != Kind::kRanked) return RankOf(left.entry, right.entry);
  // Symbols are numbered by their first bytes.
  const auto begin = static_cast<std::size_t>(at);
  const std::size_t end = right.next < 0 ? word.size() : static_cast<std::size_t>(right.next);
  if (end - begin > longest_) return kNoMerge;
  const std::int32_t entry = IndexOf(word.substr(begin, end - begin));
  return entry < 0 ? kNoMerge : static_cast<std::uint32_t>(entries_[static_cast<std::size_t>(entry)].id);
}

void Bpe::PushSymbol(std::int32_t entry, Scratch& scratch) {
  const auto at = static_cast<std::int32_t>(scratch.symbols.size());
  scratch.symbols.push_back({entry, at - 1, at + 1, kNoMerge});
}

void Bpe::SplitIntoBytes(std::string_view word, Scratch& scratch) const {
  for (const char byte : word) PushSymbol(byte_entry_[static_cast<unsigned char>(byte)], scratch);
}

// All bytes of a character, or none.
bool Bpe::PushBytes(std::string_view character, Scratch& scratch) const {
  const auto entry_of = [this](char byte) { return byte_entry_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(character.begin(), character.end(), [&](char byte) { return entry_of(byte) < 0; })) return false;
  for (const char byte : character) PushSymbol(entry_of(byte), scratch);
  return true;
}

void Bpe::SplitIntoCharacters(std::string_view word, Scratch& scratch) const {
  bool unknown = false;  // one waits for its neighbours
  const auto push_unknown = [&] {
    if (unknown) PushSymbol(unknown_entry_, scratch);
    unknown = false;
  };
  while (!word.empty()) {
    const Utf8Step step = NextUtf8(word);
    const std::string_view character = word.substr(0, step.bytes);
    word.remove_prefix(step.bytes);
    const auto found = characters_.find(step.code_point);
    if (found != characters_.end()) {
      push_unknown();
      PushSymbol(found->second, scratch);
    } else if (!PushBytes(character, scratch)) {
      if (!fuse_unknown_) push_unknown();
      unknown = true;
    }
  }
  push_unknown();
}

void Bpe::FindFirstMerges(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.back().next = -1;
  for (std::size_t at = 0; at + 1 < symbols.size(); ++at) {
    symbols[at].rank = RankAt(static_cast<std::int32_t>(at), word, scratch);
    if (symbols[at].rank != kNoMerge) {
      scratch.heap.push_back(Candidate(symbols[at].rank, static_cast<std::int32_t>(at)));
    }
  }
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

// Merges symbol `at` with its next one, and looks up the two pairs that this makes.
void Bpe::MergeAt(std::int32_t at, std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& left = symbols[static_cast<std::size_t>(at)];
  auto& right = symbols[static_cast<std::size_t>(left.next)];
  left.entry = result_[left.rank];
  left.next = right.next;
  left.rank = kNoMerge;
  right.rank = kNoMerge;
  if (left.next >= 0) {
    symbols[static_cast<std::size_t>(left.next)].previous = at;
    left.rank = RankAt(at, word, scratch);
    if (left.rank != kNoMerge) Push(scratch.heap, Candidate(left.rank, at));
  }
  if (left.previous >= 0) {
    auto& previous = symbols[static_cast<std::size_t>(left.previous)];
    previous.rank = RankAt(left.previous, word, scratch);
    if (previous.rank != kNoMerge) Push(scratch.heap, Candidate(previous.rank, left.previous));
  }
}

void Bpe::KeepOutOfText(std::vector<std::int32_t> ids) {
  not_from_text_ = std::move(ids);
  std::sort(not_from_text_.begin(), not_from_text_.end());
  for (Right& right : rights_) {
    if (right.rank == kNoMerge) continue;
    const std::int32_t id = entries_[static_cast<std::size_t>(result_[right.rank])].id;
    if (std::binary_search(not_from_text_.begin(), not_from_text_.end(), id)) right.rank = kNoMerge;
  }
}

bool Bpe::AppendWhole(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::int32_t id = kind_ == Kind::kByteLevel ? Find(ToByteLevel(word)) : Find(word);
  if (id < 0 || std::binary_search(not_from_text_.begin(), not_from_text_.end(), id)) return false;
  ids.push_back(id);
  return true;
}

void Bpe::Encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  MLA_CHECK_LE(word.size(), std::size_t{0x7FFFFFFF});
  if (whole_words_ && AppendWhole(word, ids)) return;
  scratch.symbols.clear();
  scratch.heap.clear();
  kind_ == Kind::kCharacters ? SplitIntoCharacters(word, scratch) : SplitIntoBytes(word, scratch);
  FindFirstMerges(word, scratch);
  while (!scratch.heap.empty()) {
    const std::uint64_t top = Pop(scratch.heap);
    const auto at = static_cast<std::int32_t>(top & 0xFFFFFFFF);
    // A candidate whose pair has changed since is stale: its rank is another then, and a symbol merged away has none.
    if (scratch.symbols[static_cast<std::size_t>(at)].rank == top >> 32) MergeAt(at, word, scratch);
  }
  for (std::int32_t at = 0; at >= 0; at = scratch.symbols[static_cast<std::size_t>(at)].next) {
    ids.push_back(entries_[static_cast<std::size_t>(scratch.symbols[static_cast<std::size_t>(at)].entry)].id);
  }
}

}  // namespace mla::text
