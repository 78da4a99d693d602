// Byte-pair encoding of one word: the merge of the lowest rank first, the leftmost where ranks are equal. Three kinds
// of vocabulary share it: of bytes spelled in the byte-level alphabet, of raw bytes whose ranks are their ids
// (tiktoken), and of characters (sentencepiece).
#ifndef MLA_TEXT_BPE_H_
#define MLA_TEXT_BPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mla/result.h"

namespace mla::text {

// A vocabulary entry: its spelling, and its id.
struct BpeEntry {
  std::string token;
  std::int32_t id = 0;
};

// Immutable after Make; const functions may be called from several threads at once, each with its own scratch.
class Bpe {
 public:
  Bpe(Bpe&&) = default;
  Bpe& operator=(Bpe&&) = default;

  // The parts of a merge; they live as long as the call that is given them.
  using Merge = std::pair<std::string_view, std::string_view>;

  // Words are bytes; entries are spelled in the byte-level alphabet, with distinct tokens and distinct ids (the caller
  // has checked). Merges are in order of rank; one that is there twice has its later rank. Fails where a byte's
  // character is no entry, or a merge's part or result is none. With `whole_words`, a word that is itself an entry is
  // that entry, whatever the merges say.
  static Result<Bpe> Make(std::vector<BpeEntry> entries, const std::vector<Merge>& merges, bool whole_words,
                          std::string_view where);

  // Words and entries are bytes; two neighbours merge where their concatenation is an entry, in order of its id: the
  // rule of tiktoken's files, which list no merges. A word that is an entry is that entry. The ids are 0 to
  // entries.size() - 1, each once (the caller has checked). Fails where a byte is no entry, or an entry is longer than
  // kLongestRanked bytes.
  static Result<Bpe> MakeRanked(std::vector<BpeEntry> entries, std::string_view where);
  // A look-up costs its length. The longest token of published files has some hundred bytes.
  static constexpr std::size_t kLongestRanked = 512;

  // What becomes of a character that is no entry.
  struct UnknownCharacters {
    bool as_bytes = false;  // its bytes, the entries <0x00> to <0xFF>, where it has them all
    std::string token;      // else this entry; empty: there is none
    bool fuse = false;      // neighbouring unknown characters are one such entry
  };
  // Words and entries are valid UTF-8; a word begins as its characters. Else as Make. Fails, besides, where `unknown`
  // leaves a character without an entry. As in the tokenizers library, bytes that follow an unknown character come
  // before its entry.
  static Result<Bpe> MakeOfCharacters(std::vector<BpeEntry> entries, const std::vector<Merge>& merges, bool whole_words,
                                      const UnknownCharacters& unknown, std::string_view where);

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

  // From now on no word is one of these entries as a whole, and no merge makes one: a special token's name in a user's
  // text is text.
  void KeepOutOfText(std::vector<std::int32_t> ids);

  // Appends the ids of a word (at most 2^31 - 1 bytes) in O(n log n), times the length of a
  // token where ranks are ids.
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

  enum class Kind : std::uint8_t { kByteLevel, kRanked, kCharacters };

  Bpe(Kind kind, std::vector<BpeEntry> entries);
  std::int32_t IndexOf(std::string_view token) const;
  Status AddMerges(const std::vector<Merge>& merges, std::string_view where);
  Status AddUnknown(const UnknownCharacters& unknown, std::string_view where);
  std::uint32_t RankOf(std::int32_t left, std::int32_t right) const;
  std::uint32_t RankAt(std::int32_t at, std::string_view word, const Scratch& scratch) const;
  bool AppendWhole(std::string_view word, std::vector<std::int32_t>& ids) const;
  void SplitIntoBytes(std::string_view word, Scratch& scratch) const;
  void SplitIntoCharacters(std::string_view word, Scratch& scratch) const;
  static void PushSymbol(std::int32_t entry, Scratch& scratch);
  bool PushBytes(std::string_view character, Scratch& scratch) const;
  void FindFirstMerges(std::string_view word, Scratch& scratch) const;
  void MergeAt(std::int32_t at, std::string_view word, Scratch& scratch) const;

  // Entries are known inside by their index here, which is dense where ids need not be.
  std::vector<BpeEntry> entries_;
  std::vector<std::uint32_t> first_right_;  // [entries + 1] into rights_
  std::vector<Right> rights_;               // of each left entry, sorted by the right one
  std::vector<std::int32_t> result_;        // [ranks] the entry that a merge makes
  std::vector<std::int32_t> byte_entry_;    // [256], -1 where there is none
  Kind kind_;
  bool whole_words_ = false;
  std::vector<std::int32_t> not_from_text_;  // ids, sorted
  // kRanked
  std::unordered_map<std::string_view, std::int32_t> index_;  // of entries_, whose strings don't move
  std::size_t longest_ = 0;
  // kCharacters
  std::unordered_map<char32_t, std::int32_t> characters_;  // the entries of one character
  std::int32_t unknown_entry_ = -1;
  bool fuse_unknown_ = false;
};

}  // namespace mla::text

#endif  // MLA_TEXT_BPE_H_
