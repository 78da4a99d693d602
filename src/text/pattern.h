// A tokenizer's pattern, written for Oniguruma's Ruby syntax, rewritten for PCRE2 so that it means the same. (Rust's
// regex syntax, which tiktoken's patterns are written for, has the same meaning in all that is accepted here but for ^
// and $, which are by line in Ruby's.)
//
// The two agree on most of what tokenizers use and differ, silently, on the rest: \s (U+180E), $ and ^ (always by line
// in Ruby's syntax), \h and \v, a script's name, {,n}, sets inside sets, && in a set, case folding, the Unicode
// version. What is known to mean the same is passed on, what differs is spelled out, and everything else is refused by
// name.
#ifndef MLA_TEXT_PATTERN_H_
#define MLA_TEXT_PATTERN_H_

#include <string>
#include <string_view>

#include "mla/result.h"

namespace mla::text {

// `pattern` is valid UTF-8. The result is for PCRE2 with UTF on. The error's message says what is unsupported and at
// which byte.
//
// One rewrite is for time alone: a pattern that is as a whole C+R or C*R, for a character set C, fails at every start
// inside a run of C once it has failed at the run's start, so the search skips the run, and
// a callout before says so to a search that tries one start at a time. (DeepSeek-V2 has \s+$, which
// would otherwise be quadratic in a run of spaces.)
Result<std::string> TranslatePattern(std::string_view pattern);

// A PCRE2 pattern that matches the text itself.
std::string TranslateLiteral(std::string_view text);

}  // namespace mla::text

#endif  // MLA_TEXT_PATTERN_H_
