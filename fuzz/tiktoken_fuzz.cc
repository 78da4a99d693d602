// Any bytes as a tiktoken file: ranks that are ids, or an error of one line. A vocabulary that results encodes a text
// to its own bytes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/bpe.h"
#include "text/tiktoken_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kText = "ab <s> \u00e9\u5b57\n\u3000aab\u2581 12";
  auto entries = mla::text::ParseTiktoken({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!entries.ok()) {
    MLA_CHECK(entries.error().message.find('\n') == std::string::npos);
    return 0;
  }
  std::vector<std::string> tokens(entries->size());
  for (const mla::text::BpeEntry& entry : *entries) tokens[static_cast<std::size_t>(entry.id)] = entry.token;
  const auto bpe = mla::text::Bpe::MakeRanked(std::move(entries).value(), "fuzz");
  if (!bpe.ok()) return 0;
  mla::text::Bpe::Scratch scratch;
  std::vector<std::int32_t> ids;
  bpe->Encode(kText, scratch, ids);
  std::string text;
  for (const std::int32_t id : ids) text += tokens[static_cast<std::size_t>(id)];
  MLA_CHECK(text == kText);
  return 0;
}
