// Text <-> token ids, as the checkpoint's tokenizer.json or tiktoken.model says.
#ifndef MLA_TOKENIZER_H_
#define MLA_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/result.h"

namespace mla {

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Immutable after Load; every const function may be called from several threads at once.
class Tokenizer {
 public:
  // Reads DIR/tokenizer.json and, where it is there, DIR/tokenizer_config.json (bos, eos, add_bos_token). The model is
  // BPE: of bytes (ByteLevel), or of characters with byte fallback or an unknown token (sentencepiece's, with Metaspace
  // or Prepend and Replace). Without tokenizer.json: DIR/tiktoken.model, which holds no split pattern; Kimi's is taken
  // where tokenizer_config.json says that the file is read by Kimi's TikTokenTokenizer, and another class is refused.
  // Kimi's own encoder cuts texts of over 400,000 characters, and runs of over 25,000 characters with no space or
  // nothing but space, before it splits them; here they are split whole, so at such cuts the ids may differ.
  //
  // Fails, by name, on anything that it could not apply exactly: another model type, an unknown normalizer,
  // pre-tokenizer or decoder, merges whose parts or result are not in the vocabulary, ids that are negative, doubled or
  // huge, a pattern that does not compile.
  static Result<Tokenizer> Load(const std::string& dir);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  enum class AddedTokens : std::uint8_t {
    kAsText,  // what a user wrote stays text, even where it looks like <｜User｜>
    kParse,   // added tokens, special or not, become their ids: for text that is trusted
  };

  // Ids of the text, with no BOS added. Text that is no valid UTF-8 fails, with the byte's offset. Time is linear in
  // the text but for a logarithm.
  Result<std::vector<std::int32_t>> Encode(std::string_view text, AddedTokens added = AddedTokens::kAsText) const;

  // Of a text that is trusted in part: an added token becomes its id where all of its characters lie in one of the
  // ranges, and is text elsewhere. Precondition: ranges are in order, don't overlap, and begin and end at characters of
  // the text. Ranges that touch are two. Where no added token stands in the text outside of them, this is kParse.
  Result<std::vector<std::int32_t>> Encode(std::string_view text, std::span<const TextRange> trusted) const;

  // The bytes of the ids, special tokens left out unless asked for. Not always valid UTF-8 (an id may hold part of a
  // character): see StreamDecoder. Ids out of range decode to nothing. A space that the tokenizer puts before every
  // text is left out at the start of the ids, as its decoder says.
  std::string Decode(std::span<const std::int32_t> ids, bool with_special = false) const;

  // The bytes of one id inside a text, and whether it is a special token (kept out of Decode by default).
  std::string_view TokenBytes(std::int32_t id) const;
  bool IsSpecial(std::int32_t id) const;

  // One past the largest id.
  std::int32_t vocab_size() const;
  std::optional<std::int32_t> bos_id() const;
  std::optional<std::int32_t> eos_id() const;
  // Whether a prompt begins with BOS: tokenizer_config.json's add_bos_token; where it does not say, whether the
  // template of tokenizer.json's post-processor puts BOS first.
  bool add_bos() const;

 private:
  friend class StreamDecoder;
  // What the start of a text still changes about its next token.
  struct Beginning {
    bool first_token = true;
    std::int32_t strip_spaces = 0;
  };
  Beginning AtBeginning() const;
  std::string_view BytesAt(std::int32_t id, Beginning& beginning) const;
  static Result<Tokenizer> LoadFiles(const std::string& dir);

  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns a stream of ids, which begins a text, into that text: what Decode gives, never emitting half a character.
class StreamDecoder {
 public:
  // `tokenizer` outlives the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_special = false);

  // The characters that this id completes: valid UTF-8, maybe empty. Bytes that can't begin or continue a character
  // come out as U+FFFD, one for each maximal broken piece (as Unicode recommends).
  std::string Push(std::int32_t id);
  // What is left at the end: an unfinished character as U+FFFD.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool with_special_;
  Tokenizer::Beginning beginning_;
  std::string pending_;
};

}  // namespace mla

#endif  // MLA_TOKENIZER_H_
