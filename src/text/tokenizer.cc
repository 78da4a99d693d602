#include "mla/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/no_throw.h"
#include "io/json.h"
#include "io/quote.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_file.h"

namespace mla {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;

std::vector<text::AddedToken> Those(const std::vector<text::AddedToken>& added, bool normalized) {
  std::vector<text::AddedToken> result;
  std::copy_if(added.begin(), added.end(), std::back_inserter(result),
               [normalized](const text::AddedToken& token) { return token.normalized == normalized; });
  return result;
}

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
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(text::TokenizerFile file)
      : bpe(std::move(file.bpe)),
        pre_tokenizer(std::move(file.pre_tokenizer)),
        first_pass(Those(file.added, false)),
        second_pass(Those(file.added, true)),
        table(TokensOf(bpe, file.added)) {
    special.resize(table.begin.size() - 1);
    for (const text::AddedToken& token : file.added) special[static_cast<std::size_t>(token.id)] = token.special;
  }

  // An added token is its content, whatever characters that has.
  static std::vector<std::pair<std::int32_t, std::string>> TokensOf(const text::Bpe& bpe,
                                                                    const std::vector<text::AddedToken>& added) {
    std::vector<std::pair<std::int32_t, std::string>> tokens;
    tokens.reserve(added.size() + bpe.entries().size());
    for (const text::AddedToken& token : added) tokens.emplace_back(token.id, token.content);
    std::sort(tokens.begin(), tokens.end());
    const auto added_end = static_cast<std::ptrdiff_t>(tokens.size());
    for (const text::BpeEntry& entry : bpe.entries()) {
      const auto known = std::lower_bound(tokens.begin(), tokens.begin() + added_end, entry.id,
                                          [](const auto& token, std::int32_t id) { return token.first < id; });
      if (known != tokens.begin() + added_end && known->first == entry.id) continue;
      tokens.emplace_back(entry.id, text::FromByteLevel(entry.token));
    }
    return tokens;
  }

  text::Bpe bpe;
  text::PreTokenizer pre_tokenizer;
  text::AddedTokenFinder first_pass;
  text::AddedTokenFinder second_pass;
  ByteTable table;
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

Result<Tokenizer> Tokenizer::LoadFiles(const std::string& dir) {
  const std::string path = dir + "/tokenizer.json";
  std::optional<text::TokenizerFile> file;
  {
    MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ReadJsonFile(path));
    MLA_ASSIGN_OR_RETURN(file, text::ParseTokenizerFile(root, io::Printable(path)));
  }
  const std::vector<text::AddedToken> added = file->added;
  const std::optional<std::string> template_prefix = file->template_prefix;
  auto impl = std::make_unique<Impl>(std::move(*file));
  const std::string config_path = dir + "/tokenizer_config.json";
  text::TokenizerConfig config;
  std::error_code error;
  if (std::filesystem::symlink_status(config_path, error).type() != std::filesystem::file_type::not_found) {
    MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ReadJsonFile(config_path));
    MLA_ASSIGN_OR_RETURN(config, text::ParseTokenizerConfig(root, io::Printable(config_path)));
  }
  MLA_RETURN_IF_ERROR(impl->Configure(config, added, template_prefix, io::Printable(config_path)));
  return Tokenizer(std::move(impl));
}

namespace {

// One call of Encode: its scratch, and the ids so far.
class Encoder {
 public:
  Encoder(const text::Bpe& bpe, const text::PreTokenizer& pre_tokenizer) : bpe_(bpe), pre_tokenizer_(pre_tokenizer) {}

  // Text without added tokens.
  Status Text(std::string_view text) {
    MLA_RETURN_IF_ERROR(pre_tokenizer_.Split(text, pieces_));
    // Words repeat. A table of recent ones spares their merges; its size goes with the text's, so that filling it does
    // too.
    seen_.assign(std::min(std::bit_ceil(text.size() / 16 + 1), std::size_t{8192}), {});
    for (const std::string_view word : pieces_.pieces) Word(word);
    return {};
  }

  // Text with the added tokens of `first`, then those of `second` in what remains.
  Status Parse(std::string_view text, const text::AddedTokenFinder* first, const text::AddedTokenFinder* second) {
    std::size_t done = 0;
    while (const auto found = first->Find(text, done)) {
      MLA_RETURN_IF_ERROR(Remainder(text.substr(done, found->begin - done), second));
      ids_.push_back(found->id);
      done = found->end;
    }
    return Remainder(text.substr(done), second);
  }

  std::vector<std::int32_t> TakeIds() { return std::move(ids_); }

 private:
  struct Seen {
    std::string_view word;
    std::size_t first = 0;  // its ids, as they stand in ids_
    std::size_t count = 0;
  };

  Status Remainder(std::string_view text, const text::AddedTokenFinder* second) {
    return second != nullptr ? Parse(text, second, nullptr) : Text(text);
  }

  void Word(std::string_view word) {
    Seen& seen = seen_[std::hash<std::string_view>()(word) & (seen_.size() - 1)];
    if (seen.word == word) {
      for (std::size_t i = 0; i < seen.count; ++i) {
        const std::int32_t id = ids_[seen.first + i];
        ids_.push_back(id);
      }
      return;
    }
    const std::size_t first = ids_.size();
    bpe_.Encode(word, merges_, ids_);
    seen = {word, first, ids_.size() - first};
  }

  const text::Bpe& bpe_;
  const text::PreTokenizer& pre_tokenizer_;
  text::PreTokenizer::Scratch pieces_;
  text::Bpe::Scratch merges_;
  std::vector<Seen> seen_;
  std::vector<std::int32_t> ids_;
};

}  // namespace

Result<std::vector<std::int32_t>> Tokenizer::Encode(std::string_view text, AddedTokens added) const {
  if (text.size() > kMaxTextBytes) {
    return Error{fmt::format("text: expected at most {} bytes, found {}", kMaxTextBytes, text.size())};
  }
  if (const std::size_t valid = io::ValidUtf8Prefix(text); valid != text.size()) {
    return Error{fmt::format("text: expected UTF-8, found an invalid byte {:#04x} at byte {}",
                             static_cast<unsigned char>(text[valid]), valid)};
  }
  Encoder encoder(impl_->bpe, impl_->pre_tokenizer);
  const Status status =
      added == AddedTokens::kParse ? encoder.Parse(text, &impl_->first_pass, &impl_->second_pass) : encoder.Text(text);
  if (!status.ok()) return Error{fmt::format("text: {}", status.error().message)};
  return encoder.TakeIds();
}

std::string Tokenizer::Decode(std::span<const std::int32_t> ids, bool with_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (with_special || !IsSpecial(id)) text += TokenBytes(id);
  }
  return text;
}

std::string_view Tokenizer::TokenBytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const auto at = static_cast<std::size_t>(id);
  const ByteTable& table = impl_->table;
  return std::string_view(table.bytes).substr(table.begin[at], table.begin[at + 1] - table.begin[at]);
}

bool Tokenizer::IsSpecial(std::int32_t id) const {
  return id >= 0 && id < vocab_size() && impl_->special[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::vocab_size() const { return static_cast<std::int32_t>(impl_->special.size()); }
std::optional<std::int32_t> Tokenizer::bos_id() const { return impl_->bos; }
std::optional<std::int32_t> Tokenizer::eos_id() const { return impl_->eos; }
bool Tokenizer::add_bos() const { return impl_->add_bos; }

}  // namespace mla
