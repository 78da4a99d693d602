// Byte-pair encoding of one word: the merge of the lowest rank first, the leftmost where ranks are equal.
#ifndef MLA_TEXT_BPE_H_
#define MLA_TEXT_BPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mla/result.h"

namespace mla::text {

// A vocabulary entry: its spelling in the byte-level alphabet, and its id.
struct BpeEntry {
  std::string token;
  std::int32_t id = 0;
};

// Immutable after Make; const functions may be called from several threads at once, each with its own scratch.
class Bpe {
 public:
  using Merge = std::pair<std::string, std::string>;

  // `entries` have distinct tokens and distinct ids (the caller has checked). Merges are in order of rank; one that is
  // there twice has its later rank. Fails where a byte's character is no entry, or a merge's part or result is none.
  // With `whole_words`, a word that is itself an entry is that entry, whatever the merges say.
  static Result<Bpe> Make(std::vector<BpeEntry> entries, const std::vector<Merge>& merges, bool whole_words,
                          std::string_view where);

  // Reused from word to word, so that a word allocates nothing.
  struct Scratch {
    struct Symbol {
      std::int32_t entry;
      std::int32_t previous;
      std::int32_t next;
      std::uint32_t rank;  // of the merge with the next symbol, kNoMerge where there is none
    };
    std::vector<Symbol> symbols;
    std::vector<std::uint64_t> heap;
  };

  // Appends the ids of a word (bytes, at most 2^31 - 1 of them) in O(n log n).
  void Encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

  // The id of that spelling, or -1.
  std::int32_t Find(std::string_view token) const;
  // Sorted by token.
  const std::vector<BpeEntry>& entries() const { return entries_; }

 private:
  static constexpr std::uint32_t kNoMerge = ~std::uint32_t{0};

  // A merge as its left entry knows it.
  struct Right {
    std::int32_t entry;
    std::uint32_t rank;
  };

  Bpe() = default;
  std::int32_t IndexOf(std::string_view token) const;
  Status AddMerges(const std::vector<Merge>& merges, std::string_view where);
  std::uint32_t RankOf(std::int32_t left, std::int32_t right) const;
  void Start(std::string_view word, Scratch& scratch) const;
  void MergeAt(std::int32_t at, Scratch& scratch) const;

  // Entries are known inside by their index here, which is dense where ids need not be.
  std::vector<BpeEntry> entries_;
  std::vector<std::uint32_t> first_right_;  // [entries + 1] into rights_
  std::vector<Right> rights_;               // of each left entry, sorted by the right one
  std::vector<std::int32_t> result_;        // [ranks] the entry that a merge makes
  std::vector<std::int32_t> byte_entry_;    // [256]
  bool whole_words_ = false;
};

}  // namespace mla::text

#endif  // MLA_TEXT_BPE_H_
