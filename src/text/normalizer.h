// What is done to a text before it is cut into words: a prefix, replacements.
#ifndef MLA_TEXT_NORMALIZER_H_
#define MLA_TEXT_NORMALIZER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mla/result.h"
#include "mla/tokenizer.h"
#include "text/replace.h"

namespace mla::text {

// Immutable once built; Apply may run in several threads at once.
class Normalizer {
 public:
  // A text that a step would make longer fails: what byte-pair encoding takes, less room for a prefix.
  static constexpr std::size_t kMaxBytes = 0x7FFF'FF00;

  // Steps are applied in the order in which they are added.
  void AddPrepend(std::string prefix) { steps_.push_back({{}, std::move(prefix)}); }
  void AddReplace(Replacement replacement) { steps_.push_back(std::move(replacement)); }
  bool empty() const { return steps_.empty(); }

  // `text` is valid UTF-8, and so is the result. An empty text stays empty.
  // Ranges of it become those of the result; a replaced part that a range has only partly is not in it,
  // and a prefix is in the one that holds the first character.
  Result<std::string> Apply(std::string_view text, std::vector<TextRange>* ranges = nullptr) const;

 private:
  std::vector<Replacement> steps_;  // an empty `from`: a prefix
};

}  // namespace mla::text

#endif  // MLA_TEXT_NORMALIZER_H_
