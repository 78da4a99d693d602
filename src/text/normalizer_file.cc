#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/quote.h"
#include "text/tokenizer_file.h"
#include "text/utf8.h"

namespace mla::text {
namespace {

// Published files prepend and insert one character. Bounded, so that a hostile file can't make texts explode.
constexpr std::size_t kLongestInsertion = 16;
constexpr std::size_t kMaxSteps = 8;

// {"type": "Replace", "pattern": {"String": ...}, "content": ...}
Result<Replacement> ParseReplace(const io::JsonValue& entry, std::string_view where, const std::string& path) {
  MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type", "pattern", "content"}, where, path));
  const io::JsonValue* pattern = entry.Find("pattern");
  const io::JsonValue* from = pattern != nullptr ? pattern->Find("String") : nullptr;
  if (from == nullptr || !from->is_string() || from->string().empty() || pattern->members().size() != 1) {
    return Mismatch(where, path + ".pattern", "{\"String\": a string that is not empty}", pattern);
  }
  MLA_ASSIGN_OR_RETURN(std::string to, StringMember(entry, "content", where, path));
  return Replacement{std::string(from->string()), std::move(to)};
}

// The entries of a Sequence's list, or the section itself where it is none; each with its path.
using Steps = std::vector<std::pair<const io::JsonValue*, std::string>>;
Result<Steps> StepsOf(const io::JsonValue& section, std::string_view list, std::string_view where,
                      const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const std::string type, TypeOf(section, where, path));
  if (type != "Sequence") return Steps{{&section, path}};
  MLA_RETURN_IF_ERROR(OnlyMembers(section, {"type", list}, where, path));
  const io::JsonValue* items = section.Find(list);
  if (items == nullptr || !items->is_array() || items->items().size() > kMaxSteps) {
    return Mismatch(where, fmt::format("{}.{}", path, list), fmt::format("an array of at most {}", kMaxSteps), items);
  }
  Steps steps;
  for (std::size_t i = 0; i < items->items().size(); ++i) {
    steps.emplace_back(&items->items()[i], fmt::format("{}.{}[{}]", path, list, i));
  }
  return steps;
}

Status CheckInsertion(const std::string& text, std::string_view where, const std::string& field) {
  if (text.size() <= kLongestInsertion) return {};
  return Error{
      fmt::format("{}: {}: expected at most {} bytes, found {}", where, field, kLongestInsertion, text.size())};
}

}  // namespace

Result<Normalizer> ParseNormalizer(const io::JsonValue* section, std::string_view where) {
  Normalizer normalizer;
  if (IsNull(section)) return normalizer;
  MLA_ASSIGN_OR_RETURN(const Steps steps, StepsOf(*section, "normalizers", where, "normalizer"));
  for (const auto& [entry, path] : steps) {
    MLA_ASSIGN_OR_RETURN(const std::string type, TypeOf(*entry, where, path));
    if (type == "Prepend") {
      MLA_RETURN_IF_ERROR(OnlyMembers(*entry, {"type", "prepend"}, where, path));
      MLA_ASSIGN_OR_RETURN(std::string prefix, StringMember(*entry, "prepend", where, path));
      MLA_RETURN_IF_ERROR(CheckInsertion(prefix, where, path + ".prepend"));
      normalizer.AddPrepend(std::move(prefix));
    } else if (type == "Replace") {
      MLA_ASSIGN_OR_RETURN(Replacement replacement, ParseReplace(*entry, where, path));
      MLA_RETURN_IF_ERROR(CheckInsertion(replacement.to, where, path + ".content"));
      normalizer.AddReplace(std::move(replacement));
    } else {
      return Error{fmt::format("{}: {}.type: expected Prepend, Replace or a Sequence of them, found {}", where, path,
                               io::Quoted(type))};
    }
  }
  return normalizer;
}

Result<MetaspaceSection> ParseMetaspace(const io::JsonValue& entry, std::string_view where, std::string_view path) {
  // str_rep repeats the replacement in old files.
  MLA_RETURN_IF_ERROR(OnlyMembers(
      entry, {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}, where, path));
  MetaspaceSection section;
  Metaspace& metaspace = section.metaspace;
  MLA_ASSIGN_OR_RETURN(metaspace.symbol, StringMember(entry, "replacement", where, path));
  if (metaspace.symbol.empty() || NextUtf8(metaspace.symbol).bytes != metaspace.symbol.size()) {
    return Mismatch(where, fmt::format("{}.replacement", path), "one character", entry.Find("replacement"));
  }
  MLA_ASSIGN_OR_RETURN(section.split, BoolMember(entry, "split", true, where, path));
  const io::JsonValue* scheme = entry.Find("prepend_scheme");
  if (scheme != nullptr) {
    static constexpr std::array<std::pair<std::string_view, Metaspace::Prepend>, 3> kSchemes = {
        {{"first", Metaspace::Prepend::kFirst},
         {"always", Metaspace::Prepend::kAlways},
         {"never", Metaspace::Prepend::kNever}}};
    const auto* known = std::find_if(kSchemes.begin(), kSchemes.end(), [scheme](const auto& named) {
      return scheme->is_string() && named.first == scheme->string();
    });
    if (known == kSchemes.end()) {
      return Mismatch(where, fmt::format("{}.prepend_scheme", path), "first, always or never", scheme);
    }
    metaspace.prepend = known->second;
  }
  // The older spelling: true says nothing, false agrees with "never" alone (as the tokenizers library holds).
  MLA_ASSIGN_OR_RETURN(const bool prefix, BoolMember(entry, "add_prefix_space", true, where, path));
  if (!prefix && metaspace.prepend != Metaspace::Prepend::kNever) {
    return Mismatch(where, fmt::format("{}.prepend_scheme", path), "\"never\" beside add_prefix_space false", scheme);
  }
  return section;
}

namespace {

Status ParseStrip(const io::JsonValue& entry, std::string_view where, const std::string& path, TokenDecoder& decoder) {
  MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type", "content", "start", "stop"}, where, path));
  MLA_ASSIGN_OR_RETURN(const std::string content, StringMember(entry, "content", where, path));
  if (content != " ") return Mismatch(where, path + ".content", "\" \"", entry.Find("content"));
  const io::JsonValue* start = entry.Find("start");
  if (start == nullptr || !start->is_int() || start->integer() < 0 || start->integer() > 1000) {
    return Mismatch(where, path + ".start", "a number from 0 to 1000", start);
  }
  const io::JsonValue* stop = entry.Find("stop");
  if (stop == nullptr || !stop->is_int() || stop->integer() != 0) return Mismatch(where, path + ".stop", "0", stop);
  decoder.strip_spaces = static_cast<std::int32_t>(start->integer());
  return {};
}

// Replace, then ByteFallback, Fuse and Strip, of which each may be left out, but Strip needs a Fuse before it: without
// one it would strip every token.
Status ParseStep(const io::JsonValue& entry, std::string_view where, const std::string& path, std::string& last,
                 TokenDecoder& decoder) {
  MLA_ASSIGN_OR_RETURN(const std::string type, TypeOf(entry, where, path));
  if (type == "Replace" && (last.empty() || last == "Replace")) {
    MLA_ASSIGN_OR_RETURN(Replacement replacement, ParseReplace(entry, where, path));
    if (replacement.to.size() > replacement.from.size()) {
      return Mismatch(where, path + ".content", "no more bytes than the pattern has", entry.Find("content"));
    }
    decoder.replacements.push_back(std::move(replacement));
  } else if (type == "ByteFallback" && (last.empty() || last == "Replace")) {
    MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type"}, where, path));
    decoder.byte_fallback = true;
  } else if (type == "Fuse" && last != "Fuse" && last != "Strip") {
    MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type"}, where, path));
  } else if (type == "Strip" && last == "Fuse") {
    MLA_RETURN_IF_ERROR(ParseStrip(entry, where, path, decoder));
  } else {
    return Error{fmt::format("{}: {}.type: expected Replace, ByteFallback, Fuse, Strip, in this order, found {}{}",
                             where, path, io::Quoted(type), last.empty() ? "" : " after " + last)};
  }
  last = type;
  return {};
}

}  // namespace

Result<TokenDecoder> ParseDecoder(const io::JsonValue* section, std::string_view where) {
  if (IsNull(section)) return Mismatch(where, "decoder", "a ByteLevel, a Metaspace or a Sequence", section);
  TokenDecoder decoder;
  MLA_ASSIGN_OR_RETURN(const std::string type, TypeOf(*section, where, "decoder"));
  if (type == "ByteLevel") {
    decoder.kind = TokenDecoder::Kind::kByteLevel;
    return decoder;
  }
  decoder.kind = TokenDecoder::Kind::kPieces;
  if (type == "Metaspace") {
    MLA_ASSIGN_OR_RETURN(const MetaspaceSection spaces, ParseMetaspace(*section, where, "decoder"));
    decoder.replacements.push_back({spaces.metaspace.symbol, " "});
    if (spaces.metaspace.prepend != Metaspace::Prepend::kNever) decoder.dropped_at_start = spaces.metaspace.symbol;
    return decoder;
  }
  if (type != "Sequence") {
    return Error{fmt::format("{}: decoder.type: expected ByteLevel, Metaspace or a Sequence, found {}", where,
                             io::Quoted(type))};
  }
  MLA_ASSIGN_OR_RETURN(const Steps steps, StepsOf(*section, "decoders", where, "decoder"));
  std::string last;
  for (const auto& [entry, path] : steps) MLA_RETURN_IF_ERROR(ParseStep(*entry, where, path, last, decoder));
  return decoder;
}

}  // namespace mla::text
