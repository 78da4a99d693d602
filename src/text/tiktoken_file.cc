#include "text/tiktoken_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "io/file.h"
#include "io/quote.h"
#include "text/pattern.h"
#include "text/regex.h"

namespace mla::text {
namespace {

constexpr std::int64_t kMaxFileBytes = std::int64_t{64} << 20;

// The alternatives of the pattern, in order, as Moonshot's tokenization_kimi.py and tokenization_moonshot.py write
// them: moonshotai/Kimi-K2-Instruct and moonshotai/Moonlight-16B-A3B on Hugging Face.
constexpr std::array<std::string_view, 8> kAlternatives = {
    R"([\p{Han}]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)",
    R"(\p{N}{1,3})",
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*)",
    R"(\s*[\r\n]+)",
    R"(\s+(?!\S))",
    R"(\s+)"};
// The same code: so many ids after the vocabulary are special tokens, those without a name too.
// tokenization_moonshot.py has two more; they are taken where the config names them.
constexpr std::int32_t kSpecialIds = 256;
constexpr std::int32_t kMoreSpecialIds = 2;

std::optional<unsigned> Base64Digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return std::nullopt;
}

// Nothing where the text is not canonical base64 (RFC 4648, section 4).
std::optional<std::string> FromBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  text.remove_suffix(padding);
  std::string bytes;
  unsigned bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::optional<unsigned> digit = Base64Digit(c);
    if (!digit) return std::nullopt;
    bits = (bits << 6 | *digit) & 0xFFFF;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xFF));
  }
  if ((bits & ((1U << held) - 1)) != 0) return std::nullopt;
  return bytes;
}

std::optional<std::int32_t> FromDecimal(std::string_view text) {
  if (text.empty() || text.size() > 9 || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  std::int32_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value < kMaxTokenId ? std::optional<std::int32_t>(value) : std::nullopt;
}

// By a key, of the entries the first in the file that equals one before it, and that one; nothing where
// all differ. By sorting: hashes of hostile tokens can be made to collide, and a table as long as a hostile rank says
// takes more memory than its file.
template <class Key>
std::optional<std::pair<std::size_t, std::size_t>> FirstTwice(std::span<const BpeEntry> entries, Key key) {
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_pair(key(entries[a]), a) < std::make_pair(key(entries[b]), b);
  });
  std::optional<std::pair<std::size_t, std::size_t>> first;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (key(entries[order[i - 1]]) != key(entries[order[i]]) || (first && first->second <= order[i])) continue;
    first = {order[i - 1], order[i]};
  }
  return first;
}

// Each token and each rank once, and the ranks without a gap. `lines`: where each entry stands.
Status CheckRanks(std::span<const BpeEntry> entries, std::span<const std::uint32_t> lines, std::string_view where) {
  const auto rank = FirstTwice(entries, [](const BpeEntry& entry) { return entry.id; });
  const auto token = FirstTwice(entries, [](const BpeEntry& entry) { return std::string_view(entry.token); });
  const bool is_token = token && (!rank || token->second <= rank->second);
  if (const auto twice = is_token ? token : rank) {
    return Error{fmt::format(
        "{}: line {}: expected each token and each rank once, found {} of line {} again", where, lines[twice->second],
        is_token ? "the token" : fmt::format("rank {}", entries[twice->second].id), lines[twice->first])};
  }
  std::vector<bool> seen(entries.size());
  std::int32_t highest = -1;
  for (const BpeEntry& entry : entries) {
    highest = std::max(highest, entry.id);
    if (static_cast<std::size_t>(entry.id) < seen.size()) seen[static_cast<std::size_t>(entry.id)] = true;
  }
  const auto gap = std::find(seen.begin(), seen.end(), false);
  if (gap == seen.end()) return {};
  return Error{fmt::format("{}: expected the ranks 0 to {}, found none of {}", where, highest, gap - seen.begin())};
}

}  // namespace

Result<std::vector<BpeEntry>> ParseTiktoken(std::string_view text, std::string_view where) {
  std::vector<BpeEntry> entries;
  std::vector<std::uint32_t> lines;
  // A line has 6 bytes at the least; a text of shorter ones is refused at the first of them.
  const auto most = std::min<std::size_t>(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1,
                                          text.size() / 6 + 1);
  entries.reserve(most);
  lines.reserve(most);
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.empty()) continue;
    const std::size_t space = std::min(row.find(' '), row.size());
    std::optional<std::string> token = FromBase64(row.substr(0, space));
    const auto rank = FromDecimal(row.substr(std::min(space + 1, row.size())));
    if (!token || token->empty() || !rank) {
      return Error{fmt::format("{}: line {}: expected a token in base64, a space and a rank below {}, found {}", where,
                               line, kMaxTokenId, io::Quoted(row))};
    }
    entries.push_back({std::move(*token), *rank});
    lines.push_back(line);
  }
  MLA_RETURN_IF_ERROR(CheckRanks(entries, lines, where));
  return entries;
}

namespace {

// auto_map's "AutoTokenizer": a name, or a list that begins with one. "REPOSITORY--" may stand before it.
std::string_view CodeOf(const io::JsonValue& config) {
  const io::JsonValue* map = config.Find("auto_map");
  const io::JsonValue* code = map != nullptr ? map->Find("AutoTokenizer") : nullptr;
  if (code != nullptr && code->is_array() && !code->items().empty()) code = &code->items()[0];
  if (code == nullptr || !code->is_string()) return {};
  std::string_view name = code->string();
  const std::size_t dashes = name.rfind("--");
  return dashes == std::string_view::npos ? name : name.substr(dashes + 2);
}

// Whether the code's list is kAlternatives: these strings, in this order, with nothing between them but what separates
// strings of a list.
Status CheckPattern(std::string_view code, std::string_view where) {
  const std::size_t begin = code.find(kAlternatives[0]);
  std::size_t at = begin;
  for (const std::string_view alternative : kAlternatives) {
    const std::size_t found = at == std::string_view::npos ? at : code.find(alternative, at);
    // A separator is white space, quotes, a comma, and Python's prefix of raw strings.
    if (found == std::string_view::npos ||
        code.substr(at, found - at).find_first_not_of(" \t\r\n\"',r") != std::string_view::npos) {
      return Error{fmt::format("{}: expected the split pattern of Kimi K2, found no {} in its place", where,
                               io::Quoted(alternative, 120))};
    }
    at = found + alternative.size();
  }
  const std::size_t end = code.find_first_not_of(" \t\r\n\"',", at);
  if (end != std::string_view::npos && code[end] == ']') return {};
  return Error{fmt::format("{}: expected the split pattern of Kimi K2, found more behind its last alternative", where)};
}

// Whether this is Moonshot's class: by its name, by its code's name where the config has one, and by that code where
// the folder has it.
Status CheckClass(const std::string& dir, const io::JsonValue* config) {
  const std::string where = io::Printable(dir + "/tokenizer_config.json");
  const io::JsonValue* type = config != nullptr ? config->Find("tokenizer_class") : nullptr;
  if (type == nullptr || !type->is_string() || type->string() != "TikTokenTokenizer") {
    return Mismatch(where, "tokenizer_class",
                    "\"TikTokenTokenizer\" (tiktoken.model does not say how texts are split, and that is known for "
                    "this class alone)",
                    type);
  }
  const std::string_view code = CodeOf(*config);
  if (code.empty()) return {};
  if (code != "tokenization_kimi.TikTokenTokenizer" && code != "tokenization_moonshot.TikTokenTokenizer") {
    return Error{
        fmt::format("{}: auto_map.AutoTokenizer: expected tokenization_kimi.TikTokenTokenizer or "
                    "tokenization_moonshot.TikTokenTokenizer, found {}",
                    where, io::Quoted(code, 80))};
  }
  const std::string path = dir + "/" + std::string(code.substr(0, code.find('.'))) + ".py";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  MLA_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path, std::int64_t{1} << 20));
  return CheckPattern(text, io::Printable(path));
}

// One entry of added_tokens_decoder: its id is the key.
Result<AddedToken> ParseSpecial(std::string_view key, const io::JsonValue& value, std::int32_t first,
                                std::string_view where) {
  const std::string path = "added_tokens_decoder." + io::Printable(key, 40);
  const std::optional<std::int32_t> id = FromDecimal(key);
  const std::int32_t last = first + kSpecialIds + kMoreSpecialIds - 1;
  if (!id || *id < first || *id > last) {
    return Error{fmt::format("{}: {}: expected an id from {} to {}, the {} after the vocabulary of tiktoken.model",
                             where, path, first, last, kSpecialIds + kMoreSpecialIds)};
  }
  if (!value.is_object()) return Mismatch(where, path, "an object", &value);
  AddedToken token;
  token.id = *id;
  MLA_ASSIGN_OR_RETURN(token.content, StringMember(value, "content", where, path));
  if (token.content.empty() || token.content.size() > 4096) {
    return Mismatch(where, path + ".content", "1 to 4096 bytes", value.Find("content"));
  }
  // The encoder of this class knows none of lstrip, rstrip, single_word and normalized.
  MLA_ASSIGN_OR_RETURN(token.special, BoolMember(value, "special", true, where, path));
  return token;
}

// All special ids; the config names some of them.
Result<std::vector<AddedToken>> SpecialTokens(const io::JsonValue& config, std::int32_t first, std::string_view where) {
  std::vector<AddedToken> tokens(kSpecialIds);
  for (std::int32_t i = 0; i < kSpecialIds; ++i) {
    const std::int32_t id = first + i;
    tokens[static_cast<std::size_t>(i)] = {fmt::format("<|reserved_token_{}|>", id), id, true};
  }
  const io::JsonValue* named = config.Find("added_tokens_decoder");
  if (named == nullptr || !named->is_object()) return Mismatch(where, "added_tokens_decoder", "an object", named);
  for (const auto& [key, value] : named->members()) {
    MLA_ASSIGN_OR_RETURN(AddedToken token, ParseSpecial(key, value, first, where));
    const auto at = static_cast<std::size_t>(token.id - first);
    if (at < tokens.size()) {
      tokens[at] = std::move(token);
    } else {
      tokens.push_back(std::move(token));
    }
  }
  std::vector<const AddedToken*> sorted;
  sorted.reserve(tokens.size());
  for (const AddedToken& token : tokens) sorted.push_back(&token);
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->content < b->content; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (!sorted[i]->content.starts_with(sorted[i - 1]->content)) continue;
    return Error{
        fmt::format("{}: added_tokens_decoder: expected no content that another begins with (tiktoken takes "
                    "either), found {} and {}",
                    where, io::Quoted(sorted[i - 1]->content), io::Quoted(sorted[i]->content))};
  }
  return tokens;
}

Result<PreTokenizer> KimiPreTokenizer() {
  const std::string pattern = fmt::format("{}", fmt::join(kAlternatives, "|"));
  MLA_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  MLA_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(translated, pattern));
  PreTokenizer pre_tokenizer;
  pre_tokenizer.Add({std::move(regex), SplitBehavior::kIsolated, false, "the pattern of Kimi K2"});
  return pre_tokenizer;
}

}  // namespace

Result<TokenizerFile> ReadTiktokenFile(const std::string& dir, const io::JsonValue* config) {
  MLA_RETURN_IF_ERROR(CheckClass(dir, config));
  const std::string path = dir + "/tiktoken.model";
  const std::string where = io::Printable(path);
  MLA_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path, kMaxFileBytes));
  MLA_ASSIGN_OR_RETURN(std::vector<BpeEntry> entries, ParseTiktoken(text, where));
  const auto first = static_cast<std::int32_t>(entries.size());
  MLA_ASSIGN_OR_RETURN(Bpe bpe, Bpe::MakeRanked(std::move(entries), where));
  MLA_ASSIGN_OR_RETURN(std::vector<AddedToken> added,
                       SpecialTokens(*config, first, io::Printable(dir + "/tokenizer_config.json")));
  MLA_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, KimiPreTokenizer());
  AddedTokenFinder first_pass(added);
  return TokenizerFile{std::move(bpe), std::move(added),         std::move(first_pass), AddedTokenFinder({}),
                       Normalizer(),   std::move(pre_tokenizer), TokenDecoder(),        std::nullopt};
}

}  // namespace mla::text
