// Any bytes as a tokenizer's file: after an odd byte the lines of a tiktoken file, else a tokenizer.json. A tokenizer
// that results encodes a text and spells its tokens.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "io/json.h"
#include "text/encoder.h"
#include "text/tiktoken_file.h"
#include "text/tokenizer_file.h"

namespace {

constexpr std::string_view kText = "ab <s> \u00e9\u5b57\n\u3000aab\u2581 12";

void Tiktoken(std::string_view text) {
  auto entries = mla::text::ParseTiktoken(text, "fuzz");
  if (!entries.ok()) return;
  const auto bpe = mla::text::Bpe::MakeRanked(std::move(entries).value(), "fuzz");
  if (!bpe.ok()) return;
  mla::text::Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe->Encode(kText, scratch, ids);
}

void TokenizerJson(std::string_view text) {
  const auto root = mla::io::ParseJson(text, "fuzz");
  if (!root.ok()) return;
  const auto file = mla::text::ParseTokenizerFile(*root, "fuzz");
  if (!file.ok()) return;
  const mla::text::EncoderParts parts = {file->normalizer, file->pre_tokenizer, file->bpe, file->first_pass,
                                         file->second_pass};
  (void)mla::text::Encoder(parts).AsText(kText);
  (void)mla::text::Encoder(parts).Parse(kText);
  for (const mla::text::BpeEntry& entry : file->bpe.entries()) {
    (void)file->decoder.BytesOf(entry.token);
    (void)file->decoder.FirstBytesOf(entry.token);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] % 2 == 1 ? Tiktoken(text) : TokenizerJson(text);
  return 0;
}
