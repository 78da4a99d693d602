// One text on its way to ids.
#ifndef MLA_TEXT_ENCODER_H_
#define MLA_TEXT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "mla/result.h"
#include "mla/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace mla::text {

// What encoding takes; all outlive the encoder.
struct EncoderParts {
  const Normalizer& normalizer;
  const PreTokenizer& pre_tokenizer;
  const Bpe& bpe;
  const AddedTokenFinder& first_pass;   // in the text as it is
  const AddedTokenFinder& second_pass;  // contents normalized, in normalized text
};

// Of one call: holds its scratch and the ids so far.
class Encoder {
 public:
  explicit Encoder(const EncoderParts& parts) : parts_(parts) {}

  // `text` is valid UTF-8; both fail as Normalizer::Apply and PreTokenizer::Split do.
  Status AsText(std::string_view text);
  Status Parse(std::string_view text);
  // Added tokens alone that lie in one of the ranges, which are in order and don't overlap.
  Status ParseWithin(std::string_view text, std::span<const TextRange> ranges);
  std::vector<std::int32_t> TakeIds() { return std::move(ids_); }

 private:
  struct Seen {
    std::string_view word;
    std::size_t first = 0;  // its ids, as they stand in ids_
    std::size_t count = 0;
  };

  template <class Rest>
  Status Tokens(std::string_view text, std::span<const TextRange> ranges, const AddedTokenFinder& finder, Rest rest);
  Status Words(std::string_view normalized, bool at_start);
  void Word(std::string_view word);

  EncoderParts parts_;
  PreTokenizer::Scratch pieces_;
  Bpe::Scratch merges_;
  std::vector<Seen> seen_;
  std::vector<std::int32_t> ids_;
};

}  // namespace mla::text

#endif  // MLA_TEXT_ENCODER_H_
