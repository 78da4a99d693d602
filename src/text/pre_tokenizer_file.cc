#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/quote.h"
#include "text/pattern.h"
#include "text/tokenizer_file.h"

namespace mla::text {
namespace {

// The pattern of GPT-2, which ByteLevel applies on its own where use_regex is true.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Reader {
 public:
  Reader(bool of_bytes, std::string_view where) : where_(where), of_bytes_(of_bytes) {}

  // Entries of a Sequence come one after the other; a Sequence in a Sequence is refused.
  Status Entry(const io::JsonValue& entry, const std::string& path, bool nested) {
    MLA_ASSIGN_OR_RETURN(const std::string type, TypeOf(entry, where_, path));
    if (byte_level_) {
      return Error{fmt::format("{}: {}: expected ByteLevel as the last pre-tokenizer, found {} after it", where_, path,
                               io::Quoted(type))};
    }
    if (type == "Split") return Split(entry, path);
    if (type == "Digits") return Digits(entry, path);
    if (type == "ByteLevel" && of_bytes_) return ByteLevel(entry, path);
    if (type == "Sequence" && !nested) return Sequence(entry, path);
    if (type == "Metaspace" && !of_bytes_ && !nested) return Spaces(entry, path);
    return Error{fmt::format("{}: {}.type: expected Split, Digits{}{}, found {}", where_, path,
                             of_bytes_ ? ", ByteLevel" : (nested ? "" : ", Metaspace"),
                             nested ? "" : " or a Sequence of them", io::Quoted(type))};
  }

  Result<PreTokenizer> Finish() {
    if (of_bytes_ && !byte_level_) {
      return Error{
          fmt::format("{}: pre_tokenizer: expected a ByteLevel (the vocabulary is of bytes), found none", where_)};
    }
    return std::move(result_);
  }

 private:
  Status Sequence(const io::JsonValue& entry, const std::string& path) {
    MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type", "pretokenizers"}, where_, path));
    const io::JsonValue* items = entry.Find("pretokenizers");
    constexpr std::size_t kMostStages = 64;  // each is a pass over the text
    if (items == nullptr || !items->is_array() || items->items().size() > kMostStages) {
      return Mismatch(where_, path + ".pretokenizers", fmt::format("an array of at most {}", kMostStages), items);
    }
    for (std::size_t i = 0; i < items->items().size(); ++i) {
      MLA_RETURN_IF_ERROR(Entry(items->items()[i], fmt::format("{}.pretokenizers[{}]", path, i), true));
    }
    return {};
  }

  Status Split(const io::JsonValue& entry, const std::string& path) {
    MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type", "pattern", "behavior", "invert"}, where_, path));
    const io::JsonValue* pattern = entry.Find("pattern");
    const bool one = pattern != nullptr && pattern->is_object() && pattern->members().size() == 1;
    const io::JsonValue* regex = one ? pattern->Find("Regex") : nullptr;
    const io::JsonValue* literal = one ? pattern->Find("String") : nullptr;
    const io::JsonValue* text = regex != nullptr ? regex : literal;
    if (text == nullptr || !text->is_string()) {
      return Mismatch(where_, path + ".pattern", "{\"Regex\": a string} or {\"String\": a string}", pattern);
    }
    MLA_ASSIGN_OR_RETURN(const SplitBehavior behavior, Behavior(entry.Find("behavior"), path + ".behavior"));
    MLA_ASSIGN_OR_RETURN(const bool invert, BoolMember(entry, "invert", std::nullopt, where_, path));
    return AddStage(text->string(), regex != nullptr, behavior, invert, path);
  }

  // A digit is any character of category N.
  Status Digits(const io::JsonValue& entry, const std::string& path) {
    MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type", "individual_digits"}, where_, path));
    MLA_ASSIGN_OR_RETURN(const bool individual, BoolMember(entry, "individual_digits", std::nullopt, where_, path));
    return AddStage("\\p{N}", true, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false, path);
  }

  Status ByteLevel(const io::JsonValue& entry, const std::string& path) {
    // trim_offsets is about offsets alone, which nobody asks for here.
    MLA_RETURN_IF_ERROR(OnlyMembers(entry, {"type", "add_prefix_space", "trim_offsets", "use_regex"}, where_, path));
    MLA_ASSIGN_OR_RETURN(const bool prefix, BoolMember(entry, "add_prefix_space", std::nullopt, where_, path));
    MLA_ASSIGN_OR_RETURN(const bool use_regex, BoolMember(entry, "use_regex", true, where_, path));
    if (prefix) result_.AddPrefixSpace();
    if (use_regex) MLA_RETURN_IF_ERROR(AddStage(kGpt2Pattern, true, SplitBehavior::kIsolated, false, path));
    byte_level_ = true;
    return {};
  }

  Status Spaces(const io::JsonValue& entry, const std::string& path) {
    MLA_ASSIGN_OR_RETURN(const MetaspaceSection section, ParseMetaspace(entry, where_, path));
    result_.SetMetaspace(section.metaspace);
    if (!section.split) return {};
    return AddStage(section.metaspace.symbol, false, SplitBehavior::kMergedWithNext, false, path);
  }

  Result<SplitBehavior> Behavior(const io::JsonValue* value, const std::string& path) {
    static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
        {"Isolated", SplitBehavior::kIsolated},
        {"Removed", SplitBehavior::kRemoved},
        {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
        {"MergedWithNext", SplitBehavior::kMergedWithNext},
        {"Contiguous", SplitBehavior::kContiguous},
    }};
    if (value != nullptr && value->is_string()) {
      for (const auto& [name, behavior] : kNames) {
        if (value->string() == name) return behavior;
      }
    }
    return Mismatch(where_, path, "Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous", value);
  }

  Status AddStage(std::string_view pattern, bool is_regex, SplitBehavior behavior, bool invert,
                  const std::string& path) {
    Result<std::string> pcre = is_regex ? TranslatePattern(pattern) : Result<std::string>(TranslateLiteral(pattern));
    const auto fail = [&](const Error& error) {
      return Error{fmt::format("{}: {}: the pattern {}: {}", where_, path, io::Quoted(pattern, 80), error.message)};
    };
    if (!pcre.ok()) return fail(pcre.error());
    Result<Regex> regex = Regex::Compile(*pcre, pattern);
    if (!regex.ok()) return fail(regex.error());
    result_.Add({std::move(regex).value(), behavior, invert, path});
    return {};
  }

  std::string_view where_;
  PreTokenizer result_;
  bool of_bytes_;  // the vocabulary is, so that a ByteLevel ends the list
  bool byte_level_ = false;
};

}  // namespace

Result<PreTokenizer> ParsePreTokenizer(const io::JsonValue* section, bool byte_level, std::string_view where) {
  Reader reader(byte_level, where);
  if (!IsNull(section)) MLA_RETURN_IF_ERROR(reader.Entry(*section, "pre_tokenizer", false));
  return reader.Finish();
}

}  // namespace mla::text
