#include "bench/tune_file.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "bench/random_weights.h"
#include "contract/fields.h"
#include "io/file.h"
#include "io/json.h"
#include "io/quote.h"

namespace mla::bench {
namespace {

constexpr const char* kFormat = "mla-tune";
constexpr std::int64_t kVersion = 2;
constexpr std::int64_t kMostBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;

using contract::Fields;

std::string TakeText(Fields* fields, std::string_view name) {
  const io::JsonValue* value = fields->Take(name);
  if (value != nullptr && value->kind() == io::JsonValue::Kind::kString) return std::string(value->string());
  fields->Fail(name, "a string", contract::Describe(value));
  return "";
}

std::vector<std::int64_t> TakeInts(Fields* fields, std::string_view name) {
  std::vector<std::int64_t> list;
  const io::JsonValue* value = fields->Take(name);
  bool good = value != nullptr && value->kind() == io::JsonValue::Kind::kArray;
  for (const io::JsonValue& item : good ? value->items() : std::span<const io::JsonValue>()) {
    good = good && item.is_int() && item.integer() >= 0 && item.integer() <= kMostPositions;
    list.push_back(item.integer());
  }
  if (!good) fields->Fail(name, "a list of whole numbers", contract::Describe(value));
  return list;
}

void RefuseUnknown(Fields* fields) {
  if (const auto unknown = fields->FirstUnknown()) fields->Fail(*unknown, "no such field", "one");
}

TunedShape TakeShape(Fields* f) {
  constexpr std::int64_t kMostDim = std::int64_t{1} << 24;
  TunedShape shape;
  shape.name = TakeText(f, "name");
  shape.passes = f->Int("passes", 1, std::int64_t{1} << 40);
  MeasuredForms& m = shape.forms;
  m.dims.num_attention_heads = f->Int("num_attention_heads", 1, kMostDim);
  m.dims.qk_nope_head_dim = f->Int("qk_nope_head_dim", 1, kMostDim);
  m.dims.qk_rope_head_dim = f->Int("qk_rope_head_dim", 0, kMostDim);
  m.dims.v_head_dim = f->Int("v_head_dim", 1, kMostDim);
  m.dims.kv_lora_rank = f->Int("kv_lora_rank", 1, kMostDim);
  m.rows = TakeInts(f, "rows");
  m.cached = TakeInts(f, "cached");
  const contract::NumberRange seconds = {0, false, 1e9, "seconds above 0"};
  m.mha_seconds = f->Numbers("mha_seconds", m.rows.size() * m.cached.size(), seconds);
  m.absorbed_seconds = f->Numbers("absorbed_seconds", m.rows.size() * m.cached.size(), seconds);
  RefuseUnknown(f);
  return shape;
}

TunedProducts TakeProducts(Fields* f) {
  constexpr std::int64_t kMostWidth = std::int64_t{1} << 24;
  TunedProducts products;
  products.n = f->Int("n", 1, kMostWidth);
  products.k = f->Int("k", 1, kMostWidth);
  products.rows = TakeInts(f, "rows");
  const std::vector<std::int64_t>& rows = products.rows;
  if (rows.empty() || rows.front() < 1 || rows.back() > kMostWidth ||
      std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) != rows.end()) {
    f->Fail("rows", "ascending numbers from 1 to 2^24", "others");
  }
  products.seconds = f->Numbers("seconds", rows.size(), {0, false, 1e9, "seconds above 0"});
  products.read_bytes = f->Number("read_bytes", {0, false, 1e24, "bytes a second, above 0"});
  RefuseUnknown(f);
  return products;
}

void TakeShapes(Fields* fields, TuneFile* file) {
  const io::JsonValue* shapes = fields->Take("shapes");
  if (shapes == nullptr || shapes->items().empty() || shapes->items().size() > 256) {
    fields->Fail("shapes", "a list of 1 to 256 shapes", contract::Describe(shapes));
    return;
  }
  for (std::size_t i = 0; i < shapes->items().size() && fields->ok(); ++i) {
    Fields inner = fields->Inner(fmt::format("shapes[{}]", i), shapes->items()[i]);
    TunedShape shape = TakeShape(&inner);
    fields->Adopt(inner);
    const auto same = [&](const TunedShape& other) { return other.forms.dims == shape.forms.dims; };
    if (std::any_of(file->shapes.begin(), file->shapes.end(), same)) {
      fields->Fail(fmt::format("shapes[{}]", i), "dims that no other shape has", "the same");
    }
    file->shapes.push_back(std::move(shape));
  }
}

nlohmann::ordered_json ProductsJson(const TunedProducts& products) {
  return {{"n", products.n},
          {"k", products.k},
          {"rows", products.rows},
          {"seconds", products.seconds},
          {"read_bytes", products.read_bytes}};
}

nlohmann::ordered_json ShapeJson(const TunedShape& shape) {
  const MeasuredForms& m = shape.forms;
  nlohmann::ordered_json json;
  json["name"] = shape.name;
  json["passes"] = shape.passes;
  json["num_attention_heads"] = m.dims.num_attention_heads;
  json["qk_nope_head_dim"] = m.dims.qk_nope_head_dim;
  json["qk_rope_head_dim"] = m.dims.qk_rope_head_dim;
  json["v_head_dim"] = m.dims.v_head_dim;
  json["kv_lora_rank"] = m.dims.kv_lora_rank;
  json["rows"] = m.rows;
  json["cached"] = m.cached;
  json["mha_seconds"] = m.mha_seconds;
  json["absorbed_seconds"] = m.absorbed_seconds;
  return json;
}

}  // namespace

bool IsTableName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

std::string TuneFileText(const TuneFile& file) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["name"] = file.name;
  json["processor"] = file.machine.processor;
  json["kernels"] = file.machine.kernels;
  json["build"] = file.machine.build;
  json["threads"] = file.machine.threads;
  json["kv_dtype"] = file.machine.kv_dtype;
  json["weights"] = file.machine.weights;
  json["products"] = ProductsJson(file.products);
  json["chunk"] = file.chunk;
  for (const TunedShape& shape : file.shapes) json["shapes"].push_back(ShapeJson(shape));
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

Result<ReadTable> ParseTuneFile(std::string_view text, std::string_view where) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue root, io::ParseJson(text, where));
  ReadTable read;
  TuneFile& file = read.file;
  Fields fields(root, where);
  fields.Word("format", {kFormat});
  fields.Int("version", kVersion, kVersion);
  file.name = TakeText(&fields, "name");
  if (!IsTableName(file.name)) {
    fields.Fail("name", "1 to 64 letters, digits, '.', '_' or '-'", io::Quoted(file.name));
  }
  file.machine.processor = TakeText(&fields, "processor");
  file.machine.kernels = TakeText(&fields, "kernels");
  file.machine.build = TakeText(&fields, "build");
  file.machine.threads = static_cast<int>(fields.Int("threads", 1, 4096));
  file.machine.kv_dtype = fields.Word("kv_dtype", {"bf16", "f32"});
  file.machine.weights = fields.Word("weights", {"bf16", "f32"});
  if (const io::JsonValue* products = fields.Take("products")) {
    Fields inner = fields.Inner("products", *products);
    file.products = TakeProducts(&inner);
    fields.Adopt(inner);
  } else {
    fields.Fail("products", "an object", contract::Describe(nullptr));
  }
  file.chunk = fields.Int("chunk", 1, kMostPositions);
  TakeShapes(&fields, &file);
  RefuseUnknown(&fields);
  if (!fields.ok()) return fields.error();
  read.table.id = fmt::format("{}-{:016x}", file.name, HashOf(std::as_bytes(std::span(text))));
  read.table.chunk = file.chunk;
  for (const TunedShape& shape : file.shapes) read.table.measured.push_back(shape.forms);
  if (const Status good = CheckFormTable(read.table); !good.ok()) {
    return Error{fmt::format("{}: {}", where, good.error().message)};
  }
  return read;
}

plan::Rates RatesOf(const ReadTable& table) {
  const TunedProducts& p = table.file.products;
  const double bytes = static_cast<double>(ShapeOf(*FindWeightFormat(table.file.machine.weights), p.n, p.k).bytes());
  plan::Rates rates;
  rates.id = table.table.id;
  for (std::size_t i = 0; i < p.rows.size(); ++i) {
    const double multiply_adds = static_cast<double>(p.rows[i]) * static_cast<double>(p.n) * static_cast<double>(p.k);
    rates.measured_products.push_back({multiply_adds / bytes, multiply_adds / p.seconds[i]});
    rates.products = std::max(rates.products, multiply_adds / p.seconds[i]);
  }
  rates.expand = rates.absorb = rates.mha = rates.absorbed = rates.products;
  rates.read_bytes = p.read_bytes;
  rates.forms = table.table;
  return rates;
}

Result<ReadTable> ReadTuneFile(const std::string& path) {
  MLA_ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path, kMostBytes));
  return ParseTuneFile(text, io::Printable(path));
}

}  // namespace mla::bench
