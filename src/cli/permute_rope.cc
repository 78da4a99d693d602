// mla permute-rope MODEL OUT: the same model with its rope channels in the other layout.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "base/check.h"
#include "cli/app.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "contract/config.h"
#include "contract/rope_rows.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "io/new_folder.h"
#include "io/quote.h"
#include "io/safetensors.h"

namespace mla::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceBytes = std::int64_t{8} << 20;

struct Source {
  std::string dir;
  contract::ModelConfig config;
  io::Checkpoint checkpoint;
  RopeLayout to = RopeLayout::kHalfSplit;
};

Result<Source> OpenSource(const std::string& dir) {
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) {
    return Error{fmt::format("{}: expected a folder with config.json and safetensors files", io::Printable(dir))};
  }
  MLA_ASSIGN_OR_RETURN(contract::ModelConfig config, contract::LoadConfig(dir));
  if (config.rope.layout == RopeLayout::kNone) {
    return Error{fmt::format("{}: expected a model that rotates channels, found one that rotates none (of {})",
                             io::Printable(dir), config.qk_rope_head_dim)};
  }
  const RopeLayout to =
      config.rope.layout == RopeLayout::kInterleaved ? RopeLayout::kHalfSplit : RopeLayout::kInterleaved;
  MLA_ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::Open(dir));
  MLA_RETURN_IF_ERROR(contract::RequireTensors(config, checkpoint));
  for (const io::Tensor& tensor : checkpoint.tensors()) {
    // Tables of older exports, which follow from the config, may be of any type.
    if (!tensor.known_dtype) {
      return Error{fmt::format("{}: expected a type that can be written, found {} in {}", io::Printable(tensor.name),
                               tensor.dtype_name, io::Printable(tensor.file))};
    }
    const auto rows = contract::RopeRowsOf(config, tensor.name);
    if (!rows || tensor.dtype != DType::kF8E4M3) continue;
    if (const auto fault = contract::RopeBlockFault(*rows, *config.fp8)) {
      return Error{fmt::format("{}: {}", tensor.name, *fault)};
    }
  }
  return Source{dir, std::move(config), std::move(checkpoint), to};
}

// The config's own text with one field changed.
Result<std::string> ConfigText(const Source& source) {
  MLA_ASSIGN_OR_RETURN(const contract::ConfigFile file, contract::ReadConfigFile(source.dir));
  auto json = nlohmann::ordered_json::parse(file.text, nullptr, false);
  if (!json.is_object()) return Error{fmt::format("{}: expected an object, found none", file.where)};
  json["rope_interleave"] = source.to == RopeLayout::kInterleaved;
  std::string changed = json.dump(2) + "\n";
  MLA_ASSIGN_OR_RETURN(const contract::ModelConfig config, contract::ParseConfig(changed, file.where));
  MLA_CHECK(config.rope.layout == source.to);
  return changed;
}

// True: go on.
using Tick = std::function<bool(std::int64_t bytes)>;

// Rows [0, rows) of a tensor in their new order. True where it was stopped.
Result<bool> AppendTensor(const Source& source, const io::Tensor& tensor, const Tick& tick,
                          io::SafetensorsWriter* writer) {
  const auto rope = contract::RopeRowsOf(source.config, tensor.name);
  const std::int64_t row_bytes = rope ? tensor.bytes / tensor.shape[0] : kPieceBytes;
  std::vector<std::byte> piece;
  for (std::int64_t row = 0; row * row_bytes < tensor.bytes; ++row) {
    const std::byte* from = tensor.data + (rope ? rope->Source(row, source.to) : row) * row_bytes;
    piece.insert(piece.end(), from, from + std::min(row_bytes, tensor.bytes - row * row_bytes));
    const auto have = static_cast<std::int64_t>(piece.size());
    if (have < kPieceBytes && (row + 1) * row_bytes < tensor.bytes) continue;
    MLA_RETURN_IF_ERROR(writer->Append(piece));
    piece.clear();
    if (!tick(have)) return true;
  }
  source.checkpoint.Drop(tensor);
  return false;
}

// The tensors file by file, each in the order of its data. True where it was stopped.
Result<bool> WriteTensors(const Source& source, const Tick& tick, const io::NewFolder& folder) {
  std::vector<const io::Tensor*> tensors;
  for (const io::Tensor& tensor : source.checkpoint.tensors()) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](const io::Tensor* a, const io::Tensor* b) {
    return a->file != b->file ? a->file < b->file : std::less<>()(a->data, b->data);
  });
  for (std::size_t begin = 0, end = 0; begin < tensors.size(); begin = end) {
    std::vector<io::SafetensorsSpec> specs;
    for (end = begin; end < tensors.size() && tensors[end]->file == tensors[begin]->file; ++end) {
      specs.push_back({tensors[end]->name, tensors[end]->dtype, tensors[end]->shape});
    }
    MLA_ASSIGN_OR_RETURN(io::SafetensorsWriter writer,
                         io::SafetensorsWriter::Create(folder.File(tensors[begin]->file), std::move(specs)));
    for (std::size_t i = begin; i < end; ++i) {
      MLA_ASSIGN_OR_RETURN(const bool stopped, AppendTensor(source, *tensors[i], tick, &writer));
      if (stopped) return true;
    }
    MLA_RETURN_IF_ERROR(writer.Finish());
  }
  return false;
}

// Weights in another form, which would be those of the old layout.
bool HoldsWeights(const fs::path& file) {
  const std::string extension = file.extension().string();
  constexpr std::string_view kForms[] = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"};
  return std::find(std::begin(kForms), std::end(kForms), extension) != std::end(kForms);
}

// The tokenizer and whatever else lies beside the weights. Returns the names of what was left out.
Result<std::vector<std::string>> CopyOthers(const Source& source, const io::NewFolder& folder) {
  std::vector<std::string> left_out;
  const auto tensors = source.checkpoint.tensors();
  std::error_code error;
  for (fs::directory_iterator it(source.dir, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name == "config.json") continue;
    if (std::any_of(tensors.begin(), tensors.end(), [&](const io::Tensor& t) { return t.file == name; })) continue;
    std::error_code ignored;
    if (!it->is_regular_file(ignored) || HoldsWeights(it->path())) {
      left_out.push_back(io::Printable(name));
      continue;
    }
    MLA_RETURN_IF_ERROR(folder.Copy(it->path().string(), name));
  }
  if (error) return Error{fmt::format("{}: can't be listed: {}", io::Printable(source.dir), error.message())};
  std::sort(left_out.begin(), left_out.end());
  return left_out;
}

struct PermuteOptions {
  std::string model;
  std::string out;
  bool quiet = false;
};

Result<int> Run(const PermuteOptions& o, const Log& log) {
  InterruptScope interrupt;
  MLA_ASSIGN_OR_RETURN(const Source source, OpenSource(o.model));
  MLA_ASSIGN_OR_RETURN(const std::string config, ConfigText(source));
  interrupt.Defer();  // what is half written is removed first
  MLA_ASSIGN_OR_RETURN(io::NewFolder folder, io::NewFolder::Create(o.out));
  std::int64_t total = 0;
  for (const io::Tensor& tensor : source.checkpoint.tensors()) total += tensor.bytes;
  {
    ProgressLine progress(!o.quiet, "writing");
    std::int64_t done = 0;
    MLA_ASSIGN_OR_RETURN(const bool stopped, WriteTensors(
                                                 source,
                                                 [&](std::int64_t bytes) {
                                                   progress.Update(done += bytes, total);
                                                   return !interrupt.Requested();
                                                 },
                                                 folder));
    if (stopped) {
      log->warn("interrupted: nothing was made");
      return kInterrupted;
    }
  }
  MLA_ASSIGN_OR_RETURN(const std::vector<std::string> left_out, CopyOthers(source, folder));
  // Last: without it, no part of this is a checkpoint to anyone.
  MLA_RETURN_IF_ERROR(folder.Write("config.json", config));
  MLA_RETURN_IF_ERROR(folder.Finish());
  if (!left_out.empty()) log->warn("not copied: {}", fmt::join(left_out, ", "));
  if (o.quiet) return kDone;
  MLA_RETURN_IF_ERROR(
      WriteOut(fmt::format("{}: {} rope channels, {} in {}\n", io::Printable(o.out), RopeLayoutName(source.to),
                           RopeLayoutName(source.config.rope.layout), io::Printable(o.model))));
  MLA_RETURN_IF_ERROR(FlushOut());
  return kDone;
}

}  // namespace

Action AddPermuteRope(CLI::App& app, const Log& log) {
  CLI::App* command =
      app.add_subcommand("permute-rope", "Copy a checkpoint with its rope channels in the other layout");
  auto options = std::make_shared<PermuteOptions>();
  command->add_option("MODEL", options->model, "Model folder: config.json and safetensors files")->required();
  command->add_option("OUT", options->out, "Folder to make; must not be there yet")->required();
  command->add_flag("--quiet,-q", options->quiet, "No progress, no summary");
  command->footer(
      "Interleaved becomes half-split and the other way round: the last rows of each head in q_proj or q_b_proj, and "
      "of "
      "kv_a_proj_with_mqa, are reordered, and rope_interleave in config.json says so. The model is the same; software "
      "that does not read rope_interleave would take it for another. Products in fp8 keep their scales: rope rows that "
      "pass from one block to the next are refused.");
  return [options, log] { return Run(*options, log); };
}

}  // namespace mla::cli
