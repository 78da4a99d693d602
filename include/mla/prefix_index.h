// Which pages hold the rows of which tokens: a radix tree over ids, one page a node. A new sequence finds the longest
// prefix that anyone has computed, and takes those pages over instead of computing them.
#ifndef MLA_PREFIX_INDEX_H_
#define MLA_PREFIX_INDEX_H_

#include <cstdint>
#include <span>
#include <vector>

#include "mla/cache.h"

namespace mla {

// A row's bytes follow from its tokens up to its own and from how each was computed. Each token therefore has a label
// beside its id (the engine's: the form of its row), and pages that differ in labels are different pages.
//
// The index keeps (PagePool::Keep) the pages it lists; those that nobody else holds are idle: evicted, least recently
// used first, when pages run out. All memory is had at construction. Not thread-safe: the scheduler's.
class PrefixIndex {
 public:
  using Label = std::uint8_t;
  static constexpr std::int32_t kRoot = -1;
  // A prefix of fewer tokens than this (or than a page) is not looked for, nor kept: prompts mostly begin alike, and
  // what they begin with chooses where to look.
  static constexpr std::int64_t kLeastTokens = 8;

  // `pool` outlives the index. Throws std::bad_alloc where memory can't be had.
  PrefixIndex(PagePool* pool, std::int64_t page_tokens);
  // What construction allocates.
  static std::int64_t Bytes(std::int64_t pages, std::int64_t page_tokens);

  // Appends the pages of the longest known prefix of `ids` to *pages, and the label of each of its tokens to *labels.
  // Returns its tokens; the last page may hold more than are common. Labels are free where `wanted` is empty, else
  // (as many as ids) they must be equal. The pages count as used now. Who shares them does so before the next Evict.
  std::int64_t Match(std::span<const std::int32_t> ids, std::span<const Label> wanted, std::vector<std::int32_t>* pages,
                     std::vector<Label>* labels);

  // Lists `page`, which is held, as the one that follows `parent` (a listed page that is full, or kRoot) with these
  // ids, up to a page's tokens, and as many labels. Returns the page that is listed with them afterwards: `page`, or
  // one with the same rows that was there before, which the caller may hold in its place. -1: nothing was listed, since
  // the ids are too few or begin a page that is listed already.
  std::int32_t Insert(std::int32_t parent, std::int32_t page, std::span<const std::int32_t> ids,
                      std::span<const Label> labels);

  // These pages, each the parent of the next, count as used now.
  void Touch(std::span<const std::int32_t> path);
  // Gives up the idle page that was used longest ago and has no listed page after it. False where none is idle.
  bool Evict();
  // Gives up a page that no listed page follows. False where one does.
  bool Remove(std::int32_t page);

  bool Contains(std::int32_t page) const { return node(page).filled > 0; }
  std::int64_t pages() const { return listed_; }
  // Tokens of a listed page; 0 where it is not listed.
  std::int64_t filled(std::int32_t page) const { return node(page).filled; }

 private:
  // Of the page with the same number. In no list while filled is 0.
  struct Node {
    std::int32_t parent = kRoot;
    std::int32_t children = 0;
    std::int32_t filled = 0;  // tokens
    std::int32_t next_in_bucket = -1;
    std::int32_t older = -1;  // towards the least recently used
    std::int32_t newer = -1;
  };
  const Node& node(std::int32_t page) const { return nodes_[static_cast<std::size_t>(page)]; }
  Node& node(std::int32_t page) { return nodes_[static_cast<std::size_t>(page)]; }
  std::span<const std::int32_t> IdsOf(std::int32_t page) const;
  std::span<const Label> LabelsOf(std::int32_t page) const;
  // Ids that choose the bucket, with the parent.
  std::int64_t KeyTokens(std::int32_t parent) const;
  std::int32_t& Bucket(std::int32_t parent, std::span<const std::int32_t> ids);
  std::int64_t Common(std::int32_t page, std::span<const std::int32_t> ids, std::span<const Label> labels) const;
  void Unlink(std::int32_t page);
  void LinkOlderThan(std::int32_t page, std::int32_t newer);
  void MakeNewest(std::int32_t page);

  PagePool* pool_;
  std::int64_t page_tokens_;
  std::int64_t listed_ = 0;
  std::int32_t oldest_ = -1;
  std::int32_t newest_ = -1;
  std::vector<Node> nodes_;            // [pages]
  std::vector<std::int32_t> buckets_;  // [pages] first page of each, or -1
  std::vector<std::int32_t> ids_;      // [pages, page_tokens]
  std::vector<Label> labels_;          // [pages, page_tokens]
};

}  // namespace mla

#endif  // MLA_PREFIX_INDEX_H_
