#include "text/regex.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <new>

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "io/quote.h"

namespace mla::text {
namespace {

constexpr std::size_t kWindow = 256;
constexpr std::uint64_t kBudgetBase = std::uint64_t{4} << 20;
constexpr std::uint64_t kBudgetPerByte = 1024;
// Steps of backtracking that one start may take in a window, for each of its bytes.
constexpr std::uint64_t kStepsPerByte = 4;
constexpr std::uint32_t kHeapKib = 256 << 10;
constexpr std::size_t kJitStackStart = 32 << 10;
constexpr std::size_t kJitStackMax = 64 << 20;

struct FreeCode {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

std::string MessageOf(int code) {
  std::array<unsigned char, 256> buffer{};
  if (pcre2_get_error_message(code, buffer.data(), buffer.size()) < 0) return fmt::format("PCRE2 error {}", code);
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data() ? text.data() : ""); }

}  // namespace

struct Regex::Impl {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::string shown;
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::Compile(std::string_view pcre, std::string_view shown) {
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) throw std::bad_alloc();  // the loader's catch makes an error of it
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  auto impl = std::make_unique<Impl>();
  impl->shown = io::Printable(shown, 80);
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  impl->code.reset(pcre2_compile(Bytes(pcre), pcre.size(), kOptions, &code, &offset, context.get()));
  if (impl->code == nullptr) return Error{fmt::format("{} (in its translation, at byte {})", MessageOf(code), offset)};
  // Where there is no JIT for the machine the interpreter serves, with the same results.
  static_cast<void>(pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD));
  return Regex(std::move(impl));
}

namespace {

// The end of a window of about `bytes` that begins at `from`: at a character's border.
std::size_t WindowEnd(std::string_view subject, std::size_t from, std::size_t bytes) {
  if (subject.size() - from <= bytes) return subject.size();
  std::size_t end = from + bytes;
  while (end < subject.size() && (static_cast<unsigned char>(subject[end]) & 0xC0) == 0x80) ++end;
  return end;
}

// Called before (*SKIP): no start before this place can match.
int NoteSkip(pcre2_callout_block* block, void* skip_to) {
  *static_cast<std::size_t*>(skip_to) = block->current_position;
  return 0;
}

}  // namespace

struct RegexMatcher::Impl {
  enum class Outcome : std::uint8_t { kMatch, kNoMatch, kUndecided, kTooManySteps, kSpent, kError };

  // What one call found out. kUndecided: the start at `match.begin` saw the window's end; those before it don't match.
  struct Attempt {
    Outcome outcome = Outcome::kError;
    Match match;
    int code = 0;
  };

  Attempt Try(const Regex& regex, std::string_view subject, std::size_t from, std::size_t end, std::uint64_t steps,
              bool alone);
  Attempt TryWindow(const Regex& regex, std::string_view subject, std::size_t from, std::size_t end);
  Attempt TryAlone(const Regex& regex, std::string_view subject, std::size_t from);
  // Takes what `starts` starts over a window of `bytes` may have cost.
  bool Spend(std::uint64_t starts, std::uint64_t bytes) {
    const std::uint64_t cost = starts * bytes;
    const bool enough = cost <= budget;
    budget -= std::min(budget, cost);
    return enough;
  }

  std::unique_ptr<pcre2_match_context, FreeMatchContext> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_match_data, FreeMatchData> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack;
  std::uint64_t budget = kBudgetBase;
  std::size_t text_bytes = 0;
  std::size_t skip_to = 0;
};

RegexMatcher::RegexMatcher() : impl_(std::make_unique<Impl>()) {
  if (impl_->context == nullptr || impl_->data == nullptr) throw std::bad_alloc();
  pcre2_set_heap_limit(impl_->context.get(), kHeapKib);
  pcre2_set_callout(impl_->context.get(), NoteSkip, &impl_->skip_to);
}
RegexMatcher::~RegexMatcher() = default;

void RegexMatcher::StartText(std::size_t bytes) {
  impl_->text_bytes = bytes;
  impl_->budget = kBudgetBase + kBudgetPerByte * bytes;
}

// The starts from `from` on in the subject up to `end`; `alone`: that start only.
RegexMatcher::Impl::Attempt RegexMatcher::Impl::Try(const Regex& regex, std::string_view subject, std::size_t from,
                                                    std::size_t end, std::uint64_t steps, bool alone) {
  const bool whole = end == subject.size();
  // The text's UTF-8 has been checked once, as a whole: checking it again at every call would be quadratic.
  const std::uint32_t options = PCRE2_NO_UTF_CHECK | (whole ? 0U : PCRE2_PARTIAL_HARD);
  // PCRE2_ANCHORED would do without the JIT.
  pcre2_set_offset_limit(context.get(), alone ? from : PCRE2_UNSET);
  pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)));
  const auto match = [&] {
    return pcre2_match(regex.impl_->code.get(), Bytes(subject), end, from, options, data.get(), context.get());
  };
  int code = match();
  if (code == PCRE2_ERROR_JIT_STACKLIMIT && stack == nullptr) {
    // The machine's stack did for everything so far; reserve a larger one.
    stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
    if (stack != nullptr) {
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      code = match();
    }
  }
  if (code == PCRE2_ERROR_NOMATCH) return {Outcome::kNoMatch, {}, code};
  if (code == PCRE2_ERROR_MATCHLIMIT) return {Outcome::kTooManySteps, {}, code};
  if (code < 0 && code != PCRE2_ERROR_PARTIAL) return {Outcome::kError, {}, code};
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data.get());
  const Match found = {offsets[0], offsets[1]};
  // At the window's end an empty match is found without a look at what follows.
  const bool undecided = code == PCRE2_ERROR_PARTIAL || (!whole && found.end == end);
  return {undecided ? Outcome::kUndecided : Outcome::kMatch, found, code};
}

// The starts from `from` to `end`, unless a window of this size can't decide one.
RegexMatcher::Impl::Attempt RegexMatcher::Impl::TryWindow(const Regex& regex, std::string_view subject,
                                                          std::size_t from, std::size_t end) {
  const Attempt attempt = Try(regex, subject, from, end, kStepsPerByte * kWindow, false);
  const bool stopped = attempt.outcome == Outcome::kMatch || attempt.outcome == Outcome::kUndecided;
  const std::size_t last = stopped ? attempt.match.begin : end;
  return Spend(last - from + 1, end - from + 1) ? attempt : Attempt{Outcome::kSpent, {}, 0};
}

// Decides one start, unless an error ends it.
RegexMatcher::Impl::Attempt RegexMatcher::Impl::TryAlone(const Regex& regex, std::string_view subject,
                                                         std::size_t from) {
  std::size_t bytes = kWindow;
  std::uint64_t steps = kStepsPerByte * kWindow;
  while (true) {
    const std::size_t end = WindowEnd(subject, from, bytes);
    if (!Spend(1, std::max<std::uint64_t>(end - from + 1, steps / kStepsPerByte))) return {Outcome::kSpent, {}, 0};
    skip_to = 0;
    const Attempt attempt = Try(regex, subject, from, end, steps, true);
    if (attempt.outcome == Outcome::kUndecided) {
      bytes *= 2;
      steps = std::max<std::uint64_t>(steps, kStepsPerByte * bytes);
    } else if (attempt.outcome == Outcome::kTooManySteps && steps < UINT32_MAX) {
      steps *= 2;
    } else {
      return attempt;
    }
  }
}

// The starts of a window, or one of them alone: what is found, or that nothing is. Else where to go on, in `from`.
Result<std::optional<Match>> RegexMatcher::Find(const Regex& regex, std::string_view subject, std::size_t from) {
  using Outcome = Impl::Outcome;
  MLA_DCHECK(from <= subject.size());
  const auto fail = [&](std::string_view fault) {
    return Error{fmt::format("the pattern \"{}\" failed at byte {} of a piece of {}: {}", regex.impl_->shown, from,
                             subject.size(), fault)};
  };
  std::size_t alone_until = from;  // starts before this are tried one by one
  while (from <= subject.size()) {
    const bool alone = from < alone_until;
    const std::size_t end = WindowEnd(subject, from, kWindow);
    const Impl::Attempt attempt =
        alone ? impl_->TryAlone(regex, subject, from) : impl_->TryWindow(regex, subject, from, end);
    if (attempt.outcome == Outcome::kMatch) return std::optional<Match>(attempt.match);
    if (attempt.outcome == Outcome::kSpent) {
      return fail(fmt::format("the step limit of a text of {} bytes is spent", impl_->text_bytes));
    }
    if (attempt.outcome == Outcome::kError) return fail(MessageOf(attempt.code));
    if (attempt.outcome == Outcome::kUndecided) {
      from = attempt.match.begin;
      alone_until = from + 1;
    } else if (attempt.outcome == Outcome::kTooManySteps) {
      if (alone) return fail(MessageOf(attempt.code));
      alone_until = std::max(end, from + 1);
    } else if (alone) {
      const std::size_t next = from < subject.size() ? WindowEnd(subject, from, 1) : from + 1;
      from = std::max(next, impl_->skip_to);
    } else if (end < subject.size()) {
      from = end;
    } else {
      return std::optional<Match>();
    }
  }
  return std::optional<Match>();
}

}  // namespace mla::text
