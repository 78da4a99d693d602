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

// Steps of backtracking from one start. A scan of the whole subject and back is some steps a character; what needs far
// more than that is exponential.
constexpr std::uint32_t kStepsBase = 10'000'000;
constexpr std::uint32_t kStepsPerByte = 64;
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
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C;
  impl->code.reset(pcre2_compile(Bytes(pcre), pcre.size(), kOptions, &code, &offset, context.get()));
  if (impl->code == nullptr) return Error{fmt::format("{} (in its translation, at byte {})", MessageOf(code), offset)};
  // Where there is no JIT for the machine the interpreter serves, with the same results.
  static_cast<void>(pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE));
  return Regex(std::move(impl));
}

struct RegexMatcher::Impl {
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_match_data, FreeMatchData> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack;
};

RegexMatcher::RegexMatcher() : impl_(std::make_unique<Impl>()) {
  if (impl_->context == nullptr || impl_->data == nullptr) throw std::bad_alloc();
  pcre2_set_heap_limit(impl_->context.get(), kHeapKib);
}
RegexMatcher::~RegexMatcher() = default;

Result<std::optional<Match>> RegexMatcher::Find(const Regex& regex, std::string_view subject, std::size_t from) {
  MLA_DCHECK(from <= subject.size());
  const std::uint64_t steps = kStepsBase + std::uint64_t{kStepsPerByte} * subject.size();
  pcre2_set_match_limit(impl_->context.get(), static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)));
  const auto match = [&] {
    // The text's UTF-8 has been checked once, as a whole: checking it again at every call would be quadratic.
    return pcre2_match(regex.impl_->code.get(), Bytes(subject), subject.size(), from, PCRE2_NO_UTF_CHECK,
                       impl_->data.get(), impl_->context.get());
  };
  int code = match();
  if (code == PCRE2_ERROR_JIT_STACKLIMIT && impl_->stack == nullptr) {
    // The machine's stack did for everything so far; reserve a larger one.
    impl_->stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr));
    if (impl_->stack != nullptr) {
      pcre2_jit_stack_assign(impl_->context.get(), nullptr, impl_->stack.get());
      code = match();
    }
  }
  if (code == PCRE2_ERROR_NOMATCH) return std::optional<Match>();
  if (code < 0) {
    return Error{fmt::format("the pattern \"{}\" failed at byte {} of a piece of {}: {}", regex.impl_->shown, from,
                             subject.size(), MessageOf(code))};
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(impl_->data.get());
  return std::optional<Match>(Match{offsets[0], offsets[1]});
}

}  // namespace mla::text
