// A text as a model's prompt: its ids, behind the BOS where there is to be one.
#ifndef MLA_TEXT_PROMPT_H_
#define MLA_TEXT_PROMPT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mla/result.h"
#include "mla/tokenizer.h"

namespace mla::text {

// Bytes of the longest token, at least 1: a text of n bytes has at least n / LongestToken ids, so that one which can't
// fit may be refused before it is cut into tokens, which takes tens of bytes of memory for each of its own. Goes
// through the whole vocabulary.
std::size_t LongestToken(const Tokenizer& tokenizer);

// Fails where the tokenizer has given an id that the model does not have.
Status CheckVocabulary(std::span<const std::int32_t> ids, std::int64_t vocab_size);

// The text's ids, and where `bos` before them one BOS (the tokenizer's, else `model_bos`), if the tokenizer asks for it
// or there are no ids, and the text does not bring its own. Fails on a text that is no UTF-8, and as CheckVocabulary.
Result<std::vector<std::int32_t>> EncodePrompt(const Tokenizer& tokenizer, std::string_view text,
                                               Tokenizer::AddedTokens added, bool bos,
                                               std::optional<std::int32_t> model_bos, std::int64_t vocab_size);

// The ids that end an output: the model's, else the tokenizer's, if there is one.
std::vector<std::int32_t> EosIds(const std::vector<std::int32_t>& of_model, const Tokenizer* tokenizer);

}  // namespace mla::text

#endif  // MLA_TEXT_PROMPT_H_
