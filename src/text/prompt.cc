#include "text/prompt.h"

#include <algorithm>

#include <fmt/format.h>

namespace mla::text {

std::size_t LongestToken(const Tokenizer& tokenizer) {
  std::size_t longest = 1;
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.TokenBytes(id).size());
  }
  return longest;
}

Status CheckVocabulary(std::span<const std::int32_t> ids, std::int64_t vocab_size) {
  for (const std::int32_t id : ids) {
    if (id < vocab_size) continue;
    return Error{fmt::format("the tokenizer: gives token id {}, and the model's vocabulary has {}", id, vocab_size)};
  }
  return {};
}

Result<std::vector<std::int32_t>> EncodePrompt(const Tokenizer& tokenizer, std::string_view text,
                                               Tokenizer::AddedTokens added, bool bos,
                                               std::optional<std::int32_t> model_bos, std::int64_t vocab_size) {
  MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, tokenizer.Encode(text, added));
  MLA_RETURN_IF_ERROR(CheckVocabulary(ids, vocab_size));
  const auto id = tokenizer.bos_id() ? tokenizer.bos_id() : model_bos;
  // One BOS, never two: a template's text may bring its own.
  const bool has_bos = id && !ids.empty() && ids.front() == *id;
  if (bos && id && !has_bos && (tokenizer.add_bos() || ids.empty())) ids.insert(ids.begin(), *id);
  return ids;
}

std::vector<std::int32_t> EosIds(const std::vector<std::int32_t>& of_model, const Tokenizer* tokenizer) {
  if (!of_model.empty() || tokenizer == nullptr || !tokenizer->eos_id()) return of_model;
  return {*tokenizer->eos_id()};
}

}  // namespace mla::text
