#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/json.h"
#include "io/quote.h"
#include "io/safetensors_header.h"

namespace mla::io {
namespace {

constexpr std::size_t kLengthBytes = 8;

struct Word {
  std::string_view name;
  std::int64_t bits;
};

// Every type of the format and the width of its elements.
constexpr std::array<Word, 20> kWords = {{
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},
    {"U32", 32},    {"F32", 32},    {"F64", 64}, {"I64", 64}, {"U64", 64},    {"C64", 64},
}};

std::optional<DType> KnownDType(std::string_view word) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E8M0}) {
    if (word == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

// Product of the dims, where that of the dims above zero fits.
std::optional<std::int64_t> Elements(std::span<const std::int64_t> shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(product, dim, &product)) {
      return std::nullopt;
    }
  }
  return empty ? 0 : product;
}

std::optional<std::int64_t> BytesOf(std::span<const std::int64_t> shape, std::int64_t bits) {
  const std::optional<std::int64_t> elements = Elements(shape);
  std::int64_t total = 0;
  if (!elements || __builtin_mul_overflow(*elements, bits, &total) || total % 8 != 0) return std::nullopt;
  return total / 8;
}

// The header's JSON, its place checked against the file's size.
Result<std::string_view> HeaderText(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    return Error{fmt::format("{}: expected a safetensors file, found {} bytes, less than its 8-byte header length",
                             where, file.size())};
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeader)) {
    return Error{fmt::format("{}: expected a safetensors header of at most {} bytes, found a length of {}", where,
                             kMaxSafetensorsHeader, length)};
  }
  if (length > file.size() - kLengthBytes) {
    return Error{fmt::format("{}: the file is cut short: its header has {} bytes, {} are there", where, length,
                             file.size() - kLengthBytes)};
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  if (text.empty() || text.front() != '{') {
    return Error{fmt::format("{}: expected a safetensors header that begins with {{, found {}", where,
                             text.empty() ? "an empty one" : Quoted(text.substr(0, 8)))};
  }
  return text;
}

// One entry; offsets still count from the data's first byte.
class EntryParser {
 public:
  EntryParser(std::string_view where, std::string_view name) : where_(where), name_(name) {}

  Result<SafetensorsEntry> Parse(const JsonValue& value) const {
    if (!value.is_object()) return Fail("an object of dtype, shape and data_offsets", value.Describe());
    for (const auto& [key, unused] : value.members()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        return Fail("dtype, shape and data_offsets alone", Quoted(key));
      }
    }
    SafetensorsEntry entry;
    entry.name = name_;
    MLA_ASSIGN_OR_RETURN(const std::int64_t bits, ParseDType(value.Find("dtype"), &entry));
    MLA_RETURN_IF_ERROR(ParseShape(value.Find("shape"), &entry));
    MLA_RETURN_IF_ERROR(ParseOffsets(value.Find("data_offsets"), &entry));
    const std::optional<std::int64_t> bytes = BytesOf(entry.shape, bits);
    if (!bytes) {
      return Fail("a size in whole bytes below 2^60",
                  fmt::format("shape [{}] of {}", fmt::join(entry.shape, ", "), entry.dtype_name));
    }
    if (*bytes != entry.end - entry.begin) {
      return Fail(fmt::format("{} bytes for [{}] of {}", *bytes, fmt::join(entry.shape, ", "), entry.dtype_name),
                  fmt::format("data_offsets [{}, {}] of {} bytes", entry.begin, entry.end, entry.end - entry.begin));
    }
    return entry;
  }

 private:
  Error Fail(std::string_view expected, std::string_view found) const {
    return Error{fmt::format("{}: tensor {}: expected {}, found {}", where_, Printable(name_), expected, found)};
  }
  static std::string Found(const JsonValue* value) { return value == nullptr ? "nothing" : value->Describe(); }

  Result<std::int64_t> ParseDType(const JsonValue* value, SafetensorsEntry* entry) const {
    if (value == nullptr || !value->is_string()) return Fail("a dtype", Found(value));
    for (const Word& word : kWords) {
      if (word.name != value->string()) continue;
      entry->dtype_name = value->string();
      if (const std::optional<DType> dtype = KnownDType(word.name)) {
        entry->known_dtype = true;
        entry->dtype = *dtype;
      }
      return word.bits;
    }
    return Fail("a dtype of the safetensors format", value->Describe());
  }

  Status ParseShape(const JsonValue* value, SafetensorsEntry* entry) const {
    if (value == nullptr || !value->is_array()) return Fail("a shape", Found(value));
    constexpr std::size_t kMostDims = 8;  // no tensor of a model has more; messages print them all
    if (value->items().size() > kMostDims) return Fail("a shape of at most 8 dims", value->Describe());
    for (const JsonValue& dim : value->items()) {
      if (!dim.is_int() || dim.integer() < 0) return Fail("dimensions that are whole numbers from 0", dim.Describe());
      entry->shape.push_back(dim.integer());
    }
    return {};
  }

  Status ParseOffsets(const JsonValue* value, SafetensorsEntry* entry) const {
    if (value == nullptr || !value->is_array() || value->items().size() != 2) {
      return Fail("data_offsets [begin, end]", Found(value));
    }
    for (const JsonValue& offset : value->items()) {
      if (!offset.is_int() || offset.integer() < 0)
        return Fail("offsets that are whole numbers from 0", offset.Describe());
    }
    entry->begin = value->items()[0].integer();
    entry->end = value->items()[1].integer();
    if (entry->begin > entry->end) {
      return Fail("data_offsets in order", fmt::format("[{}, {}]", entry->begin, entry->end));
    }
    return {};
  }

  std::string_view where_;
  std::string_view name_;
};

Status CheckMetadata(const JsonValue& value, std::string_view where) {
  const auto fail = [&](const std::string& found) {
    return Error{fmt::format("{}: __metadata__: expected an object of strings, found {}", where, found)};
  };
  if (!value.is_object()) return fail(value.Describe());
  for (const auto& [key, text] : value.members()) {
    if (!text.is_string()) return fail(fmt::format("{}: {}", Quoted(key), text.Describe()));
  }
  return {};
}

// The tensors, sorted by offset, must fill the data without overlap or hole.
Status CheckOffsets(std::span<const SafetensorsEntry> entries, std::int64_t data_bytes, std::string_view where) {
  std::int64_t end = 0;
  std::string_view previous;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.end > data_bytes) {
      return Error{fmt::format("{}: tensor {}: expected its end within the file's {} bytes of data, found {}", where,
                               Printable(entry.name), data_bytes, entry.end)};
    }
    if (entry.begin != end) {
      return Error{fmt::format(
          "{}: tensor {}: expected to begin at {}, {}, found {}", where, Printable(entry.name), end,
          previous.empty() ? "the first byte" : fmt::format("where {} ends", Printable(previous)), entry.begin)};
    }
    end = entry.end;
    previous = entry.name;
  }
  if (end != data_bytes) {
    return Error{fmt::format("{}: expected {} bytes of data, found {}", where, end, data_bytes)};
  }
  return {};
}

}  // namespace

Result<std::vector<SafetensorsEntry>> ParseSafetensors(std::span<const std::byte> file, std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const std::string_view text, HeaderText(file, where));
  MLA_ASSIGN_OR_RETURN(const JsonValue header, ParseJson(text, fmt::format("{}: header", where)));
  std::vector<SafetensorsEntry> entries;
  entries.reserve(header.members().size());
  for (const auto& [name, value] : header.members()) {
    if (name == "__metadata__") {
      MLA_RETURN_IF_ERROR(CheckMetadata(value, where));
      continue;
    }
    MLA_ASSIGN_OR_RETURN(SafetensorsEntry entry, EntryParser(where, name).Parse(value));
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const auto data_begin = static_cast<std::int64_t>(kLengthBytes + text.size());
  MLA_RETURN_IF_ERROR(CheckOffsets(entries, static_cast<std::int64_t>(file.size()) - data_begin, where));
  for (SafetensorsEntry& entry : entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  return entries;
}

Result<std::string> SafetensorsHeader(std::span<const SafetensorsSpec> specs, std::string_view where,
                                      std::int64_t* data_bytes) {
  const auto fail = [&](const SafetensorsSpec& spec, std::string_view fault) {
    return Error{fmt::format("{}: tensor {}: {}", where, Quoted(spec.name, 200), fault)};
  };
  std::vector<std::string_view> names;
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::int64_t end = 0;
  for (const SafetensorsSpec& spec : specs) {
    if (ValidUtf8Prefix(spec.name) != spec.name.size() || spec.name == "__metadata__")
      return fail(spec, "expected a name");
    names.push_back(spec.name);
    if (std::any_of(spec.shape.begin(), spec.shape.end(), [](std::int64_t dim) { return dim < 0; })) {
      return fail(spec, fmt::format("expected dims from 0, found [{}]", fmt::join(spec.shape, ", ")));
    }
    const std::int64_t begin = end;
    const auto bytes = BytesOf(spec.shape, 8 * static_cast<std::int64_t>(DTypeBytes(spec.dtype)));
    if (!bytes || __builtin_add_overflow(end, *bytes, &end) || end > std::numeric_limits<std::int64_t>::max() / 2) {
      return fail(spec, "the file would be larger than 2^62 bytes");
    }
    json += fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", JsonString(spec.name),
                        DTypeName(spec.dtype), fmt::join(spec.shape, ","), begin, end);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return Error{fmt::format("{}: tensor {} appears twice", where, Quoted(*twice, 200))};
  }
  json += '}';
  // Data then begins at a multiple of 8.
  json.append((kLengthBytes - json.size() % kLengthBytes) % kLengthBytes, ' ');
  if (static_cast<std::int64_t>(json.size()) > kMaxSafetensorsHeader) {
    return Error{
        fmt::format("{}: expected a header of at most {} bytes, found {}", where, kMaxSafetensorsHeader, json.size())};
  }
  std::string out;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    out += static_cast<char>((std::uint64_t{json.size()} >> (8 * i)) & 0xff);
  *data_bytes = end;
  return out + json;
}

}  // namespace mla::io
