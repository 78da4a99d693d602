// Step plans over random traces of submit, fork, step, draft, finish, park and release, without a model. A plain record
// of what stands in each slot says whether a sequence ever reads a row that was not written for it.
#include "engine/step_plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "testing/models.h"

namespace mla::testing {
namespace {

using engine::Sequence;

// Tokens [0, position] and their forms: what a cache row of MLA depends on. Sequences that share a prefix share these.
std::string PrefixOf(const Sequence& s, std::int64_t position) {
  std::string key;
  for (std::int64_t i = 0; i <= position; ++i) {
    key += std::to_string(s.ids[static_cast<std::size_t>(i)]) + (s.FormAt(i) == Form::kMha ? "m" : "a");
  }
  return key;
}

class Trace {
 public:
  explicit Trace(std::uint64_t seed) : rng_(seed) {
    engine::Sizes& z = sizes_;
    z.options.mode = std::vector<Mode>{Mode::kAuto, Mode::kRole, Mode::kMha, Mode::kAbsorb}[Below(4)];
    z.options.context = 1 + Int(40);
    z.options.max_sequences = 1 + Int(6);
    z.options.prefill_chunk = 1 + Int(12);
    z.options.page_tokens = 1 + Int(20);
    z.options.prefix_reuse =
        std::vector<PrefixReuse>{PrefixReuse::kOff, PrefixReuse::kPrompt, PrefixReuse::kAll}[Below(3)];
    z.options.drafter = Drafter::kNgram;
    z.options.draft_tokens = 1 + Int(4);
    z.layout = MakeLatentLayout(8, 2, 1, DType::kF32, z.options.page_tokens);
    const std::int64_t full = z.layout.PagesFor(z.options.context);
    z.options.cache_pages = full + Int(full * z.options.max_sequences);  // from one sequence's to more than all need
    const std::int64_t decode_rows = 1 + z.options.draft_tokens;
    z.step.max_rows = std::max(z.options.prefill_chunk, decode_rows) + (z.options.max_sequences - 1) * decode_rows;
    pages_.emplace(engine::PageLimits(z));
    plan_.Reserve(z);
    rows_capacity_ = plan_.ids.capacity();
  }

  void Run(int operations) {
    for (int i = 0; i < operations && !::testing::Test::HasFatalFailure(); ++i) {
      const std::uint64_t choice = Below(16);
      if (choice < 3) {
        Submit();
      } else if (choice == 3 && !sequences_.empty()) {
        ParkOrResume(Any());
      } else if (choice == 5 && !sequences_.empty()) {
        Fork(*Any());
      } else if (choice == 4 && !sequences_.empty()) {
        Release(Below(sequences_.size()));
      } else {
        Step();
      }
      CheckPool();
    }
    while (!sequences_.empty()) Release(0);
    CheckPool();
    EXPECT_EQ(pages_->free() + pages_->idle(), pages_->total()) << "pages are lost";
  }

  std::int64_t shared() const { return shared_; }
  std::int64_t starved() const { return starved_; }
  std::int64_t replayed() const { return replayed_; }
  std::int64_t copied() const { return pages_->copied(); }
  std::int64_t evicted() const { return pages_->evicted(); }

 private:
  std::uint64_t Below(std::uint64_t n) { return rng_() % n; }
  std::int64_t Int(std::int64_t n) { return static_cast<std::int64_t>(Below(static_cast<std::uint64_t>(n))); }
  Sequence* Any() { return sequences_[Below(sequences_.size())].get(); }

  // As Engine::Submit does. Few different ids, and often the head of another sequence, so that prefixes are common.
  void Submit() {
    const engine::Sizes& z = sizes_;
    if (static_cast<std::int64_t>(sequences_.size()) == z.options.max_sequences) return;
    auto s = std::make_unique<Sequence>();
    s->prompt_size = 1 + Int(z.options.context);
    const Sequence* donor = !sequences_.empty() && Below(2) == 0 ? Any() : nullptr;
    s->ids.reserve(static_cast<std::size_t>(z.options.context));
    for (std::int64_t i = 0; i < s->prompt_size; ++i) {
      const bool alike = donor != nullptr && i < donor->size() && Below(20) != 0;
      s->ids.push_back(alike ? donor->ids[static_cast<std::size_t>(i)] : static_cast<std::int32_t>(Below(3)));
    }
    s->most = z.options.context;
    s->pages.reserve(static_cast<std::size_t>(z.layout.PagesFor(z.options.context)));
    const auto found = pages_->Adopt(s.get());
    EXPECT_EQ(static_cast<std::int64_t>(found.size()), s->computed);
    s->forms = engine::AssignForms(z.options.mode, z.options.form_table, {2, 8, 2, 8, 8}, s->prompt_size, found);
    EXPECT_LT(s->computed, s->size()) << "one row is left to run";
    shared_ += static_cast<std::int64_t>(s->pages.size());
    sequences_.push_back(std::move(s));
  }

  void Fork(const Sequence& parent) {
    if (static_cast<std::int64_t>(sequences_.size()) == sizes_.options.max_sequences) return;
    auto s = std::make_unique<Sequence>();
    s->prompt_size = parent.prompt_size;
    s->most = parent.most;
    s->ids.reserve(parent.ids.capacity());
    s->ids.assign(parent.ids.begin(), parent.ids.begin() + parent.prompt_size);
    s->pages.reserve(parent.pages.capacity());
    s->forms = parent.forms;
    pages_->Share(parent, parent.prompt_size - 1, s.get());
    sequences_.push_back(std::move(s));
  }

  void ParkOrResume(Sequence* s) {
    if (s->parked) {
      s->parked = false;
      if (s->finish == FinishReason::kNone) pages_->Adopt(s);
    } else {
      pages_->Release(s);
      s->parked = true;
    }
  }

  void Release(std::size_t at) {
    pages_->Release(sequences_[at].get());
    sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void Draft() {
    for (const auto& s : sequences_) {
      if (!s->runs() || !s->decodes()) continue;
      const std::int64_t most = std::min(sizes_.options.draft_tokens, s->most - s->size() - 1);
      for (std::int64_t i = Int(most + 2); i > 0 && static_cast<std::int64_t>(s->drafts.size()) < most; --i) {
        s->drafts.push_back(static_cast<std::int32_t>(Below(3)));
      }
    }
  }

  void Step() {
    Draft();
    const bool enough = engine::MissingPages(sizes_, sequences_, *pages_) == 0;
    engine::PlanStep(sizes_, sequences_, &*pages_, &plan_);
    for (const engine::PageCopy& copy : plan_.copies) {
      const std::int64_t tokens = sizes_.options.page_tokens;
      for (std::int64_t t = 0; t < copy.tokens; ++t) written_[copy.to * tokens + t] = written_[copy.from * tokens + t];
    }
    CheckLimits();
    CheckWhoIsLeftOut(enough);
    for (std::size_t i = 0; i < plan_.in_step.size(); ++i) WriteRows(plan_.sequences[i], *plan_.in_step[i]);
    for (std::size_t i = 0; i < plan_.in_step.size(); ++i) {
      ReadKeys(plan_.sequences[i], *plan_.in_step[i]);
      Deliver(plan_.sequences[i], plan_.in_step[i]);
    }
    CheckPool();
  }

  void CheckLimits() {
    const auto rows = static_cast<std::int64_t>(plan_.ids.size());
    ASSERT_LE(rows, sizes_.step.max_rows);
    ASSERT_EQ(plan_.positions.size(), plan_.ids.size());
    ASSERT_EQ(plan_.slots.size(), plan_.ids.size());
    ASSERT_EQ(plan_.ids.capacity(), rows_capacity_) << "planning allocated";
    ASSERT_EQ(std::set<std::int64_t>(plan_.slots.begin(), plan_.slots.end()).size(), plan_.slots.size())
        << "two rows in one slot";
    ASSERT_EQ(plan_.sequences.size(), plan_.in_step.size());
    std::int64_t next = 0;
    std::int64_t prompt_rows = 0;
    std::int64_t budget = sizes_.options.prefill_chunk;
    for (std::size_t i = 0; i < plan_.in_step.size(); ++i) {
      const AttentionSequence& part = plan_.sequences[i];
      const Sequence& s = *plan_.in_step[i];
      ASSERT_EQ(part.first_row, next);
      ASSERT_GE(part.rows, 1);
      if (!s.decodes()) budget -= part.rows;
      ASSERT_EQ(part.keys, s.computed + part.rows);
      ASSERT_LE(part.keys, s.size() + (s.decodes() ? static_cast<std::int64_t>(s.drafts.size()) : 0));
      ASSERT_EQ(part.pages.data(), s.pages.data());
      ASSERT_TRUE(s.runs());
      for (std::int64_t r = 0; r < part.rows; ++r) {
        const std::int64_t position = s.computed + r;
        const auto row = static_cast<std::size_t>(next + r);
        ASSERT_EQ(plan_.positions[row], position);
        ASSERT_EQ(plan_.ids[row], position < s.size() ? s.ids[static_cast<std::size_t>(position)]
                                                      : s.drafts[static_cast<std::size_t>(position - s.size())]);
        ASSERT_EQ(part.form, s.FormAt(position));
        prompt_rows += position < s.prompt_size ? 1 : 0;
      }
      next += part.rows;
    }
    ASSERT_EQ(next, static_cast<std::int64_t>(plan_.ids.size()));
    ASSERT_EQ(plan_.prompt_rows, prompt_rows);
    ASSERT_EQ(plan_.prompt_rows + plan_.generated_rows + plan_.draft_rows, next);
    ASSERT_GE(budget, 0) << "more prompt rows than a chunk";
    // Those that decode, then the others, each in order of admission, none twice.
    auto at = sequences_.begin();
    bool decoding = true;
    for (const Sequence* s : plan_.in_step) {
      if (decoding && !s->decodes()) {
        decoding = false;
        at = sequences_.begin();
      }
      ASSERT_EQ(s->decodes(), decoding);
      at = std::find_if(at, sequences_.end(), [&](const auto& held) { return held.get() == s; });
      ASSERT_NE(at, sequences_.end());
      ++at;
    }
  }

  // A sequence goes without a row only where it needs a page and there is none, or where older prompts have the chunk.
  // Where no page is missing, all that decode and the first that does not have their rows.
  void CheckWhoIsLeftOut(bool enough) {
    bool first = true;
    for (const auto& s : sequences_) {
      const bool in = std::find(plan_.in_step.begin(), plan_.in_step.end(), s.get()) != plan_.in_step.end();
      if (!s->runs()) {
        ASSERT_FALSE(in);
        continue;
      }
      if (enough && (s->decodes() || first)) {
        ASSERT_TRUE(in);
      }
      const bool behind_others = !s->decodes() && !first;
      if (!s->decodes()) first = false;
      if (in || behind_others) continue;
      ++starved_;
      ASSERT_EQ(pages_->free() + pages_->idle(), 0);
    }
  }

  void WriteRows(const AttentionSequence& part, const Sequence& s) {
    Sequence with_drafts = s;
    with_drafts.ids.insert(with_drafts.ids.end(), s.drafts.begin(), s.drafts.end());
    for (std::int64_t r = 0; r < part.rows; ++r) {
      const std::int64_t slot = plan_.slots[static_cast<std::size_t>(part.first_row + r)];
      const auto page = static_cast<std::int32_t>(slot / sizes_.options.page_tokens);
      for (const auto& other : sequences_) {
        if (other.get() == &s) continue;
        ASSERT_EQ(std::count(other->pages.begin(), other->pages.end(), page), 0)
            << "a row is written to a page that others read";
      }
      const std::int64_t position = s.computed + r;
      replayed_ += position + 1 < s.size() && position >= s.prompt_size ? 1 : 0;
      written_[slot] = PrefixOf(with_drafts, position);
    }
  }

  // Every key of the part is the sequence's own, in the form fixed for it.
  void ReadKeys(const AttentionSequence& part, Sequence s) {
    s.ids.insert(s.ids.end(), s.drafts.begin(), s.drafts.end());
    const std::int64_t page_tokens = sizes_.options.page_tokens;
    for (std::int64_t position = 0; position < part.keys; ++position) {
      const std::int64_t page = part.pages[static_cast<std::size_t>(position / page_tokens)];
      ASSERT_EQ(written_[page * page_tokens + position % page_tokens], PrefixOf(s, position)) << position;
    }
  }

  // The next tokens, or the end: some of the guesses hold.
  void Deliver(const AttentionSequence& part, Sequence* s) {
    s->computed = std::min(part.keys, s->size());
    s->drafts.resize(static_cast<std::size_t>(part.keys - s->computed));
    if (s->computed < s->size()) {
      pages_->List(s);
      return;
    }
    if (s->size() == s->most || Below(12) == 0) {
      s->finish = FinishReason::kContext;
    } else {
      const std::int64_t accepted = Int(static_cast<std::int64_t>(s->drafts.size()) + 1);
      s->ids.insert(s->ids.end(), s->drafts.begin(), s->drafts.begin() + accepted);
      s->ids.push_back(static_cast<std::int32_t>(Below(3)));
      s->computed += accepted;
    }
    s->drafts.clear();
    pages_->List(s);
  }

  // A page has as many holders as sequences name it, and the index; none names it twice.
  void CheckPool() {
    for (const auto& s : sequences_) {
      ASSERT_EQ(std::set<std::int32_t>(s->pages.begin(), s->pages.end()).size(), s->pages.size()) << "a page twice";
      ASSERT_LE(s->computed, static_cast<std::int64_t>(s->pages.size()) * sizes_.options.page_tokens);
    }
    pages_->CheckHolders(sequences_);
  }

  std::mt19937_64 rng_;
  engine::Sizes sizes_;
  std::optional<engine::Pages> pages_;
  engine::StepPlan plan_;
  std::size_t rows_capacity_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::map<std::int64_t, std::string> written_;  // slot -> the prefix that its row was computed from
  std::int64_t shared_ = 0;
  std::int64_t starved_ = 0;
  std::int64_t replayed_ = 0;
};

TEST(StepPlan, RandomTraces) {
  std::int64_t shared = 0;
  std::int64_t starved = 0;
  std::int64_t replayed = 0;
  for (std::uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Trace trace(seed);
    trace.Run(kUnderSanitizer ? 100 : 400);
    shared += trace.shared();
    starved += trace.starved();
    replayed += trace.replayed();
  }
  // The traces come to what they are for.
  EXPECT_GT(shared, 100);
  EXPECT_GT(starved, 100);
  EXPECT_GT(replayed, 100);
}

}  // namespace
}  // namespace mla::testing
