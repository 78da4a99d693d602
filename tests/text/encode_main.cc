// A tool for tools/tokenizer_vectors.py: encodes strings, so that another implementation's ids can be compared.
//
//   text_encode_tool DIR [text|parse]
//
// Reads one JSON string a line; writes one JSON object a line: {"ids": [...], "same": whether decoding gives the text
// back}, or {"error": "..."}.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>

#include "io/json.h"
#include "io/quote.h"
#include "mla/tokenizer.h"

namespace {

std::string Answer(const mla::Tokenizer& tokenizer, const std::string& line, mla::Tokenizer::AddedTokens added) {
  const auto failed = [](const mla::Error& error) { return "{\"error\": " + mla::io::JsonString(error.message) + "}"; };
  const auto parsed = mla::io::ParseJson(line, "stdin");
  if (!parsed.ok()) return failed(parsed.error());
  if (!parsed->is_string()) return failed({"stdin: expected a string, found " + parsed->Describe()});
  const auto ids = tokenizer.Encode(parsed->string, added);
  if (!ids.ok()) return failed(ids.error());
  std::string out = "{\"ids\": [";
  for (std::size_t i = 0; i < ids->size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string((*ids)[i]);
  const bool same = tokenizer.Decode(*ids, true) == parsed->string;
  return out + "], \"same\": " + (same ? "true" : "false") + "}";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view mode = argc == 3 ? argv[2] : "parse";
  if (argc < 2 || argc > 3 || (mode != "text" && mode != "parse")) {
    std::fputs("usage: text_encode_tool DIR [text|parse]\n", stderr);
    return 2;
  }
  const auto tokenizer = mla::Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const auto added = mode == "text" ? mla::Tokenizer::AddedTokens::kAsText : mla::Tokenizer::AddedTokens::kParse;
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) std::cout << Answer(*tokenizer, line, added) << "\n";
  return std::cout.flush() ? 0 : 1;
}
