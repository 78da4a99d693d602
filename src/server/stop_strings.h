// Texts that end an answer, found across the borders of tokens.
#ifndef MLA_SERVER_STOP_STRINGS_H_
#define MLA_SERVER_STOP_STRINGS_H_

#include <string>
#include <string_view>
#include <vector>

namespace mla::server {

class StopStrings {
 public:
  // None of the texts is empty.
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // What of the text may be shown now that `piece` has come: all but what may yet turn out to begin a stop text. Once
  // a stop text is whole, what stands before the earliest one, and stopped() holds.
  std::string Push(std::string_view piece);
  // What was held back, at the end.
  std::string Finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

// Bytes at the end of the text that begin `marker` without being all of it; the longest such.
std::size_t PartialSuffix(std::string_view text, std::string_view marker);

}  // namespace mla::server

#endif  // MLA_SERVER_STOP_STRINGS_H_
