#include "engine/pages.h"

#include <algorithm>

#include "base/check.h"

namespace mla::engine {

Pages::Pages(const Limits& limits) : limits_(limits), pool_(limits.pages) {
  if (limits.reuse == PrefixReuse::kOff) return;
  index_.emplace(&pool_, limits.page_tokens);
  const std::int64_t most = std::max(limits.context, limits.page_tokens);
  labels_.reserve(static_cast<std::size_t>(most));
  found_labels_.reserve(static_cast<std::size_t>(most));
  found_.reserve(static_cast<std::size_t>(most / limits.page_tokens + 1));
}

std::int64_t Pages::Bytes(const Limits& limits) {
  const std::int64_t pool = PagePool::Bytes(limits.pages);
  if (limits.reuse == PrefixReuse::kOff) return pool;
  const std::int64_t most = std::max(limits.context, limits.page_tokens);
  return pool + PrefixIndex::Bytes(limits.pages, limits.page_tokens) +
         2 * most * static_cast<std::int64_t>(sizeof(FormLabel)) +
         (most / limits.page_tokens + 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
}

std::span<const FormLabel> Pages::Adopt(Sequence* s) {
  MLA_CHECK(s->pages.empty());
  if (!index_ || s->request.prompt_logprobs) return {};
  const std::int64_t most = s->size() - 1;
  labels_.clear();
  found_labels_.clear();
  if (!s->forms.empty()) s->AppendLabels(0, most, &labels_);
  s->computed = index_->Match(std::span<const std::int32_t>(s->ids).first(static_cast<std::size_t>(most)), labels_,
                              &s->pages, &found_labels_);
  for (const std::int32_t page : s->pages) pool_.Share(page);
  s->listed_pages = s->computed / limits_.page_tokens;
  return found_labels_;
}

std::int32_t Pages::Take() {
  std::int32_t page = pool_.Take();
  if (page < 0 && index_ && index_->Evict()) {
    ++evicted_;
    page = pool_.Take();
  }
  return page;
}

bool Pages::MustCopy(const Sequence& s, std::int64_t position) const {
  const auto index = static_cast<std::size_t>(position / limits_.page_tokens);
  return position % limits_.page_tokens != 0 && index < s.pages.size() && pool_.holders(s.pages[index]) > 1;
}

bool Pages::Owns(const Sequence& s, std::int64_t position) const {
  const auto index = static_cast<std::size_t>(position / limits_.page_tokens);
  return index < s.pages.size() && pool_.holders(s.pages[index]) == 1;
}

bool Pages::MakeOwn(Sequence* s, std::vector<PageCopy>* copies) {
  std::int32_t& page = s->pages[static_cast<std::size_t>(s->computed / limits_.page_tokens)];
  const std::int32_t own = Take();
  if (own < 0) {
    // Where the index is the only other holder, it gives way.
    return pool_.holders(page) == 2 && pool_.kept(page) && index_->Remove(page);
  }
  copies->push_back({page, own, s->computed % limits_.page_tokens});
  pool_.Release(page);
  page = own;
  ++copied_;
  return true;
}

std::int64_t Pages::Prepare(Sequence* s, std::int64_t end, std::vector<PageCopy>* copies) {
  if (MustCopy(*s, s->computed) && !MakeOwn(s, copies)) return s->computed;
  const std::int64_t needed = (end + limits_.page_tokens - 1) / limits_.page_tokens;
  while (static_cast<std::int64_t>(s->pages.size()) < needed) {
    const std::int32_t page = Take();
    if (page < 0) break;
    s->pages.push_back(page);
  }
  return std::min(end, static_cast<std::int64_t>(s->pages.size()) * limits_.page_tokens);
}

std::int64_t Pages::Missing(const Sequence& s, std::int64_t end) const {
  const std::int64_t needed = (end + limits_.page_tokens - 1) / limits_.page_tokens;
  return std::max<std::int64_t>(0, needed - static_cast<std::int64_t>(s.pages.size())) +
         (MustCopy(s, s.computed) ? 1 : 0);
}

// Positions whose rows may serve others.
std::int64_t Pages::Listable(const Sequence& s) const {
  if (!index_ || s.finish == FinishReason::kNotFinite) return 0;
  return limits_.reuse == PrefixReuse::kAll ? s.computed : std::min(s.computed, s.output_begin());
}

std::int32_t Pages::ListPage(const Sequence& s, std::int64_t index, std::int64_t tokens) {
  const std::int64_t begin = index * limits_.page_tokens;
  labels_.clear();
  s.AppendLabels(begin, begin + tokens, &labels_);
  const std::int32_t parent = index > 0 ? s.pages[static_cast<std::size_t>(index - 1)] : PrefixIndex::kRoot;
  const auto ids =
      std::span<const std::int32_t>(s.ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(tokens));
  return index_->Insert(parent, s.pages[static_cast<std::size_t>(index)], ids, labels_);
}

void Pages::List(Sequence* s) {
  for (const std::int64_t whole = Listable(*s) / limits_.page_tokens; s->listed_pages < whole; ++s->listed_pages) {
    std::int32_t& page = s->pages[static_cast<std::size_t>(s->listed_pages)];
    const std::int32_t listed = ListPage(*s, s->listed_pages, limits_.page_tokens);
    MLA_CHECK_LE(0, listed);
    if (listed == page) continue;
    pool_.Share(listed);
    pool_.Release(page);
    page = listed;
  }
  if (s->finish != FinishReason::kNone) ListRest(*s);
}

void Pages::ListRest(const Sequence& s) {
  const std::int64_t rest = Listable(s) - s.listed_pages * limits_.page_tokens;
  if (rest > 0) ListPage(s, s.listed_pages, rest);
}

void Pages::Share(const Sequence& from, std::int64_t tokens, Sequence* to) {
  MLA_CHECK(to->pages.empty());
  to->computed = std::min(from.computed, tokens);
  const std::int64_t pages = (to->computed + limits_.page_tokens - 1) / limits_.page_tokens;
  for (std::int64_t i = 0; i < pages; ++i) {
    const std::int32_t page = from.pages[static_cast<std::size_t>(i)];
    pool_.Share(page);
    to->pages.push_back(page);
  }
  to->listed_pages = std::min(from.listed_pages, to->computed / limits_.page_tokens);
}

void Pages::Release(Sequence* s) {
  List(s);
  ListRest(*s);
  if (index_) index_->Touch(s->pages);
  for (const std::int32_t page : s->pages) pool_.Release(page);
  s->pages.clear();
  s->computed = 0;
  s->listed_pages = 0;
  s->drafts.clear();
}

std::int64_t Pages::Longest(std::span<const std::int32_t> ids, std::span<const std::unique_ptr<Sequence>> sequences,
                            std::vector<std::int32_t>* pages, std::vector<FormLabel>* labels) {
  std::int64_t most = index_ ? index_->Match(ids, {}, pages, labels) : 0;
  for (const auto& s : sequences) {
    if (s->finish == FinishReason::kNotFinite) continue;
    const auto own = std::span<const std::int32_t>(s->ids).first(static_cast<std::size_t>(s->computed));
    const std::int64_t common = std::mismatch(ids.begin(), ids.end(), own.begin(), own.end()).first - ids.begin();
    if (common <= most) continue;
    most = common;
    pages->assign(s->pages.begin(), s->pages.begin() + static_cast<std::ptrdiff_t>((common + limits_.page_tokens - 1) /
                                                                                   limits_.page_tokens));
    labels->clear();
    s->AppendLabels(0, common, labels);
  }
  return most;
}

bool Pages::TakePages(std::int64_t count, std::vector<std::int32_t>* taken) {
  taken->reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t page = Take();
    if (page < 0) {
      GiveBack(*taken);
      taken->clear();
      return false;
    }
    taken->push_back(page);
  }
  return true;
}

std::int64_t Pages::ListPages(std::span<const std::int32_t> ids, std::span<const FormLabel> labels,
                              std::span<const std::int32_t> pages) {
  MLA_CHECK(index_.has_value());
  std::size_t end = labels.size();
  if (limits_.reuse == PrefixReuse::kPrompt) {
    // Whose rows these were is not known. A reply begins where the form changes, or has the bits of a prompt.
    end = static_cast<std::size_t>(
        std::find_if(labels.begin(), labels.end(), [&](FormLabel label) { return label != labels.front(); }) -
        labels.begin());
  }
  std::int32_t parent = PrefixIndex::kRoot;
  std::size_t begin = 0;
  for (const std::int32_t page : pages) {
    const std::size_t tokens = std::min(static_cast<std::size_t>(limits_.page_tokens), end - begin);
    if (tokens == 0) break;
    parent = index_->Insert(parent, page, ids.subspan(begin, tokens), labels.subspan(begin, tokens));
    begin += tokens;
    if (parent < 0) break;
  }
  return static_cast<std::int64_t>(begin);
}

void Pages::GiveBack(std::span<const std::int32_t> pages) {
  for (const std::int32_t page : pages) pool_.Release(page);
}

std::int64_t Pages::Needed(std::span<const std::int32_t> prompt) {
  const std::int64_t all =
      static_cast<std::int64_t>(prompt.size()) / limits_.page_tokens + 1;  // and one token of output
  if (!index_) return all;
  found_.clear();
  found_labels_.clear();
  const std::int64_t tokens = index_->Match(prompt.first(prompt.size() - 1), {}, &found_, &found_labels_);
  std::int64_t held = 0;
  for (std::int64_t i = 0; i < tokens / limits_.page_tokens; ++i) {
    if (!pool_.idle(found_[static_cast<std::size_t>(i)])) ++held;
  }
  return all - held;
}

std::int64_t Pages::shared() const {
  std::int64_t count = 0;
  for (std::int64_t page = 0; page < pool_.pages(); ++page) {
    const auto id = static_cast<std::int32_t>(page);
    if (pool_.holders(id) - (pool_.kept(id) ? 1 : 0) > 1) ++count;
  }
  return count;
}

void Pages::CheckHolders(std::span<const std::unique_ptr<Sequence>> sequences) const {
  std::vector<std::int32_t> holders(static_cast<std::size_t>(pool_.pages()), 0);
  for (const auto& s : sequences) {
    for (const std::int32_t page : s->pages) ++holders[static_cast<std::size_t>(page)];
  }
  std::int64_t free = 0;
  std::int64_t idle = 0;
  for (std::int64_t page = 0; page < pool_.pages(); ++page) {
    const auto id = static_cast<std::int32_t>(page);
    const bool listed = index_ && index_->Contains(id);
    MLA_CHECK_EQ(pool_.kept(id), listed);
    const std::int32_t expected = holders[static_cast<std::size_t>(page)] + (listed ? 1 : 0);
    MLA_CHECK_EQ(pool_.holders(id), expected);
    free += expected == 0 ? 1 : 0;
    idle += listed && expected == 1 ? 1 : 0;
  }
  MLA_CHECK_EQ(pool_.free_pages(), free);
  MLA_CHECK_EQ(pool_.idle_pages(), idle);
}

}  // namespace mla::engine
