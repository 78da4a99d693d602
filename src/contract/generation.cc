#include "contract/generation.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "contract/fields.h"
#include "io/file.h"
#include "io/json.h"
#include "io/quote.h"

namespace mla::contract {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{16} << 20;
constexpr std::int64_t kMaxTopK = std::int64_t{1} << 31;
constexpr NumberRange kAboveZero = {0, false, 100, "a number above 0, at most 100"};
constexpr NumberRange kTopP = {0, false, 1, "a number above 0, at most 1"};
constexpr NumberRange kMinP = {0, true, 1, "a number from 0 to 1"};

}  // namespace

Result<GenerationConfig> ParseGenerationConfig(std::string_view json_text, std::int64_t vocab_size,
                                               std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue json, io::ParseJson(json_text, where));
  GenerationConfig config;
  if (!json.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, json.Describe())};
  Fields fields(json, std::string(where));
  config.eos_token_ids = fields.OptionalIds("eos_token_id", vocab_size);
  config.bos_token_id = fields.OptionalInt("bos_token_id", 0, vocab_size - 1);
  config.do_sample = fields.OptionalBool("do_sample").value_or(false);
  config.temperature = fields.OptionalNumber("temperature", kAboveZero);
  config.top_k = fields.OptionalInt("top_k", 0, kMaxTopK);
  config.top_p = fields.OptionalNumber("top_p", kTopP);
  config.min_p = fields.OptionalNumber("min_p", kMinP);
  config.repetition_penalty = fields.OptionalNumber("repetition_penalty", kAboveZero);
  if (!fields.ok()) return fields.error();
  return config;
}

Result<GenerationConfig> LoadGenerationConfig(const std::string& dir, std::int64_t vocab_size) {
  const std::string path = (std::filesystem::path(dir) / "generation_config.json").string();
  std::error_code error;
  // A link that leads nowhere is a fault, not an absent file.
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found) {
    return GenerationConfig();
  }
  MLA_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path, kMaxFileBytes));
  return ParseGenerationConfig(text, vocab_size, io::Printable(path));
}

}  // namespace mla::contract
