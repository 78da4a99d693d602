#include "io/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "io/file.h"
#include "io/json.h"
#include "io/quote.h"
#include "io/safetensors.h"

namespace mla::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";

// Names of tensors to names of files, as the index has them; sorted by tensor.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// Whether the name is there at all, a symbolic link that leads nowhere too: opening it then says what is wrong.
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<WeightMap> ReadIndex(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const JsonValue index, ReadJsonFile(path));
  const JsonValue* map = index.Find("weight_map");
  const auto fail = [&](std::string_view expected, std::string_view found) {
    return Error{fmt::format("{}: expected {}, found {}", Printable(path), expected, found)};
  };
  if (map == nullptr || !map->is_object()) {
    return fail("an object weight_map", map == nullptr ? "nothing" : map->Describe());
  }
  if (map->members().empty()) return fail("tensors in weight_map", "none");
  WeightMap weight_map;
  for (const auto& [tensor, file] : map->members()) {
    if (!file.is_string() || !IsPlainName(file.string())) {
      return fail(fmt::format("tensor {} in a file of this folder, by its plain name", Printable(tensor)),
                  file.Describe());
    }
    weight_map.emplace_back(tensor, file.string());
  }
  std::sort(weight_map.begin(), weight_map.end());
  return weight_map;
}

std::vector<std::string> FilesOf(const WeightMap& weight_map) {
  std::vector<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.push_back(file);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

// The one *.safetensors file of a folder that holds neither an index nor model.safetensors.
Result<std::string> OnlyFile(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") found.push_back(it->path().filename().string());
  }
  if (error) return Error{fmt::format("{}: can't be listed: {}", Printable(folder), error.message())};
  if (found.size() != 1) {
    return Error{fmt::format("{}: expected {}, {} or exactly one *.safetensors file, found {} such files",
                             Printable(folder), kIndexName, kSingleName, found.size())};
  }
  return found[0];
}

// What the index says against what the shards hold; both are sorted by name.
Status CheckIndex(const WeightMap& weight_map, std::span<const Tensor> tensors, const std::string& index_path) {
  const std::string where = Printable(index_path);
  std::size_t t = 0;
  for (const auto& [name, file] : weight_map) {
    if (t < tensors.size() && tensors[t].name < name) break;
    if (t == tensors.size() || tensors[t].name != name) {
      return Error{fmt::format("{}: tensor {}: expected in {}, which does not hold it", where, Printable(name),
                               Printable(file))};
    }
    if (tensors[t].file != file) {
      return Error{fmt::format("{}: tensor {}: expected in {}, found in {}", where, Printable(name), Printable(file),
                               Printable(tensors[t].file))};
    }
    ++t;
  }
  if (t < tensors.size()) {
    return Error{fmt::format("{}: expected every tensor in weight_map, found {} in {} alone", where,
                             Printable(tensors[t].name), Printable(tensors[t].file))};
  }
  return {};
}

}  // namespace

std::int64_t Tensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) product *= dim == 0 ? 1 : dim;
  return std::find(shape.begin(), shape.end(), 0) == shape.end() ? product : 0;
}

std::string ShapeText(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string Describe(const Tensor& tensor) {
  return fmt::format("{} of {} in {}", ShapeText(tensor.shape), tensor.dtype_name, Printable(tensor.file));
}

struct Checkpoint::Impl {
  std::vector<MappedFile> files;
  std::vector<Tensor> tensors;
  std::int64_t bytes = 0;

  Status Add(const std::string& folder, const std::string& name);
  Status Sort(const std::string& folder);
  // The file that holds these bytes; nullptr for none.
  const MappedFile* FileOf(std::span<const std::byte> part) const;
};

Status Checkpoint::Impl::Add(const std::string& folder, const std::string& name) {
  const std::string path = folder.empty() ? name : (fs::path(folder) / name).string();
  MLA_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  MLA_ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, ParseSafetensors(file.bytes(), Printable(path)));
  for (SafetensorsEntry& entry : entries) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = std::move(entry.name);
    tensor.dtype_name = std::move(entry.dtype_name);
    tensor.known_dtype = entry.known_dtype;
    tensor.dtype = entry.dtype;
    tensor.shape = std::move(entry.shape);
    tensor.data = file.bytes().data() + entry.begin;
    tensor.bytes = entry.end - entry.begin;
    tensor.file = name;
  }
  bytes += static_cast<std::int64_t>(file.bytes().size());
  files.push_back(std::move(file));
  return {};
}

Status Checkpoint::Impl::Sort(const std::string& folder) {
  std::sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].name == tensors[i].name) {
      return Error{fmt::format("{}: expected tensor {} in one file, found it in {} and in {}", Printable(folder),
                               Printable(tensors[i].name), Printable(tensors[i - 1].file), Printable(tensors[i].file))};
    }
  }
  return {};
}

const MappedFile* Checkpoint::Impl::FileOf(std::span<const std::byte> part) const {
  for (const MappedFile& file : files) {
    const std::span<const std::byte> all = file.bytes();
    const std::less_equal<> before;
    if (before(all.data(), part.data()) && before(part.data() + part.size(), all.data() + all.size())) return &file;
  }
  MLA_CHECK(part.empty());  // a tensor of another checkpoint
  return nullptr;
}

Result<Checkpoint> Checkpoint::Open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const fs::path file(path);
    MLA_RETURN_IF_ERROR(impl->Add(file.parent_path().string(), file.filename().string()));
    MLA_RETURN_IF_ERROR(impl->Sort(path));
    return Checkpoint(std::move(impl));
  }
  const std::string index_path = (fs::path(path) / kIndexName).string();
  WeightMap weight_map;
  std::vector<std::string> files = {kSingleName};
  if (Exists(index_path)) {
    MLA_ASSIGN_OR_RETURN(weight_map, ReadIndex(index_path));
    files = FilesOf(weight_map);
  } else if (!Exists((fs::path(path) / kSingleName).string())) {
    MLA_ASSIGN_OR_RETURN(files[0], OnlyFile(path));
  }
  for (const std::string& file : files) MLA_RETURN_IF_ERROR(impl->Add(path, file));
  MLA_RETURN_IF_ERROR(impl->Sort(path));
  if (!weight_map.empty()) MLA_RETURN_IF_ERROR(CheckIndex(weight_map, impl->tensors, index_path));
  return Checkpoint(std::move(impl));
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

std::span<const Tensor> Checkpoint::tensors() const { return impl_->tensors; }

const Tensor* Checkpoint::Find(std::string_view name) const {
  const auto at = std::lower_bound(impl_->tensors.begin(), impl_->tensors.end(), name,
                                   [](const Tensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at != impl_->tensors.end() && at->name == name ? &*at : nullptr;
}

std::int64_t Checkpoint::file_bytes() const { return impl_->bytes; }

bool HasSafetensors(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return false;
  fs::directory_iterator entry(path, ignored);
  if (ignored) return true;
  for (const fs::directory_iterator end; !ignored && entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
  }
  return false;
}

void Checkpoint::Prefetch(const Tensor& tensor, std::int64_t begin, std::int64_t end) const {
  MLA_CHECK(begin >= 0 && begin <= end && end <= tensor.bytes);
  const std::span<const std::byte> part(tensor.data + begin, static_cast<std::size_t>(end - begin));
  if (const MappedFile* file = impl_->FileOf(part)) file->Prefetch(part);
}

void Checkpoint::Drop(const Tensor& tensor) const {
  const std::span<const std::byte> part(tensor.data, static_cast<std::size_t>(tensor.bytes));
  if (const MappedFile* file = impl_->FileOf(part)) file->Drop(part);
}

}  // namespace mla::io
