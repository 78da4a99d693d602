// Who holds which page of the cache: sequences, and the prefix index over what they have computed.
#ifndef MLA_ENGINE_PAGES_H_
#define MLA_ENGINE_PAGES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "mla/cache.h"
#include "mla/engine.h"
#include "mla/prefix_index.h"

namespace mla::engine {

// Rows that stand in for computing them: of page `from`, its first tokens.
struct PageCopy {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int64_t tokens = 0;
};

// Bookkeeping alone: rows are copied by whoever runs the step. Neither copied nor moved.
class Pages {
 public:
  struct Limits {
    std::int64_t pages = 0;
    std::int64_t page_tokens = kDefaultPageTokens;
    std::int64_t context = 0;  // most tokens of a sequence
    PrefixReuse reuse = PrefixReuse::kAll;
  };
  // Throws std::bad_alloc where memory can't be had.
  explicit Pages(const Limits& limits);
  // What construction allocates.
  static std::int64_t Bytes(const Limits& limits);
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // For a sequence without pages: shares the longest prefix that is in the index, one position left to run. Returns the
  // labels found, valid until the next call; where the sequence has its forms already, they agree with those. Nothing
  // is found for a request that wants log-probabilities of its prompt, which need every row.
  std::span<const FormLabel> Adopt(Sequence* sequence);

  // Takes pages so that positions [computed, end) can be written, and returns as far as that goes: `end`, or less where
  // pages run out. The page of position `computed` is replaced by a copy, noted in *copies, where others hold it too.
  std::int64_t Prepare(Sequence* sequence, std::int64_t end, std::vector<PageCopy>* copies);
  // Pages that Prepare would take.
  std::int64_t Missing(const Sequence& sequence, std::int64_t end) const;

  // Whether the page of `position` is there, and nobody else's.
  bool Owns(const Sequence& sequence, std::int64_t position) const;

  // Lists the whole pages that a sequence has computed, as far as reuse goes; of one that has ended, the last page too,
  // whole or not. Where the index has the same rows, the
  // sequence takes those pages in place of its own.
  void List(Sequence* sequence);
  // Shares all that `from` has computed of its first `tokens` positions with `to`, which holds no pages.
  void Share(const Sequence& from, std::int64_t tokens, Sequence* to);
  // Gives a sequence's pages back, after listing what of them may serve others: its rows are to be found or computed
  // again.
  void Release(Sequence* sequence);

  // The most rows of the first of `ids` that are held, by a sequence or in the index: appends their pages, the last
  // perhaps held for more, and their labels. Returns how many. The pages stay held until the next step.
  std::int64_t Longest(std::span<const std::int32_t> ids, std::span<const std::unique_ptr<Sequence>> sequences,
                       std::vector<std::int32_t>* pages, std::vector<FormLabel>* labels);
  // So many pages, to be filled from elsewhere and given back by GiveBack; none where there are not enough.
  bool TakePages(std::int64_t count, std::vector<std::int32_t>* taken);
  // Lists these pages as holding the rows of `ids`, made as `labels` say, as far as reuse goes. Returns of how many.
  std::int64_t ListPages(std::span<const std::int32_t> ids, std::span<const FormLabel> labels,
                         std::span<const std::int32_t> pages);
  void GiveBack(std::span<const std::int32_t> pages);

  // New pages that a prompt takes, one token of output included: those that it would find, and that are held anyway,
  // are not among them.
  std::int64_t Needed(std::span<const std::int32_t> prompt);

  std::int64_t total() const { return pool_.pages(); }
  std::int64_t free() const { return pool_.free_pages(); }
  std::int64_t idle() const { return pool_.idle_pages(); }  // in the index alone, given up when needed
  std::int64_t listed() const { return index_ ? index_->pages() : 0; }
  std::int64_t shared() const;  // held by two sequences or more
  std::int64_t evicted() const { return evicted_; }
  std::int64_t copied() const { return copied_; }

  // Aborts unless every page's holders are the sequences that name it and the index. For tests, and debug builds when
  // idle.
  void CheckHolders(std::span<const std::unique_ptr<Sequence>> sequences) const;

 private:
  std::int32_t Take();
  // Whether a write at `position` needs a page of its own first.
  bool MustCopy(const Sequence& sequence, std::int64_t position) const;
  bool MakeOwn(Sequence* sequence, std::vector<PageCopy>* copies);
  std::int64_t Listable(const Sequence& sequence) const;
  void ListRest(const Sequence& sequence);
  std::int32_t ListPage(const Sequence& sequence, std::int64_t index, std::int64_t tokens);

  Limits limits_;
  PagePool pool_;
  std::optional<PrefixIndex> index_;  // none with kOff
  std::int64_t evicted_ = 0;
  std::int64_t copied_ = 0;
  // Scratch, reserved for a whole context.
  std::vector<FormLabel> labels_;
  std::vector<FormLabel> found_labels_;
  std::vector<std::int32_t> found_;
};

}  // namespace mla::engine

#endif  // MLA_ENGINE_PAGES_H_
