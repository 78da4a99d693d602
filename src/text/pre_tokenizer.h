// Cuts a text into the words that byte-pair encoding works on.
#ifndef MLA_TEXT_PRE_TOKENIZER_H_
#define MLA_TEXT_PRE_TOKENIZER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mla/result.h"
#include "text/regex.h"

namespace mla::text {

// What becomes of a pattern's matches, which alternate with the text between them.
enum class SplitBehavior : std::uint8_t {
  kIsolated,            // a piece of its own
  kRemoved,             // gone
  kMergedWithPrevious,  // one piece with the text before
  kMergedWithNext,      // one piece with the text after
  kContiguous           // neighbouring matches are one piece
};

// Spaces written as a symbol of their own (sentencepiece's U+2581), with one put before the text.
struct Metaspace {
  enum class Prepend : std::uint8_t {
    kFirst,   // only to the piece that the whole text begins with
    kAlways,  // to every piece between added tokens
    kNever
  };
  std::string symbol;  // one character; put only where the piece does not begin with it
  Prepend prepend = Prepend::kAlways;
};

struct SplitStage {
  Regex regex;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // matches and the text between them change places
  std::string where;    // for messages: which entry of the file
};

// Immutable once built; Split may run in several threads at once, each with a Scratch of its own.
class PreTokenizer {
 public:
  void Add(SplitStage stage) { stages_.push_back(std::move(stage)); }
  // Every piece that the stages so far leave, and that does not begin with a space, gets one in front.
  void AddPrefixSpace() { prefix_after_ = static_cast<std::ptrdiff_t>(stages_.size()); }

  // Done to a text before all stages.
  void SetMetaspace(Metaspace metaspace) { metaspace_ = std::move(metaspace); }
  bool has_metaspace() const { return metaspace_.has_value(); }

  struct Scratch {
    RegexMatcher matcher;
    std::vector<std::string_view> pieces;  // the result: parts of the text, or of `prefixed`
    std::vector<std::string_view> previous;
    std::vector<std::pair<std::string_view, bool>> segments;
    std::deque<std::string> prefixed;
  };

  // Leaves the words of `text` (valid UTF-8) in scratch.pieces; none is empty. They live as long as both `text` and
  // the scratch's next use. `at_start`: the whole text begins with it. Fails where a pattern takes too many steps, or
  // Metaspace makes the text longer than Normalizer::kMaxBytes.
  Status Split(std::string_view text, bool at_start, Scratch& scratch) const;

 private:
  static Status RunStage(const SplitStage& stage, std::string_view piece, Scratch& scratch);

  Result<std::string> ApplyMetaspace(std::string_view text, bool at_start) const;

  std::optional<Metaspace> metaspace_;
  std::vector<SplitStage> stages_;
  std::ptrdiff_t prefix_after_ = -1;  // number of stages that come before the prefix; -1: no prefix
};

}  // namespace mla::text

#endif  // MLA_TEXT_PRE_TOKENIZER_H_
