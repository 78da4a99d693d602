#include "mla/tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/no_throw.h"
#include "io/json.h"
#include "io/quote.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/encoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tiktoken_file.h"
#include "text/token_decoder.h"
#include "text/tokenizer_file.h"

namespace mla {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

// The bytes of every id, one after the other.
struct ByteTable {
  std::string bytes;
  std::vector<std::uint32_t> begin;  // [ids + 1]

  explicit ByteTable(std::vector<std::pair<std::int32_t, std::string>> tokens) {
    std::sort(tokens.begin(), tokens.end());
    const std::int32_t ids = tokens.empty() ? 0 : tokens.back().first + 1;
    begin.reserve(static_cast<std::size_t>(ids) + 1);
    for (const auto& [id, token] : tokens) {
      begin.resize(static_cast<std::size_t>(id) + 1, static_cast<std::uint32_t>(bytes.size()));
      bytes += token;
    }
    begin.push_back(static_cast<std::uint32_t>(bytes.size()));
  }

  // Of an id from 0 to ids - 1.
  std::string_view At(std::int32_t id) const {
    const auto at = static_cast<std::size_t>(id);
    return std::string_view(bytes).substr(begin[at], begin[at + 1] - begin[at]);
  }
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(text::TokenizerFile file)
      : bpe(std::move(file.bpe)),
        normalizer(std::move(file.normalizer)),
        pre_tokenizer(std::move(file.pre_tokenizer)),
        first_pass(std::move(file.first_pass)),
        second_pass(std::move(file.second_pass)),
        table(TokensOf(bpe, file, false)),
        strip_spaces(file.decoder.strip_spaces) {
    if (!file.decoder.dropped_at_start.empty()) first_table.emplace(TokensOf(bpe, file, true));
    special.resize(table.begin.size() - 1);
    for (const text::AddedToken& token : file.added) special[static_cast<std::size_t>(token.id)] = token.special;
  }

  static std::vector<std::pair<std::int32_t, std::string>> TokensOf(const text::Bpe& bpe,
                                                                    const text::TokenizerFile& file, bool first) {
    const auto bytes_of = [&](std::string_view token) {
      return first ? file.decoder.FirstBytesOf(token) : file.decoder.BytesOf(token);
    };
    std::vector<std::pair<std::int32_t, std::string>> tokens;
    tokens.reserve(file.added.size() + bpe.entries().size());
    // An added token of a byte-level vocabulary is its content, whatever characters that has.
    const bool as_is = file.decoder.kind == text::TokenDecoder::Kind::kByteLevel;
    for (const text::AddedToken& token : file.added) {
      tokens.emplace_back(token.id, as_is ? token.content : bytes_of(token.content));
    }
    std::sort(tokens.begin(), tokens.end());
    const auto added_end = static_cast<std::ptrdiff_t>(tokens.size());
    for (const text::BpeEntry& entry : bpe.entries()) {
      const auto known = std::lower_bound(tokens.begin(), tokens.begin() + added_end, entry.id,
                                          [](const auto& token, std::int32_t id) { return token.first < id; });
      if (known != tokens.begin() + added_end && known->first == entry.id) continue;
      tokens.emplace_back(entry.id, bytes_of(entry.token));
    }
    return tokens;
  }

  text::Bpe bpe;
  text::Normalizer normalizer;
  text::PreTokenizer pre_tokenizer;
  text::AddedTokenFinder first_pass;
  text::AddedTokenFinder second_pass;
  ByteTable table;
  std::optional<ByteTable> first_table;  // of a text's first token, where that differs
  std::int32_t strip_spaces;
  std::vector<bool> special;  // [ids]
  std::optional<std::int32_t> bos;
  std::optional<std::int32_t> eos;
  bool add_bos = false;

  Status Configure(const text::TokenizerConfig& config, const std::vector<text::AddedToken>& added,
                   const std::optional<std::string>& template_prefix, const std::string& where);
};

Status Tokenizer::Impl::Configure(const text::TokenizerConfig& config, const std::vector<text::AddedToken>& added,
                                  const std::optional<std::string>& template_prefix, const std::string& where) {
  const auto find = [&](const std::optional<std::string>& name, std::string_view field,
                        std::optional<std::int32_t>& id) -> Status {
    if (!name) return {};
    const auto token = std::find_if(added.begin(), added.end(), [&](const auto& t) { return t.content == *name; });
    const std::int32_t found = token != added.end() ? token->id : bpe.Find(*name);
    if (found < 0) {
      return Error{
          fmt::format("{}: {}: expected a token of the vocabulary, found {}", where, field, io::Quoted(*name))};
    }
    id = found;
    return {};
  };
  MLA_RETURN_IF_ERROR(find(config.bos_token, "bos_token", bos));
  MLA_RETURN_IF_ERROR(find(config.eos_token, "eos_token", eos));
  if (template_prefix && template_prefix != config.bos_token) {
    return Error{
        fmt::format("{}: bos_token: expected {}, which the post-processor of tokenizer.json puts before a text, "
                    "found {}",
                    where, io::Quoted(*template_prefix), config.bos_token ? io::Quoted(*config.bos_token) : "none")};
  }
  add_bos = config.add_bos.value_or(template_prefix.has_value());
  if (add_bos && !bos) return Error{fmt::format("{}: add_bos_token: expected a bos_token to add, found none", where)};
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Load(const std::string& dir) {
  return WithoutThrow("tokenizer", [&] { return LoadFiles(dir); });
}

namespace {

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found;
}

Result<std::optional<io::JsonValue>> ReadConfig(const std::string& path) {
  if (!Exists(path)) return std::optional<io::JsonValue>();
  MLA_ASSIGN_OR_RETURN(io::JsonValue root, io::ReadJsonFile(path));
  return std::optional<io::JsonValue>(std::move(root));
}

// The vocabulary, from whichever file the folder has.
Result<text::TokenizerFile> ReadVocabulary(const std::string& dir, const std::optional<io::JsonValue>& config) {
  const std::string path = dir + "/tokenizer.json";
  if (!Exists(path)) {
    if (Exists(dir + "/tiktoken.model")) return text::ReadTiktokenFile(dir, config ? &*config : nullptr);
    if (Exists(dir + "/tokenizer.model")) {
      return Error{
          fmt::format("{}: expected a tokenizer.json or tiktoken.model beside it, found neither; transformers, "
                      "with sentencepiece and protobuf installed, exports a tokenizer.json: "
                      "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
                      io::Printable(dir + "/tokenizer.model"))};
    }
  }
  MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ReadJsonFile(path));
  return text::ParseTokenizerFile(root, io::Printable(path));
}

}  // namespace

Result<Tokenizer> Tokenizer::LoadFiles(const std::string& dir) {
  const std::string config_path = dir + "/tokenizer_config.json";
  MLA_ASSIGN_OR_RETURN(const std::optional<io::JsonValue> root, ReadConfig(config_path));
  MLA_ASSIGN_OR_RETURN(text::TokenizerFile file, ReadVocabulary(dir, root));
  const std::vector<text::AddedToken> added = file.added;
  const std::optional<std::string> template_prefix = file.template_prefix;
  auto impl = std::make_unique<Impl>(std::move(file));
  text::TokenizerConfig config;
  if (root) {
    MLA_ASSIGN_OR_RETURN(config, text::ParseTokenizerConfig(*root, io::Printable(config_path)));
  }
  MLA_RETURN_IF_ERROR(impl->Configure(config, added, template_prefix, io::Printable(config_path)));
  return Tokenizer(std::move(impl));
}

Result<std::vector<std::int32_t>> Tokenizer::Encode(std::string_view text, AddedTokens added) const {
  const TextRange whole{0, text.size()};
  return Encode(text, std::span<const TextRange>(&whole, added == AddedTokens::kParse ? 1 : 0));
}

Result<std::vector<std::int32_t>> Tokenizer::Encode(std::string_view text, std::span<const TextRange> trusted) const {
  if (text.size() > kMaxTextBytes) {
    return Error{fmt::format("text: expected at most {} bytes, found {}", kMaxTextBytes, text.size())};
  }
  if (const std::size_t valid = io::ValidUtf8Prefix(text); valid != text.size()) {
    return Error{fmt::format("text: expected UTF-8, found an invalid byte {:#04x} at byte {}",
                             static_cast<unsigned char>(text[valid]), valid)};
  }
  return WithoutThrow("text", [&]() -> Result<std::vector<std::int32_t>> {
    text::Encoder encoder({impl_->normalizer, impl_->pre_tokenizer, impl_->bpe, impl_->first_pass, impl_->second_pass});
    const Status status = trusted.empty() ? encoder.AsText(text) : encoder.ParseWithin(text, trusted);
    if (!status.ok()) return Error{fmt::format("text: {}", status.error().message)};
    return encoder.TakeIds();
  });
}

Tokenizer::Beginning Tokenizer::AtBeginning() const { return {true, impl_->strip_spaces}; }

std::string_view Tokenizer::BytesAt(std::int32_t id, Beginning& beginning) const {
  std::string_view bytes = TokenBytes(id);
  if (bytes.empty()) return bytes;
  if (beginning.first_token && impl_->first_table) bytes = impl_->first_table->At(id);
  beginning.first_token = false;
  while (beginning.strip_spaces > 0 && !bytes.empty()) {
    beginning.strip_spaces = bytes[0] == ' ' ? beginning.strip_spaces - 1 : 0;
    if (bytes[0] == ' ') bytes.remove_prefix(1);
  }
  return bytes;
}

std::string Tokenizer::Decode(std::span<const std::int32_t> ids, bool with_special) const {
  std::string text;
  Beginning beginning = AtBeginning();
  for (const std::int32_t id : ids) {
    if (with_special || !IsSpecial(id)) text += BytesAt(id, beginning);
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return impl_->table.At(id);
}

bool Tokenizer::IsSpecial(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->special.size()); }
std::optional<std::int32_t> Tokenizer::bos_id() const { return impl_->bos; }
std::optional<std::int32_t> Tokenizer::eos_id() const { return impl_->eos; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }

}  // namespace mla
