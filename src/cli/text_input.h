// Text from a file or stdin, and its token ids.
#ifndef MLA_CLI_TEXT_INPUT_H_
#define MLA_CLI_TEXT_INPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/model.h"
#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla::cli {

// The whole of stdin; says so first where that is a terminal. `what` is for messages: "prompt". Fails past 64 MiB.
Result<std::string> ReadStdin(std::string_view what);
// The whole of a file, likewise.
Result<std::string> ReadTextFile(const std::string& path, std::string_view what);

// The text's ids behind one BOS, where the tokenizer asks for it and the text does not bring its own. `special`: added
// tokens in the text are parsed. Fails on a text that is no UTF-8, or an id that the model does not have.
Result<std::vector<std::int32_t>> EncodeText(const std::string& text, bool special, const Tokenizer& tokenizer,
                                             const ModelInfo& model);

}  // namespace mla::cli

#endif  // MLA_CLI_TEXT_INPUT_H_
