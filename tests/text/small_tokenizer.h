// A small tokenizer.json, with places to put other text in.
#ifndef MLA_TESTS_TEXT_SMALL_TOKENIZER_H_
#define MLA_TESTS_TEXT_SMALL_TOKENIZER_H_

#include <string>
#include <string_view>
#include <vector>

#include "io/quote.h"
#include "mla/tokenizer.h"
#include "testing/temp_dir.h"

namespace mla {

inline constexpr auto kParse = Tokenizer::AddedTokens::kParse;
inline constexpr auto kText = Tokenizer::AddedTokens::kAsText;

}  // namespace mla

namespace mla::testing {

// GPT-2's alphabet, worked out from its definition and not from the library.
inline std::string ByteLetter(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  int code_point = byte;
  if (!printable(byte)) {
    code_point = 256;
    for (int b = 0; b < byte; ++b) code_point += printable(b) ? 0 : 1;
  }
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 0x3F))};
}

inline std::string ByteLetters(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) spelled += ByteLetter(static_cast<unsigned char>(byte));
  return spelled;
}

inline constexpr std::string_view kByteLevel =
    R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false})";

// Id b is byte b; words (given as bytes) have the ids from 256 on.
struct SmallTokenizer {
  std::vector<std::string> words;
  std::string merges = "[]";
  std::string pre_tokenizer = std::string(kByteLevel);
  std::string added = "[]";
  std::string model_fields;  // like `"ignore_merges": true, `
  std::string top_fields;    // like `"normalizer": null, `

  std::string Json() const {
    std::string vocab;
    for (int byte = 0; byte < 256; ++byte) {
      vocab += (byte == 0 ? "" : ", ") + io::JsonString(ByteLetter(byte)) + ": " + std::to_string(byte);
    }
    for (std::size_t i = 0; i < words.size(); ++i) {
      vocab += ", " + io::JsonString(ByteLetters(words[i])) + ": " + std::to_string(256 + i);
    }
    return "{" + top_fields + "\"added_tokens\": " + added + ", \"pre_tokenizer\": " + pre_tokenizer +
           ", \"decoder\": " + std::string(kByteLevel) + ", \"model\": {\"type\": \"BPE\", " + model_fields +
           "\"vocab\": {" + vocab + "}, \"merges\": " + merges + "}}";
  }

  Result<Tokenizer> Load(std::string_view config = {}) const { return LoadText(Json(), config); }

  static Result<Tokenizer> LoadText(std::string_view json, std::string_view config = {}) {
    const TempDir dir;
    dir.Write("tokenizer.json", json);
    if (!config.empty()) dir.Write("tokenizer_config.json", config);
    return Tokenizer::Load(dir.path());
  }
};

inline std::string Added(std::string_view content, int id, bool special, bool normalized = false) {
  const auto word = [](bool value) { return std::string(value ? "true" : "false"); };
  return "{\"id\": " + std::to_string(id) + ", \"content\": " + io::JsonString(content) +
         ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": " + word(normalized) +
         ", \"special\": " + word(special) + "}";
}

inline std::string Split(std::string_view regex, std::string_view behavior = "Isolated", bool invert = false) {
  return "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": " +
         io::JsonString(regex) + "}, \"behavior\": \"" + std::string(behavior) +
         "\", \"invert\": " + (invert ? "true" : "false") + "}, " + std::string(kByteLevel) + "]}";
}

}  // namespace mla::testing

#endif  // MLA_TESTS_TEXT_SMALL_TOKENIZER_H_
