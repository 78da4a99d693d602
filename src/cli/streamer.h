// Output ids -> text on stdout, as they come.
#ifndef MLA_CLI_STREAMER_H_
#define MLA_CLI_STREAMER_H_

#include <cstdint>
#include <optional>
#include <string>

#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla::cli {

class Streamer {
 public:
  // Without a tokenizer the ids themselves are shown. `print` false only collects.
  Streamer(const Tokenizer* tokenizer, bool print);

  // Fails where stdout can't be written.
  Status Push(std::int32_t id);
  // The rest of the text, and a newline.
  Status Finish();
  // Everything so far; "" without a tokenizer.
  const std::string& text() const { return text_; }

 private:
  Status Show(const std::string& piece);

  std::optional<StreamDecoder> decoder_;
  bool print_;
  bool first_ = true;
  std::string text_;
};

}  // namespace mla::cli

#endif  // MLA_CLI_STREAMER_H_
