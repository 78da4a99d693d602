// A tool for tools/tokenizer_vectors.py: encodes strings and decodes ids, so that another implementation's can be
// compared.
//
//   text_encode_tool DIR [text|parse|decode]
//
// text, parse: reads one JSON string a line; writes one JSON object a line: {"ids": [...], "decoded": HEX}, with the
// bytes of the ids, special tokens among them, or {"error": "..."}.
// decode: reads one JSON array of ids a line; writes {"all": HEX, "plain": HEX, "streamed": HEX}: the bytes with
// special tokens and without, and what a stream sends, with them.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "io/quote.h"
#include "mla/tokenizer.h"

namespace {

std::string Failed(const mla::Error& error) { return "{\"error\": " + mla::io::JsonString(error.message) + "}"; }

std::string Hex(std::string_view bytes) {
  std::string out = "\"";
  for (const char byte : bytes) {
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(byte) >> 4]);
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(byte) & 15]);
  }
  return out + "\"";
}

std::string Encoded(const mla::Tokenizer& tokenizer, const std::string& line, mla::Tokenizer::AddedTokens added) {
  const auto parsed = mla::io::ParseJson(line, "stdin");
  if (!parsed.ok()) return Failed(parsed.error());
  if (!parsed->is_string()) return Failed({"stdin: expected a string, found " + parsed->Describe()});
  const auto ids = tokenizer.Encode(parsed->string(), added);
  if (!ids.ok()) return Failed(ids.error());
  std::string out = "{\"ids\": [";
  for (std::size_t i = 0; i < ids->size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string((*ids)[i]);
  return out + "], \"decoded\": " + Hex(tokenizer.Decode(*ids, true)) + "}";
}

std::string Decoded(const mla::Tokenizer& tokenizer, const std::string& line) {
  const auto parsed = mla::io::ParseJson(line, "stdin");
  if (!parsed.ok()) return Failed(parsed.error());
  std::vector<std::int32_t> ids;
  for (const mla::io::JsonValue& item : parsed->items()) ids.push_back(static_cast<std::int32_t>(item.integer()));
  mla::StreamDecoder stream(tokenizer, true);
  std::string streamed;
  for (const std::int32_t id : ids) streamed += stream.Push(id);
  streamed += stream.Finish();
  return "{\"all\": " + Hex(tokenizer.Decode(ids, true)) + ", \"plain\": " + Hex(tokenizer.Decode(ids)) +
         ", \"streamed\": " + Hex(streamed) + "}";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[2] : "parse";
  if (argc < 2 || argc > 3 || (mode != "text" && mode != "parse" && mode != "decode")) {
    std::fputs("usage: text_encode_tool DIR [text|parse|decode]\n", stderr);
    return 2;
  }
  const auto tokenizer = mla::Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const auto added = mode == "text" ? mla::Tokenizer::AddedTokens::kAsText : mla::Tokenizer::AddedTokens::kParse;
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << (mode == "decode" ? Decoded(*tokenizer, line) : Encoded(*tokenizer, line, added)) << "\n";
  }
  return std::cout.flush() ? 0 : 1;
}
