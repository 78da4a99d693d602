#include "base/check.h"
#include "mla/cache.h"

namespace mla {

PagePool::PagePool(std::int64_t pages)
    : holders_(static_cast<std::size_t>(pages), 0), kept_(static_cast<std::size_t>(pages), 0) {
  free_.reserve(holders_.size());
  for (std::int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<std::int32_t>(page));
}

std::int32_t PagePool::Take() {
  if (free_.empty()) return -1;
  const std::int32_t page = free_.back();
  free_.pop_back();
  MLA_CHECK_EQ(holders_[static_cast<std::size_t>(page)], 0);
  holders_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PagePool::Share(std::int32_t page) {
  MLA_CHECK_LT(0, holders(page));
  if (idle(page)) --idle_;
  ++holders_[static_cast<std::size_t>(page)];
}

void PagePool::Release(std::int32_t page) {
  MLA_CHECK_LT(kept(page) ? 1 : 0, holders(page));
  if (--holders_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
  if (holders(page) > 0 && idle(page)) ++idle_;
}

void PagePool::Keep(std::int32_t page) {
  MLA_CHECK_LT(0, holders(page));
  MLA_CHECK(!kept(page));
  ++holders_[static_cast<std::size_t>(page)];
  kept_[static_cast<std::size_t>(page)] = 1;
}

void PagePool::Drop(std::int32_t page) {
  MLA_CHECK(kept(page));
  if (idle(page)) --idle_;
  kept_[static_cast<std::size_t>(page)] = 0;
  if (--holders_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

bool PagePool::kept(std::int32_t page) const {
  MLA_CHECK(page >= 0 && page < pages());
  return kept_[static_cast<std::size_t>(page)] != 0;
}

std::int32_t PagePool::holders(std::int32_t page) const {
  MLA_CHECK(page >= 0 && page < pages());
  return holders_[static_cast<std::size_t>(page)];
}

}  // namespace mla
