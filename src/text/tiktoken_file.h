// Reads a folder whose vocabulary is a tiktoken file: lines of a token's bytes in base64, a space, and its rank, which
// is its id.
#ifndef MLA_TEXT_TIKTOKEN_FILE_H_
#define MLA_TEXT_TIKTOKEN_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "mla/result.h"
#include "text/bpe.h"
#include "text/tokenizer_file.h"

namespace mla::text {

// The lines of a tiktoken file. Fails, with the line's number, on a line of another form, base64 that is not canonical,
// an empty token, a token or a rank that comes twice, and ranks that are not 0 to the number of lines less one.
// `where` is the file's path, for messages.
Result<std::vector<BpeEntry>> ParseTiktoken(std::string_view text, std::string_view where);

// DIR/tiktoken.model with what DIR/tokenizer_config.json (`config`, nullptr where there is none) says about it. Such a
// file holds neither the split pattern nor the special tokens: both are known for Moonshot's class alone (Kimi,
// Moonlight), so anything else is refused by name. Where the class's own code lies in the folder, the pattern must
// stand in it.
Result<TokenizerFile> ReadTiktokenFile(const std::string& dir, const io::JsonValue* config);

}  // namespace mla::text

#endif  // MLA_TEXT_TIKTOKEN_FILE_H_
