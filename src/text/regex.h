// PCRE2 behind a small face: compiled patterns that threads share, and a matcher with the scratch that they must not.
#ifndef MLA_TEXT_REGEX_H_
#define MLA_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::text {

// A compiled pattern, immutable: several threads may match with it at once, each with a RegexMatcher of its own.
class Regex {
 public:
  // `pcre` is a pattern of PCRE2's syntax in UTF-8; `shown` is how messages name it (the file's own pattern).
  static Result<Regex> Compile(std::string_view pcre, std::string_view shown);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  friend class RegexMatcher;
  struct Impl;
  explicit Regex(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Offsets in bytes.
struct Match {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// For one thread.
//
// A pattern that comes with a model may be made to cost its text's square, or worse. So the work on a text is counted
// and bounded by its length. Most starts of a search see a few characters: they are tried in windows of 256 bytes of
// the text, each counting as a scan of its window. A start that sees the window's end, or takes more steps than a few
// scans of it, is tried alone, in a window and with a limit that double until it is decided, and counts as much as they
// grow.
class RegexMatcher {
 public:
  RegexMatcher();
  ~RegexMatcher();
  RegexMatcher(const RegexMatcher&) = delete;
  RegexMatcher& operator=(const RegexMatcher&) = delete;

  // What the searches until the next call may cost together: 4 MiB of scanned bytes, and 1,024 for each byte of a text
  // of `bytes`. A search of a text without long matches counts 256 for each.
  void StartText(std::size_t bytes);

  // The leftmost match that begins at `from` or later, or nothing. `subject` is valid UTF-8 and `from` a character's
  // start; lookbehind sees what is before it. Fails where the pattern takes more memory than any sensible pattern does,
  // or what the text may cost is spent.
  Result<std::optional<Match>> Find(const Regex& regex, std::string_view subject, std::size_t from);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla::text

#endif  // MLA_TEXT_REGEX_H_
