// Rows of the cache to a file, and back to where the prefix index finds them.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/no_throw.h"
#include "engine/cache_file.h"
#include "engine/engine_impl.h"

namespace mla {
namespace {

// Rows are read in whole, padding too, by kernels that take full vectors: what a file has there is not for them.
void ClearPadding(const CacheLayerView& layer, std::int32_t page, std::int64_t tokens) {
  const auto element = static_cast<std::int64_t>(DTypeBytes(layer.dtype));
  const std::int64_t used = layer.rope_offset + layer.rope_elements * element;
  if (used == layer.row_bytes) return;
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::memset(layer.Row(page * layer.page_tokens + t) + used, 0, static_cast<std::size_t>(layer.row_bytes - used));
  }
}

std::vector<engine::FormRun> RunsOf(std::span<const engine::FormLabel> labels) {
  std::vector<engine::FormRun> runs;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto form = static_cast<Form>(labels[i]);
    if (runs.empty() || runs.back().form != form) runs.push_back({static_cast<std::int64_t>(i), form});
  }
  return runs;
}

std::vector<engine::FormLabel> LabelsOf(std::span<const engine::FormRun> runs, std::int64_t rows) {
  std::vector<engine::FormLabel> labels(static_cast<std::size_t>(rows));
  for (const engine::FormRun& run : runs) {
    std::fill(labels.begin() + run.begin, labels.end(), static_cast<engine::FormLabel>(run.form));
  }
  return labels;
}

}  // namespace

engine::CacheSchema Engine::Impl::Schema() const {
  const CacheLayerView layer = cache.Layer(0);
  engine::CacheSchema schema;
  schema.layers = cache.layout().layers;
  schema.latent_elements = layer.latent_elements;
  schema.rope_elements = layer.rope_elements;
  schema.row_bytes = layer.row_bytes;
  schema.vocab_size = model.info().vocab_size;
  schema.rope_fingerprint = RopeFingerprint(model.impl().config.rope, sizes.options.context);
  schema.model_fingerprint = model.fingerprint();
  schema.dtype = DTypeName(layer.dtype);
  // Weights that stay in fp8 give the bits of the bf16 that they stand for.
  schema.weights = DTypeName(model.impl().kept == WeightDType::kF32 ? DType::kF32 : DType::kBF16);
  schema.mode = ModeName(sizes.options.mode);
  schema.kernels = transformer->kernels();
  return schema;
}

engine::RowsAt Engine::Impl::RowsOf(std::span<const std::int32_t> held, std::int64_t rows) const {
  return [this, held, rows](std::int64_t layer, std::int64_t token) {
    const CacheLayerView view = cache.Layer(layer);
    const std::int64_t within = token % view.page_tokens;
    const std::int64_t count = std::min(view.page_tokens - within, rows - token);
    const std::int32_t page = held[static_cast<std::size_t>(token / view.page_tokens)];
    return std::span(view.Row(page * view.page_tokens + within), static_cast<std::size_t>(count * view.row_bytes));
  };
}

Result<SavedCache> Engine::Impl::Save(std::span<const std::int32_t> ids, std::int64_t output, const std::string& path) {
  if (output < 0 || output >= std::ssize(ids)) {
    return Error{fmt::format("output: expected 0 or more, and fewer than the {} ids, found {}", ids.size(), output)};
  }
  const std::int64_t vocab = model.info().vocab_size;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab) return Error{fmt::format("ids: expected 0 to {}, found {}", vocab - 1, id)};
  }
  std::vector<std::int32_t> held;
  std::vector<engine::FormLabel> labels;
  engine::CacheFileContent content;
  content.rows = pages.Longest(ids, sequences, &held, &labels);
  if (content.rows == 0) return Error{fmt::format("cache: of these {} tokens no row is held to be saved", ids.size())};
  content.output = output;
  content.schema = Schema();
  content.ids.assign(ids.begin(), ids.end());
  content.forms = RunsOf(labels);
  MLA_ASSIGN_OR_RETURN(const std::int64_t bytes, engine::WriteCacheFile(path, content, RowsOf(held, content.rows)));
  return SavedCache{content.rows, bytes};
}

Result<LoadedCache> Engine::Impl::Load(const std::string& path) {
  if (sizes.options.prefix_reuse == PrefixReuse::kOff) {
    return Error{"prefix reuse: expected prompt or all, which find the rows of a cache file, found off"};
  }
  MLA_ASSIGN_OR_RETURN(engine::CacheFileReader reader, engine::CacheFileReader::Open(path));
  MLA_RETURN_IF_ERROR(reader.Require(Schema()));
  MLA_RETURN_IF_ERROR(reader.RequireAtMost(sizes.options.context, pages.total() * sizes.layout.page_tokens));
  MLA_RETURN_IF_ERROR(reader.ReadIds());
  const engine::CacheFileContent& content = reader.content();
  std::vector<engine::FormLabel> labels = LabelsOf(content.forms, content.rows);
  std::vector<std::int32_t> taken;
  const std::int64_t needed = sizes.layout.PagesFor(content.rows);
  if (!pages.TakePages(needed, &taken)) {
    return Error{fmt::format("cache: {} pages are needed to load {} rows, {} are free or idle", needed, content.rows,
                             pages.free() + pages.idle())};
  }
  const Status read = reader.ReadRows(RowsOf(taken, content.rows));
  LoadedCache loaded{content.ids, content.output, 0, reader.bytes()};
  if (read.ok()) {
    for (std::int64_t layer = 0; layer < cache.layout().layers; ++layer) {
      for (const std::int32_t page : taken) ClearPadding(cache.Layer(layer), page, sizes.layout.page_tokens);
    }
    loaded.rows = pages.ListPages(content.ids, labels, taken);
  }
  pages.GiveBack(taken);
  if (!read.ok()) return read.error();
  return loaded;
}

Result<SavedCache> Engine::SaveCache(std::span<const std::int32_t> ids, std::int64_t output, const std::string& path) {
  return WithoutThrow("cache file", [&] { return impl_->Save(ids, output, path); });
}

Result<LoadedCache> Engine::LoadCache(const std::string& path) {
  return WithoutThrow("cache file", [&] { return impl_->Load(path); });
}

}  // namespace mla
