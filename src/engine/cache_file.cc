#include "engine/cache_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/no_throw.h"
#include "io/new_file.h"
#include "io/quote.h"

namespace mla::engine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'M', 'L', 'A', 'C', 'A', 'C', 'H', 'E'};
constexpr std::int64_t kMostHeaderBytes = 65536;

// What every version begins with. A header ends with the checksum of what is before it.
struct Preamble {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t header_bytes;
};

using Word = std::array<char, 16>;  // text, then NULs

struct Header {
  Preamble preamble;
  std::int64_t tokens;
  std::int64_t output;
  std::int64_t rows;
  std::int64_t form_runs;
  std::int64_t layers;
  std::int64_t latent_elements;
  std::int64_t rope_elements;
  std::int64_t row_bytes;
  std::int64_t vocab_size;
  std::uint64_t rope_fingerprint;
  std::uint64_t model_fingerprint;
  Word dtype;
  Word weights;
  Word mode;
  Word kernels;
  std::uint64_t checksum;
};
static_assert(sizeof(Header) == 176 && std::is_trivially_copyable_v<Header>);

struct StoredRun {
  std::int64_t begin;
  std::int64_t form;  // 0 absorbed, 1 mha
};
static_assert(sizeof(StoredRun) == 16);

template <class T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}
template <class T>
std::span<std::byte> WritableBytesOf(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

Word WordOf(const std::string& text) {
  Word word{};
  MLA_CHECK_LE(text.size(), word.size());
  std::copy(text.begin(), text.end(), word.begin());
  return word;
}
std::string TextOf(const Word& word) { return {word.begin(), std::find(word.begin(), word.end(), '\0')}; }

Header HeaderOf(const CacheFileContent& content) {
  const CacheSchema& s = content.schema;
  Header h{};
  h.preamble = {kMagic, kCacheFileVersion, sizeof(Header)};
  h.tokens = std::ssize(content.ids);
  h.output = content.output;
  h.rows = content.rows;
  h.form_runs = std::ssize(content.forms);
  h.layers = s.layers;
  h.latent_elements = s.latent_elements;
  h.rope_elements = s.rope_elements;
  h.row_bytes = s.row_bytes;
  h.vocab_size = s.vocab_size;
  h.rope_fingerprint = s.rope_fingerprint;
  h.model_fingerprint = s.model_fingerprint;
  h.dtype = WordOf(s.dtype);
  h.weights = WordOf(s.weights);
  h.mode = WordOf(s.mode);
  h.kernels = WordOf(s.kernels);
  h.checksum = HashOf(BytesOf(h).first(offsetof(Header, checksum)));
  return h;
}

CacheSchema SchemaOf(const Header& h) {
  return {h.layers,          h.latent_elements,  h.rope_elements,     h.row_bytes,
          h.vocab_size,      h.rope_fingerprint, h.model_fingerprint, TextOf(h.dtype),
          TextOf(h.weights), TextOf(h.mode),     TextOf(h.kernels)};
}

// A file's end as it grows.
class Writer {
 public:
  explicit Writer(io::NewFile file) : file_(std::move(file)) {}
  Status Add(std::span<const std::byte> bytes) {
    hash_.Add(bytes);
    bytes_ += std::ssize(bytes);
    return file_.Append(bytes);
  }
  Result<std::int64_t> Finish() {
    const std::uint64_t checksum = hash_.Value();
    MLA_RETURN_IF_ERROR(Add(BytesOf(checksum)));
    MLA_RETURN_IF_ERROR(file_.Finish());
    return bytes_;
  }

 private:
  io::NewFile file_;
  Hash64 hash_;
  std::int64_t bytes_ = 0;
};

// Visits all rows, layer by layer.
template <class Visit>
Status ForRows(const CacheSchema& schema, std::int64_t rows, const RowsAt& at, const Visit& visit) {
  for (std::int64_t layer = 0; layer < schema.layers; ++layer) {
    for (std::int64_t token = 0; token < rows;) {
      const std::span<std::byte> part = at(layer, token);
      MLA_CHECK(!part.empty() && std::ssize(part) % schema.row_bytes == 0);
      MLA_RETURN_IF_ERROR(visit(part));
      token += std::ssize(part) / schema.row_bytes;
    }
  }
  return {};
}

}  // namespace

Result<std::int64_t> WriteCacheFile(const std::string& path, const CacheFileContent& content, const RowsAt& rows) {
  MLA_ASSIGN_OR_RETURN(io::NewFile file, io::NewFile::Create(path));
  Writer writer(std::move(file));
  MLA_RETURN_IF_ERROR(writer.Add(BytesOf(HeaderOf(content))));
  MLA_RETURN_IF_ERROR(writer.Add(std::as_bytes(std::span(content.ids))));
  for (const FormRun& run : content.forms) {
    MLA_RETURN_IF_ERROR(writer.Add(BytesOf(StoredRun{run.begin, run.form == Form::kMha ? 1 : 0})));
  }
  MLA_RETURN_IF_ERROR(
      ForRows(content.schema, content.rows, rows, [&](std::span<const std::byte> part) { return writer.Add(part); }));
  return writer.Finish();
}

CacheFileReader::CacheFileReader(std::string path, io::RegularFile file)
    : path_(std::move(path)), file_(std::move(file)) {}

Error CacheFileReader::Fault(const std::string& what) const { return Error{fmt::format("{}: {}", path_, what)}; }

Result<CacheFileReader> CacheFileReader::Open(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(io::RegularFile file, io::OpenRegularFile(path));
  CacheFileReader reader(io::Printable(path), std::move(file));
  MLA_RETURN_IF_ERROR(reader.ReadHeader());
  MLA_RETURN_IF_ERROR(reader.CheckSizes());
  return reader;
}

Status CacheFileReader::Read(std::span<std::byte> bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const std::span<std::byte> left = bytes.subspan(done);
    const ssize_t got = ::pread(file_.fd.get(), left.data(), left.size(), at_ + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Fault(fmt::format("can't be read: {}", std::generic_category().message(errno)));
    if (got == 0) return Fault(fmt::format("expected {} bytes, found its end sooner", file_.bytes));
    done += static_cast<std::size_t>(got);
  }
  at_ += std::ssize(bytes);
  hash_.Add(bytes);
  return {};
}

Status CacheFileReader::ReadHeader() {
  Preamble p{};
  const bool whole = file_.bytes >= static_cast<std::int64_t>(sizeof(p));
  if (whole) MLA_RETURN_IF_ERROR(Read(WritableBytesOf(p)));
  if (!whole || p.magic != kMagic) {
    return Fault("expected a cache file, which begins with MLACACHE, found something else");
  }
  const std::int64_t most = std::min(kMostHeaderBytes, file_.bytes);
  constexpr std::int64_t kLeast = sizeof(Preamble) + sizeof(std::uint64_t);
  if (p.header_bytes < kLeast || p.header_bytes > most) {
    return Fault(fmt::format("header: expected {} to {} bytes, found {}", kLeast, most, p.header_bytes));
  }
  std::vector<std::byte> rest(p.header_bytes - sizeof(Preamble));
  MLA_RETURN_IF_ERROR(Read(rest));
  Hash64 hash;
  hash.Add(BytesOf(p));
  hash.Add(std::span(rest).first(rest.size() - sizeof(std::uint64_t)));
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, rest.data() + rest.size() - sizeof(checksum), sizeof(checksum));
  if (checksum != hash.Value()) return Fault("header: its checksum does not match, the file is damaged");
  if (p.version != kCacheFileVersion || p.header_bytes != sizeof(Header)) {
    return Fault(fmt::format("version: expected {} with a header of {} bytes, found {} with one of {}",
                             kCacheFileVersion, sizeof(Header), p.version, p.header_bytes));
  }
  Header h{};
  std::memcpy(reinterpret_cast<std::byte*>(&h) + sizeof(Preamble), rest.data(), rest.size());
  content_.schema = SchemaOf(h);
  content_.output = h.output;
  content_.rows = h.rows;
  tokens_ = h.tokens;
  form_runs_ = h.form_runs;
  return {};
}

// The header's numbers, and that the file has the size that follows from them: what is allocated and read by them later
// is there.
Status CacheFileReader::CheckSizes() const {
  const CacheSchema& s = content_.schema;
  const bool sound = rows() >= 1 && rows() <= tokens_ && form_runs_ >= 1 && form_runs_ <= rows() &&
                     content_.output >= 0 && content_.output < tokens_ && s.layers >= 1 && s.row_bytes >= 1 &&
                     s.vocab_size >= 1;
  if (!sound) {
    return Fault(
        fmt::format("header: {} tokens, {} of them output, {} rows in {} runs, {} layers of {} bytes a row and "
                    "a vocabulary of {} can't be",
                    tokens_, content_.output, rows(), form_runs_, s.layers, s.row_bytes, s.vocab_size));
  }
  std::int64_t ids = 0;
  std::int64_t forms = 0;
  std::int64_t all = 0;
  const bool overflows = __builtin_mul_overflow(tokens_, sizeof(std::int32_t), &ids) ||
                         __builtin_mul_overflow(form_runs_, sizeof(StoredRun), &forms) ||
                         __builtin_mul_overflow(s.layers, s.row_bytes, &all) ||
                         __builtin_mul_overflow(all, rows(), &all) || __builtin_add_overflow(all, ids, &all) ||
                         __builtin_add_overflow(all, forms, &all) ||
                         __builtin_add_overflow(all, sizeof(Header) + sizeof(std::uint64_t), &all);
  if (overflows) return Fault("header: the file would be larger than any");
  if (all != file_.bytes) {
    return Fault(fmt::format("expected {} bytes, as its header says, found {}: the file is {}", all, file_.bytes,
                             file_.bytes < all ? "cut short" : "followed by something else"));
  }
  return {};
}

Status CacheFileReader::Require(const CacheSchema& expected) const {
  const CacheSchema& found = schema();
  const auto differs = [&](const char* name, const auto& want, const auto& have) {
    return Fault(fmt::format("{}: expected {}, as this engine has, found {}", name, want, have));
  };
  const auto text = [](const std::string& word) { return io::Printable(word); };
  const auto hex = [](std::uint64_t value) { return fmt::format("{:#018x}", value); };
  if (found.layers != expected.layers) return differs("layers", expected.layers, found.layers);
  if (found.latent_elements != expected.latent_elements)
    return differs("latent elements of a row", expected.latent_elements, found.latent_elements);
  if (found.rope_elements != expected.rope_elements)
    return differs("rope elements of a row", expected.rope_elements, found.rope_elements);
  if (found.dtype != expected.dtype) return differs("dtype of rows", expected.dtype, text(found.dtype));
  if (found.row_bytes != expected.row_bytes) return differs("bytes of a row", expected.row_bytes, found.row_bytes);
  if (found.vocab_size != expected.vocab_size) return differs("vocabulary", expected.vocab_size, found.vocab_size);
  if (found.rope_fingerprint != expected.rope_fingerprint)
    return differs("rope fingerprint", hex(expected.rope_fingerprint), hex(found.rope_fingerprint));
  if (found.model_fingerprint != expected.model_fingerprint)
    return differs("model fingerprint", hex(expected.model_fingerprint), hex(found.model_fingerprint));
  if (found.weights != expected.weights) return differs("weights kept in", expected.weights, text(found.weights));
  if (found.mode != expected.mode) return differs("mode", expected.mode, text(found.mode));
  if (found.kernels != expected.kernels) return differs("kernels", expected.kernels, text(found.kernels));
  return {};
}

Status CacheFileReader::RequireAtMost(std::int64_t tokens, std::int64_t rows_held) const {
  if (tokens_ > tokens)
    return Fault(fmt::format("tokens: expected at most the context's {}, found {}", tokens, tokens_));
  if (rows() > rows_held) {
    return Fault(fmt::format("rows: expected at most {}, which the cache's pages hold, found {}", rows_held, rows()));
  }
  return {};
}

Status CacheFileReader::ReadIds() {
  return WithoutThrow("cache file", [&]() -> Status {
    content_.ids.resize(static_cast<std::size_t>(tokens_));
    MLA_RETURN_IF_ERROR(Read(std::as_writable_bytes(std::span(content_.ids))));
    content_.forms.reserve(static_cast<std::size_t>(form_runs_));
    for (std::int64_t i = 0; i < form_runs_; ++i) {
      StoredRun run{};
      MLA_RETURN_IF_ERROR(Read(WritableBytesOf(run)));
      if (run.form != 0 && run.form != 1) return Fault(fmt::format("forms: expected 0 or 1, found {}", run.form));
      content_.forms.push_back({run.begin, run.form == 1 ? Form::kMha : Form::kAbsorbed});
    }
    return CheckContent();
  });
}

Status CacheFileReader::CheckContent() const {
  for (const std::int32_t id : content_.ids) {
    if (id < 0 || id >= schema().vocab_size)
      return Fault(fmt::format("ids: expected 0 to {}, found {}", schema().vocab_size - 1, id));
  }
  for (std::size_t i = 0; i < content_.forms.size(); ++i) {
    const FormRun& run = content_.forms[i];
    const std::int64_t least = i == 0 ? 0 : content_.forms[i - 1].begin + 1;
    const std::int64_t most = i == 0 ? 0 : rows() - 1;
    const bool repeats = i > 0 && run.form == content_.forms[i - 1].form;
    if (run.begin < least || run.begin > most || repeats) {
      return Fault(
          fmt::format("forms: expected run {} to begin from {} to {} in another form than the one before, "
                      "found {} in {}",
                      i, least, most, run.begin, run.form == Form::kMha ? "mha" : "absorbed"));
    }
  }
  return {};
}

Status CacheFileReader::ReadRows(const RowsAt& rows_at) {
  MLA_RETURN_IF_ERROR(ForRows(schema(), rows(), rows_at, [&](std::span<std::byte> part) { return Read(part); }));
  const std::uint64_t expected = hash_.Value();
  std::uint64_t found = 0;
  MLA_RETURN_IF_ERROR(Read(WritableBytesOf(found)));
  if (found == expected) return {};
  return Fault("its checksum does not match: the file is damaged");
}

}  // namespace mla::engine
