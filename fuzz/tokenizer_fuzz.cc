// Any bytes as a tokenizer.json. A tokenizer that results encodes a text and spells its tokens.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "io/json.h"
#include "text/encoder.h"
#include "text/tokenizer_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kText = "ab <s> \u00e9\u5b57\n\u3000aab\u2581 12";
  const auto root = mla::io::ParseJson({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!root.ok()) return 0;
  const auto file = mla::text::ParseTokenizerFile(*root, "fuzz");
  if (!file.ok()) {
    MLA_CHECK(file.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const mla::text::EncoderParts parts = {file->normalizer, file->pre_tokenizer, file->bpe, file->first_pass,
                                         file->second_pass};
  std::string longer;
  for (int i = 0; i < 20; ++i) longer += kText;  // more than one window of a search
  (void)mla::text::Encoder(parts).AsText(longer);
  (void)mla::text::Encoder(parts).Parse(kText);
  for (const mla::text::BpeEntry& entry : file->bpe.entries()) {
    (void)file->decoder.BytesOf(entry.token);
    (void)file->decoder.FirstBytesOf(entry.token);
  }
  return 0;
}
