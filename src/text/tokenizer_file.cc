#include "text/tokenizer_file.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "io/quote.h"

namespace mla::text {

Error Mismatch(std::string_view where, std::string_view field, std::string_view expected, const io::JsonValue* found) {
  return Error{fmt::format("{}: {}: expected {}, found {}", where, field, expected,
                           found == nullptr ? "nothing" : found->Describe())};
}

bool IsNull(const io::JsonValue* value) { return value == nullptr || value->is_null(); }

Result<bool> BoolMember(const io::JsonValue& object, std::string_view key, std::optional<bool> fallback,
                        std::string_view where, std::string_view path) {
  const io::JsonValue* value = object.Find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_bool()) {
    return Mismatch(where, fmt::format("{}.{}", path, key), "true or false", value);
  }
  return value->boolean();
}

Status OnlyMembers(const io::JsonValue& object, std::initializer_list<std::string_view> known, std::string_view where,
                   std::string_view path) {
  for (const auto& [key, value] : object.members()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Error{fmt::format("{}: {}{}: expected only {}, found {} as well", where, path,
                               path.empty() ? "top level" : "", fmt::join(known, ", "), io::Quoted(key))};
    }
  }
  return {};
}

Result<std::string> StringMember(const io::JsonValue& object, std::string_view key, std::string_view where,
                                 std::string_view path) {
  const io::JsonValue* value = object.Find(key);
  if (value == nullptr || !value->is_string()) {
    return Mismatch(where, fmt::format("{}.{}", path, key), "a string", value);
  }
  return std::string(value->string());
}

Result<std::string> TypeOf(const io::JsonValue& object, std::string_view where, std::string_view path) {
  if (!object.is_object()) return Mismatch(where, path, "an object", &object);
  return StringMember(object, "type", where, path);
}

namespace {

Result<std::int32_t> ParseId(const io::JsonValue* value, std::string_view where, std::string_view field) {
  if (value == nullptr || !value->is_int() || value->integer() < 0 || value->integer() >= kMaxTokenId) {
    return Mismatch(where, field, fmt::format("an id from 0 to {}", kMaxTokenId - 1), value);
  }
  return static_cast<std::int32_t>(value->integer());
}

Result<std::vector<BpeEntry>> ParseVocab(const io::JsonValue* vocab, std::string_view where) {
  if (vocab == nullptr || !vocab->is_object()) return Mismatch(where, "model.vocab", "an object", vocab);
  std::vector<BpeEntry> entries;
  entries.reserve(vocab->members().size());
  for (const auto& [token, value] : vocab->members()) {
    auto id = ParseId(&value, where, "model.vocab");
    if (!id.ok()) return Error{fmt::format("{} at {}", id.error().message, io::Quoted(token))};
    entries.push_back({std::string(token), *id});
  }
  std::vector<const BpeEntry*> by_id;
  by_id.reserve(entries.size());
  for (const BpeEntry& entry : entries) by_id.push_back(&entry);
  std::sort(by_id.begin(), by_id.end(), [](const BpeEntry* a, const BpeEntry* b) { return a->id < b->id; });
  const auto twice = std::adjacent_find(by_id.begin(), by_id.end(),
                                        [](const BpeEntry* a, const BpeEntry* b) { return a->id == b->id; });
  if (twice != by_id.end()) {
    return Error{fmt::format("{}: model.vocab: expected each id once, found {} at {} and at {}", where, (*twice)->id,
                             io::Quoted(twice[0]->token), io::Quoted(twice[1]->token))};
  }
  return entries;
}

// A merge is "a b", or ["a", "b"]: one way throughout a file.
Result<std::vector<Bpe::Merge>> ParseMerges(const io::JsonValue* merges, std::string_view where) {
  if (merges == nullptr || !merges->is_array()) return Mismatch(where, "model.merges", "an array", merges);
  std::vector<Bpe::Merge> result;
  result.reserve(merges->items().size());
  const bool pairs = !merges->items().empty() && merges->items()[0].is_array();
  for (std::size_t i = 0; i < merges->items().size(); ++i) {
    const io::JsonValue& item = merges->items()[i];
    const auto fail = [&](std::string_view expected) {
      return Mismatch(where, fmt::format("model.merges[{}]", i), expected, &item);
    };
    if (pairs) {
      const bool ok =
          item.is_array() && item.items().size() == 2 && item.items()[0].is_string() && item.items()[1].is_string();
      if (!ok) return fail("two strings");
      result.emplace_back(item.items()[0].string(), item.items()[1].string());
      continue;
    }
    if (!item.is_string()) return fail("a string like \"a b\"");
    const std::string_view text = item.string();
    if (text.starts_with("#version")) continue;  // the heading of an old merges file, skipped there too
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return fail("two parts with one space between");
    }
    result.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return result;
}

Status CheckModelFields(const io::JsonValue* model, std::string_view where) {
  if (model == nullptr || !model->is_object()) return Mismatch(where, "model", "an object", model);
  const io::JsonValue* type = model->Find("type");
  if (type != nullptr && (!type->is_string() || type->string() != "BPE"))
    return Mismatch(where, "model.type", "\"BPE\"", type);
  MLA_RETURN_IF_ERROR(OnlyMembers(*model,
                                  {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                                   "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"},
                                  where, "model"));
  const io::JsonValue* dropout = model->Find("dropout");
  if (!IsNull(dropout) && !(dropout->is_number() && dropout->number() == 0)) {
    return Mismatch(where, "model.dropout", "null", dropout);
  }
  const io::JsonValue* unk = model->Find("unk_token");
  if (!IsNull(unk) && !unk->is_string()) return Mismatch(where, "model.unk_token", "null or a string", unk);
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const io::JsonValue* affix = model->Find(key);
    if (!IsNull(affix) && !(affix->is_string() && affix->string().empty())) {
      return Mismatch(where, fmt::format("model.{}", key), "null or \"\"", affix);
    }
  }
  return {};
}

Result<Bpe> ParseModel(const io::JsonValue* model, bool byte_level, std::string_view where) {
  MLA_RETURN_IF_ERROR(CheckModelFields(model, where));
  Bpe::UnknownCharacters unknown;
  MLA_ASSIGN_OR_RETURN(unknown.as_bytes, BoolMember(*model, "byte_fallback", false, where, "model"));
  MLA_ASSIGN_OR_RETURN(unknown.fuse, BoolMember(*model, "fuse_unk", false, where, "model"));
  if (byte_level && unknown.as_bytes) {
    return Mismatch(where, "model.byte_fallback", "false with a ByteLevel decoder", model->Find("byte_fallback"));
  }
  if (!IsNull(model->Find("unk_token"))) unknown.token = model->Find("unk_token")->string();
  MLA_ASSIGN_OR_RETURN(const bool whole_words, BoolMember(*model, "ignore_merges", false, where, "model"));
  MLA_ASSIGN_OR_RETURN(std::vector<BpeEntry> vocab, ParseVocab(model->Find("vocab"), where));
  MLA_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> merges, ParseMerges(model->Find("merges"), where));
  // An unknown token is never used where every byte is in the vocabulary, which Make checks.
  if (byte_level) return Bpe::Make(std::move(vocab), merges, whole_words, where);
  return Bpe::MakeOfCharacters(std::move(vocab), merges, whole_words, unknown, where);
}

Result<AddedToken> ParseAddedToken(const io::JsonValue& item, std::string_view where, const std::string& path) {
  if (!item.is_object()) return Mismatch(where, path, "an object", &item);
  MLA_RETURN_IF_ERROR(
      OnlyMembers(item, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, where, path));
  AddedToken token;
  MLA_ASSIGN_OR_RETURN(token.id, ParseId(item.Find("id"), where, path + ".id"));
  const io::JsonValue* content = item.Find("content");
  if (content == nullptr || !content->is_string() || content->string().empty()) {
    return Mismatch(where, path + ".content", "a string that is not empty", content);
  }
  // Each position of a text is compared with each content: long ones would make that quadratic.
  constexpr std::size_t kLongestContent = 4096;
  if (content->string().size() > kLongestContent) {
    return Mismatch(where, path + ".content", "at most 4096 bytes", content);
  }
  token.content = content->string();
  MLA_ASSIGN_OR_RETURN(const bool single_word, BoolMember(item, "single_word", false, where, path));
  if (single_word) return Mismatch(where, path + ".single_word", "false", item.Find("single_word"));
  MLA_ASSIGN_OR_RETURN(token.lstrip, BoolMember(item, "lstrip", false, where, path));
  MLA_ASSIGN_OR_RETURN(token.rstrip, BoolMember(item, "rstrip", false, where, path));
  MLA_ASSIGN_OR_RETURN(token.special, BoolMember(item, "special", std::nullopt, where, path));
  MLA_ASSIGN_OR_RETURN(token.normalized, BoolMember(item, "normalized", std::nullopt, where, path));
  return token;
}

// Ids against each other and against the vocabulary: the same content must have the same id, and only it.
Status CheckAddedIds(const std::vector<AddedToken>& added, const Bpe& bpe, std::string_view where) {
  std::vector<std::pair<std::int32_t, std::string_view>> by_id;
  std::vector<std::string_view> contents;
  for (const AddedToken& token : added) {
    const std::int32_t known = bpe.Find(token.content);
    if (known >= 0 && known != token.id) {
      return Error{fmt::format("{}: added_tokens: expected id {} for {}, as in the vocabulary, found {}", where, known,
                               io::Quoted(token.content), token.id)};
    }
    by_id.emplace_back(token.id, token.content);
    contents.push_back(token.content);
  }
  std::sort(contents.begin(), contents.end());
  const auto content_twice = std::adjacent_find(contents.begin(), contents.end());
  if (content_twice != contents.end()) {
    return Error{
        fmt::format("{}: added_tokens: expected each content once, found {} twice", where, io::Quoted(*content_twice))};
  }
  for (const BpeEntry& entry : bpe.entries()) by_id.emplace_back(entry.id, entry.token);
  std::sort(by_id.begin(), by_id.end());
  const auto clash = std::adjacent_find(by_id.begin(), by_id.end(), [](const auto& a, const auto& b) {
    return a.first == b.first && a.second != b.second;
  });
  if (clash != by_id.end()) {
    return Error{fmt::format("{}: added_tokens: expected each id once, found {} at {} and at {}", where, clash->first,
                             io::Quoted(clash[0].second), io::Quoted(clash[1].second))};
  }
  return {};
}

Result<std::vector<AddedToken>> ParseAddedTokens(const io::JsonValue* section, const Bpe& bpe, std::string_view where) {
  std::vector<AddedToken> added;
  if (IsNull(section)) return added;
  if (!section->is_array()) return Mismatch(where, "added_tokens", "an array", section);
  for (std::size_t i = 0; i < section->items().size(); ++i) {
    MLA_ASSIGN_OR_RETURN(AddedToken token,
                         ParseAddedToken(section->items()[i], where, fmt::format("added_tokens[{}]", i)));
    added.push_back(std::move(token));
  }
  MLA_RETURN_IF_ERROR(CheckAddedIds(added, bpe, where));
  return added;
}

// A token that a template puts before the text: its name, and the id that the template's own table gives it.
struct Prefix {
  std::string token;
  std::int32_t id = 0;
};

Result<Prefix> ParsePrefix(const io::JsonValue& processor, std::string_view name, std::string_view where,
                           const std::string& path) {
  const io::JsonValue* table = processor.Find("special_tokens");
  const io::JsonValue* entry = table != nullptr ? table->Find(name) : nullptr;
  const io::JsonValue* ids = entry != nullptr ? entry->Find("ids") : nullptr;
  const std::string field = fmt::format("{}.special_tokens, of {}", path, io::Quoted(name));
  if (ids == nullptr || !ids->is_array() || ids->items().size() != 1)
    return Mismatch(where, field, "\"ids\" of one id", ids);
  MLA_ASSIGN_OR_RETURN(const std::int32_t id, ParseId(&ids->items()[0], where, field));
  return Prefix{std::string(name), id};
}

// The template for a single text: the text alone, or one token before it.
Result<std::optional<Prefix>> ParseTemplate(const io::JsonValue& processor, std::string_view where,
                                            const std::string& path) {
  const io::JsonValue* single = processor.Find("single");
  if (single == nullptr || !single->is_array()) return Mismatch(where, path + ".single", "an array", single);
  const auto token_of = [](const io::JsonValue& item) -> const io::JsonValue* {
    const io::JsonValue* special = item.Find("SpecialToken");
    const io::JsonValue* id = special != nullptr ? special->Find("id") : nullptr;
    return id != nullptr && id->is_string() ? id : nullptr;
  };
  const auto& items = single->items();
  const bool ends_with_text = !items.empty() && items.back().Find("Sequence") != nullptr;
  if (items.size() == 1 && ends_with_text) return std::optional<Prefix>();
  if (items.size() != 2 || !ends_with_text || token_of(items[0]) == nullptr) {
    return Mismatch(where, path + ".single", "the text, with at most one token before it and none after", single);
  }
  MLA_ASSIGN_OR_RETURN(const Prefix prefix, ParsePrefix(processor, token_of(items[0])->string(), where, path));
  return std::optional<Prefix>(prefix);
}

Result<std::optional<Prefix>> ParsePostProcessor(const io::JsonValue& processor, std::string_view where,
                                                 const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const std::string type, TypeOf(processor, where, path));
  if (type == "ByteLevel") return std::optional<Prefix>();  // offsets alone
  if (type == "TemplateProcessing") return ParseTemplate(processor, where, path);
  const io::JsonValue* items = processor.Find("processors");
  const bool nested = path.ends_with(']');
  if (type != "Sequence" || nested) {
    return Error{fmt::format("{}: {}.type: expected ByteLevel, TemplateProcessing{}, found {}", where, path,
                             nested ? "" : " or a Sequence of them", io::Quoted(type))};
  }
  if (items == nullptr || !items->is_array()) return Mismatch(where, path + ".processors", "an array", items);
  std::optional<Prefix> prefix;
  for (std::size_t i = 0; i < items->items().size(); ++i) {
    const std::string item_path = fmt::format("{}.processors[{}]", path, i);
    MLA_ASSIGN_OR_RETURN(const std::optional<Prefix> one, ParsePostProcessor(items->items()[i], where, item_path));
    if (one && prefix) return Error{fmt::format("{}: {}: expected one token before the text, found two", where, path)};
    if (one) prefix = one;
  }
  return prefix;
}

// White space that rstrip takes holds no other token: none begins with white space.
Status CheckStrips(const std::vector<AddedToken>& tokens, std::string_view where) {
  const auto strips = std::find_if(tokens.begin(), tokens.end(), [](const AddedToken& token) { return token.rstrip; });
  const auto space = std::find_if(tokens.begin(), tokens.end(),
                                  [](const AddedToken& token) { return SpacesAtStart(token.content) > 0; });
  if (strips == tokens.end() || space == tokens.end()) return {};
  return Error{
      fmt::format("{}: added_tokens: expected no rstrip (as of id {}) beside a token that begins with white "
                  "space, found {} of id {}",
                  where, strips->id, io::Quoted(space->content), space->id)};
}

// The tokens of one pass. Contents that normalizing makes equal could not be told apart.
Result<AddedTokenFinder> MakeFinder(const std::vector<AddedToken>& added, bool normalized, const Normalizer& normalizer,
                                    std::string_view where) {
  std::vector<AddedToken> tokens;
  for (AddedToken token : added) {
    if (token.normalized != normalized) continue;
    if (normalized) {
      MLA_ASSIGN_OR_RETURN(token.content, normalizer.Apply(token.content));
      if (token.content.empty()) {
        return Error{
            fmt::format("{}: added_tokens: expected contents that the normalizer leaves something of, found id {}",
                        where, token.id)};
      }
    }
    tokens.push_back(std::move(token));
  }
  MLA_RETURN_IF_ERROR(CheckStrips(tokens, where));
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.content < b.content; });
  const auto same = std::adjacent_find(tokens.begin(), tokens.end(),
                                       [](const auto& a, const auto& b) { return a.content == b.content; });
  if (same != tokens.end()) {
    return Error{
        fmt::format("{}: added_tokens: expected contents that differ when normalized, found {} of ids {} and {}", where,
                    io::Quoted(same->content), same[0].id, same[1].id)};
  }
  return AddedTokenFinder(std::move(tokens));
}

void KeepSpecialsOutOfText(const std::vector<AddedToken>& added, Bpe& bpe) {
  std::vector<std::int32_t> ids;
  for (const AddedToken& token : added) {
    if (token.special) ids.push_back(token.id);
  }
  bpe.KeepOutOfText(std::move(ids));
}

}  // namespace

Result<TokenizerFile> ParseTokenizerFile(const io::JsonValue& root, std::string_view where) {
  if (!root.is_object()) return Mismatch(where, "the file", "an object", &root);
  MLA_RETURN_IF_ERROR(OnlyMembers(root,
                                  {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                   "post_processor", "decoder", "model"},
                                  where, ""));
  const io::JsonValue* version = root.Find("version");
  if (version != nullptr && !(version->is_string() && version->string() == "1.0")) {
    return Mismatch(where, "version", "\"1.0\"", version);
  }
  for (const std::string_view key : {"truncation", "padding"}) {
    if (!IsNull(root.Find(key))) return Mismatch(where, key, "null", root.Find(key));
  }
  MLA_ASSIGN_OR_RETURN(Normalizer normalizer, ParseNormalizer(root.Find("normalizer"), where));
  MLA_ASSIGN_OR_RETURN(TokenDecoder decoder, ParseDecoder(root.Find("decoder"), where));
  const bool byte_level = decoder.kind == TokenDecoder::Kind::kByteLevel;
  MLA_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, ParsePreTokenizer(root.Find("pre_tokenizer"), byte_level, where));
  if (!normalizer.empty() && (byte_level || pre_tokenizer.has_metaspace())) {
    return Error{fmt::format("{}: normalizer: expected null beside {}, found steps", where,
                             byte_level ? "a ByteLevel decoder" : "a Metaspace pre-tokenizer")};
  }
  MLA_ASSIGN_OR_RETURN(Bpe bpe, ParseModel(root.Find("model"), byte_level, where));
  MLA_ASSIGN_OR_RETURN(std::vector<AddedToken> added, ParseAddedTokens(root.Find("added_tokens"), bpe, where));
  KeepSpecialsOutOfText(added, bpe);
  MLA_ASSIGN_OR_RETURN(AddedTokenFinder first_pass, MakeFinder(added, false, normalizer, where));
  MLA_ASSIGN_OR_RETURN(AddedTokenFinder second_pass, MakeFinder(added, true, normalizer, where));
  TokenizerFile file{std::move(bpe),        std::move(added),         std::move(first_pass), std::move(second_pass),
                     std::move(normalizer), std::move(pre_tokenizer), std::move(decoder),    std::nullopt};
  const io::JsonValue* processor = root.Find("post_processor");
  if (IsNull(processor)) return file;
  MLA_ASSIGN_OR_RETURN(const std::optional<Prefix> prefix, ParsePostProcessor(*processor, where, "post_processor"));
  if (!prefix) return file;
  const auto token = std::find_if(file.added.begin(), file.added.end(),
                                  [&](const AddedToken& t) { return t.content == prefix->token; });
  const std::int32_t id = token != file.added.end() ? token->id : file.bpe.Find(prefix->token);
  if (id != prefix->id) {
    return Error{fmt::format("{}: post_processor: expected the id that the vocabulary gives {} ({}), found {}", where,
                             io::Quoted(prefix->token), id < 0 ? "none" : std::to_string(id), prefix->id)};
  }
  file.template_prefix = prefix->token;
  return file;
}

Result<TokenizerConfig> ParseTokenizerConfig(const io::JsonValue& root, std::string_view where) {
  if (!root.is_object()) return Mismatch(where, "the file", "an object", &root);
  TokenizerConfig config;
  const auto token = [&](std::string_view key, std::optional<std::string>& out) -> Status {
    const io::JsonValue* value = root.Find(key);
    if (IsNull(value)) return {};
    const io::JsonValue* content = value->is_object() ? value->Find("content") : value;
    if (content == nullptr || !content->is_string()) {
      return Mismatch(where, key, "a string, or an object with the string \"content\"", value);
    }
    out = content->string();
    return {};
  };
  MLA_RETURN_IF_ERROR(token("bos_token", config.bos_token));
  MLA_RETURN_IF_ERROR(token("eos_token", config.eos_token));
  const io::JsonValue* add_bos = root.Find("add_bos_token");
  if (IsNull(add_bos)) return config;
  if (!add_bos->is_bool()) return Mismatch(where, "add_bos_token", "true, false or null", add_bos);
  config.add_bos = add_bos->boolean();
  return config;
}

}  // namespace mla::text
