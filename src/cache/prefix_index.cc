#include "mla/prefix_index.h"

#include <algorithm>

#include "base/check.h"

namespace mla {

PrefixIndex::PrefixIndex(PagePool* pool, std::int64_t page_tokens)
    : pool_(pool),
      page_tokens_(page_tokens),
      nodes_(static_cast<std::size_t>(pool->pages())),
      buckets_(static_cast<std::size_t>(pool->pages()), -1),
      ids_(static_cast<std::size_t>(pool->pages() * page_tokens)),
      labels_(static_cast<std::size_t>(pool->pages() * page_tokens)) {}

std::int64_t PrefixIndex::Bytes(std::int64_t pages, std::int64_t page_tokens) {
  constexpr auto kPerPage = static_cast<std::int64_t>(sizeof(Node) + sizeof(std::int32_t));
  constexpr auto kPerToken = static_cast<std::int64_t>(sizeof(std::int32_t) + sizeof(Label));
  return pages * (kPerPage + page_tokens * kPerToken);
}

std::span<const std::int32_t> PrefixIndex::IdsOf(std::int32_t page) const {
  return std::span(ids_).subspan(static_cast<std::size_t>(page * page_tokens_),
                                 static_cast<std::size_t>(node(page).filled));
}

std::span<const PrefixIndex::Label> PrefixIndex::LabelsOf(std::int32_t page) const {
  return std::span(labels_).subspan(static_cast<std::size_t>(page * page_tokens_),
                                    static_cast<std::size_t>(node(page).filled));
}

std::int64_t PrefixIndex::KeyTokens(std::int32_t parent) const {
  return parent == kRoot ? std::min(kLeastTokens, page_tokens_) : 1;
}

// FNV-1a over the parent and the first ids. Collisions cost time alone: ids are compared.
std::int32_t& PrefixIndex::Bucket(std::int32_t parent, std::span<const std::int32_t> ids) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto mix = [&hash](std::int32_t value) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x100000001b3U;
    hash ^= hash >> 29;
  };
  mix(parent);
  for (const std::int32_t id : ids.first(static_cast<std::size_t>(KeyTokens(parent)))) mix(id);
  return buckets_[static_cast<std::size_t>(hash % buckets_.size())];
}

// Tokens from the first on that are equal in id, and in label where labels are given.
std::int64_t PrefixIndex::Common(std::int32_t page, std::span<const std::int32_t> ids,
                                 std::span<const Label> labels) const {
  const std::span<const std::int32_t> own = IdsOf(page);
  const std::span<const Label> own_labels = LabelsOf(page);
  const std::size_t most = std::min(own.size(), ids.size());
  std::size_t common = 0;
  while (common < most && own[common] == ids[common] && (labels.empty() || own_labels[common] == labels[common])) {
    ++common;
  }
  return static_cast<std::int64_t>(common);
}

std::int64_t PrefixIndex::Match(std::span<const std::int32_t> ids, std::span<const Label> wanted,
                                std::vector<std::int32_t>* pages, std::vector<Label>* labels) {
  const std::size_t first_page = pages->size();
  std::int64_t matched = 0;
  std::int32_t parent = kRoot;
  while (true) {
    const std::span<const std::int32_t> left = ids.subspan(static_cast<std::size_t>(matched));
    if (static_cast<std::int64_t>(left.size()) < KeyTokens(parent)) break;
    const std::span<const Label> labels_left =
        wanted.empty() ? wanted : wanted.subspan(static_cast<std::size_t>(matched));
    std::int32_t best = -1;
    std::int64_t most = KeyTokens(parent) - 1;
    for (std::int32_t page = Bucket(parent, left); page >= 0; page = node(page).next_in_bucket) {
      if (node(page).parent != parent) continue;
      const std::int64_t common = Common(page, left, labels_left);
      if (common > most) {
        most = common;
        best = page;
      }
    }
    if (best < 0) break;
    const std::span<const Label> taken = LabelsOf(best).first(static_cast<std::size_t>(most));
    pages->push_back(best);
    labels->insert(labels->end(), taken.begin(), taken.end());
    matched += most;
    if (most < page_tokens_) break;
    parent = best;
  }
  Touch(std::span<const std::int32_t>(*pages).subspan(first_page));
  return matched;
}

std::int32_t PrefixIndex::Insert(std::int32_t parent, std::int32_t page, std::span<const std::int32_t> ids,
                                 std::span<const Label> labels) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  MLA_CHECK_LE(tokens, page_tokens_);
  MLA_CHECK_EQ(ids.size(), labels.size());
  MLA_CHECK(parent == kRoot || node(parent).filled == page_tokens_);
  if (tokens < KeyTokens(parent)) return -1;
  if (Contains(page)) return page;
  std::int32_t* bucket = &Bucket(parent, ids);
  for (std::int32_t other = *bucket; other >= 0;) {
    const std::int32_t next = node(other).next_in_bucket;
    if (node(other).parent == parent) {
      const std::int64_t common = Common(other, ids, labels);
      if (common == tokens) {
        MakeNewest(other);
        if (parent != kRoot) MakeNewest(parent);
        return node(other).filled == tokens ? other : -1;
      }
      // A page that ends where this one goes on serves nobody that this one does not.
      if (common == node(other).filled) Remove(other);
    }
    other = next;
  }
  Node& added = node(page);
  added.parent = parent;
  added.children = 0;
  added.filled = static_cast<std::int32_t>(tokens);
  added.next_in_bucket = *bucket;
  *bucket = page;
  std::copy(ids.begin(), ids.end(), ids_.begin() + page * page_tokens_);
  std::copy(labels.begin(), labels.end(), labels_.begin() + page * page_tokens_);
  // A page is never more recently used than the one before it, so that leaves go first.
  LinkOlderThan(page, parent);
  if (parent != kRoot) ++node(parent).children;
  pool_->Keep(page);
  ++listed_;
  return page;
}

void PrefixIndex::Touch(std::span<const std::int32_t> path) {
  for (std::size_t i = path.size(); i > 0; --i) {
    if (Contains(path[i - 1])) MakeNewest(path[i - 1]);
  }
}

bool PrefixIndex::Evict() {
  if (pool_->idle_pages() == 0) return false;
  for (std::int32_t page = oldest_; page >= 0; page = node(page).newer) {
    if (pool_->idle(page) && Remove(page)) return true;
  }
  return false;
}

bool PrefixIndex::Remove(std::int32_t page) {
  Node& removed = node(page);
  MLA_CHECK_LT(0, removed.filled);
  if (removed.children > 0) return false;
  std::int32_t* link = &Bucket(removed.parent, IdsOf(page));
  while (*link != page) link = &node(*link).next_in_bucket;
  *link = removed.next_in_bucket;
  if (removed.parent != kRoot) --node(removed.parent).children;
  Unlink(page);
  removed = Node{};
  --listed_;
  pool_->Drop(page);
  return true;
}

void PrefixIndex::Unlink(std::int32_t page) {
  Node& n = node(page);
  (n.older >= 0 ? node(n.older).newer : oldest_) = n.newer;
  (n.newer >= 0 ? node(n.newer).older : newest_) = n.older;
  n.older = n.newer = -1;
}

// Between `newer` and what was next older than it; the newest of all where `newer` is kRoot.
void PrefixIndex::LinkOlderThan(std::int32_t page, std::int32_t newer) {
  Node& n = node(page);
  n.newer = newer;
  std::int32_t& above = newer >= 0 ? node(newer).older : newest_;
  n.older = above;
  above = page;
  (n.older >= 0 ? node(n.older).newer : oldest_) = page;
}

void PrefixIndex::MakeNewest(std::int32_t page) {
  Unlink(page);
  LinkOlderThan(page, kRoot);
}

}  // namespace mla
