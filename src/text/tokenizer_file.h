// Reads tokenizer.json and tokenizer_config.json into what the tokenizer is made of, or says what it can't apply.
#ifndef MLA_TEXT_TOKENIZER_FILE_H_
#define MLA_TEXT_TOKENIZER_FILE_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "mla/result.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_decoder.h"

namespace mla::text {

// Ids are below this.
inline constexpr std::int64_t kMaxTokenId = std::int64_t{1} << 24;

struct TokenizerFile {
  Bpe bpe;
  std::vector<AddedToken> added;  // distinct contents, distinct ids; none disagrees with the vocabulary
  AddedTokenFinder first_pass;    // those that are looked for in the text as it is
  AddedTokenFinder second_pass;   // and those in normalized text, normalized
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  // The one token that the post-processor's template puts before a single text, if it does.
  std::optional<std::string> template_prefix;
};

// `where` is the file's path, for messages.
Result<TokenizerFile> ParseTokenizerFile(const io::JsonValue& root, std::string_view where);

// The sections that have a file of their own: pre_tokenizer_file.cc ...
Result<PreTokenizer> ParsePreTokenizer(const io::JsonValue* section, bool byte_level, std::string_view where);
// ... and normalizer_file.cc. A decoder is of Kind::kByteLevel or kPieces.
Result<Normalizer> ParseNormalizer(const io::JsonValue* section, std::string_view where);
Result<TokenDecoder> ParseDecoder(const io::JsonValue* section, std::string_view where);

// A "Metaspace", which is a pre-tokenizer and a decoder. `split`: each word is a piece of its own.
struct MetaspaceSection {
  Metaspace metaspace;
  bool split = true;
};
Result<MetaspaceSection> ParseMetaspace(const io::JsonValue& entry, std::string_view where, std::string_view path);

struct TokenizerConfig {
  std::optional<std::string> bos_token;
  std::optional<std::string> eos_token;
  std::optional<bool> add_bos;
};
Result<TokenizerConfig> ParseTokenizerConfig(const io::JsonValue& root, std::string_view where);

// What a section's reader shares: a message `where: field: expected ..., found ...`.
Error Mismatch(std::string_view where, std::string_view field, std::string_view expected, const io::JsonValue* found);
// Absent or null.
bool IsNull(const io::JsonValue* value);
// The member's boolean; `fallback` where it is absent, an error where there is no fallback.
Result<bool> BoolMember(const io::JsonValue& object, std::string_view key, std::optional<bool> fallback,
                        std::string_view where, std::string_view path);
// Fails at the first member that is not in the list.
Status OnlyMembers(const io::JsonValue& object, std::initializer_list<std::string_view> known, std::string_view where,
                   std::string_view path);
// The member's string, an error where there is none.
Result<std::string> StringMember(const io::JsonValue& object, std::string_view key, std::string_view where,
                                 std::string_view path);
// The "type" of an object, an error where it is no object or has none.
Result<std::string> TypeOf(const io::JsonValue& object, std::string_view where, std::string_view path);

}  // namespace mla::text

#endif  // MLA_TEXT_TOKENIZER_FILE_H_
