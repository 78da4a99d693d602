#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/statvfs.h>

#include "base/no_throw.h"
#include "bench/random_fill.h"
#include "bench/synthetic.h"
#include "io/file.h"
#include "io/new_folder.h"
#include "io/quote.h"

namespace mla::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;  // drawn at once, by all threads
constexpr std::int64_t kTaskBytes = std::int64_t{256} << 10;
constexpr std::int64_t kSpareBytes = std::int64_t{64} << 20;  // for headers, the index, the tokenizer, the file system

Status HasRoom(const std::string& out, std::int64_t bytes) {
  struct statvfs disk = {};
  const std::string parent = fs::path(out).parent_path().string();
  if (::statvfs(parent.empty() ? "." : parent.c_str(), &disk) != 0) return io::CantWrite(out, errno);
  const double free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  const double needed = static_cast<double>(bytes) + static_cast<double>(kSpareBytes);
  if (free >= needed) return {};
  return Error{
      fmt::format("{}: expected {:.0f} free bytes on the disk, found {:.0f}", io::Printable(out), needed, free)};
}

// What a tensor's elements are drawn from.
ValueTable TableOf(const SyntheticTensor& tensor, bool power_of_two_scales) {
  std::array<double, kLevels> values = NormalQuantiles();
  for (std::size_t i = 0; i < kLevels; ++i) {
    switch (tensor.kind) {
      case SyntheticTensor::Kind::kValues: values[i] = tensor.mean + tensor.deviation * values[i]; break;
      case SyntheticTensor::Kind::kCodes: values[i] *= 448 / LargestNormal(); break;
      case SyntheticTensor::Kind::kScales: {
        const double exponent = (static_cast<double>(i) + 0.5) / kLevels - 0.5;
        values[i] = tensor.deviation * std::exp2(exponent);
        if (power_of_two_scales) values[i] = std::exp2(std::round(std::log2(values[i])));
        break;
      }
    }
  }
  return {tensor.spec.dtype, values};
}

// Draws and writes tensors, piece by piece.
class Drawer {
 public:
  Drawer(const SyntheticPlan& plan, Executor& executor, const GoOn& go_on)
      : plan_(plan), executor_(executor), go_on_(go_on), piece_(static_cast<std::size_t>(kPieceBytes)) {}

  // True where it was stopped.
  Result<bool> Write(const SyntheticTensor& tensor, io::SafetensorsWriter* writer) {
    const auto& fp8 = plan_.config.config.fp8;
    const ValueTable table = TableOf(tensor, fp8 && fp8->power_of_two_scales);
    const std::uint64_t key = TensorKey(plan_.seed, tensor.spec.name);
    const auto width = static_cast<std::int64_t>(DTypeBytes(tensor.spec.dtype));
    const std::int64_t bytes = tensor.bytes();
    for (std::int64_t at = 0; at < bytes; at += kPieceBytes) {
      if (!go_on_(done_, plan_.bytes)) return true;
      const std::int64_t size = std::min(kPieceBytes, bytes - at);
      ParallelFor(executor_, (size + kTaskBytes - 1) / kTaskBytes, [&](std::int64_t task, int) {
        const std::int64_t begin = task * kTaskBytes;
        const std::int64_t end = std::min(size, begin + kTaskBytes);
        table.Fill(key, (at + begin) / width, {piece_.data() + begin, static_cast<std::size_t>(end - begin)});
      });
      MLA_RETURN_IF_ERROR(writer->Append({piece_.data(), static_cast<std::size_t>(size)}));
      done_ += size;
    }
    return false;
  }

 private:
  const SyntheticPlan& plan_;
  Executor& executor_;
  const GoOn& go_on_;
  std::vector<std::byte> piece_;
  std::int64_t done_ = 0;
};

std::string IndexJson(const SyntheticPlan& plan) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  for (const SyntheticShard& shard : plan.shards) {
    for (std::size_t i = shard.begin; i < shard.end; ++i) map[plan.tensors[i].spec.name] = shard.name;
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", plan.bytes}}}, {"weight_map", std::move(map)}};
  return index.dump(1) + "\n";
}

Result<bool> WriteShards(const SyntheticPlan& plan, const io::NewFolder& folder, Executor& executor,
                         const GoOn& go_on) {
  Drawer drawer(plan, executor, go_on);
  for (const SyntheticShard& shard : plan.shards) {
    std::vector<io::SafetensorsSpec> specs;
    for (std::size_t i = shard.begin; i < shard.end; ++i) specs.push_back(plan.tensors[i].spec);
    MLA_ASSIGN_OR_RETURN(auto writer, io::SafetensorsWriter::Create(folder.File(shard.name), std::move(specs)));
    for (std::size_t i = shard.begin; i < shard.end; ++i) {
      MLA_ASSIGN_OR_RETURN(const bool stopped, drawer.Write(plan.tensors[i], &writer));
      if (stopped) return true;
    }
    MLA_RETURN_IF_ERROR(writer.Finish());
  }
  if (plan.shards.size() > 1) {
    MLA_RETURN_IF_ERROR(folder.Write("model.safetensors.index.json", IndexJson(plan)));
  }
  return !go_on(plan.bytes, plan.bytes);
}

Result<bool> Write(const SyntheticPlan& plan, const std::string& out, Executor& executor, const GoOn& go_on) {
  // Before room is asked for: what is there already says more than a full disk.
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(out, ignored))) {
    return Error{fmt::format("{}: expected no such file or folder yet, found one", io::Printable(out))};
  }
  MLA_RETURN_IF_ERROR(HasRoom(out, plan.bytes));
  MLA_ASSIGN_OR_RETURN(io::NewFolder folder, io::NewFolder::Create(out));
  MLA_RETURN_IF_ERROR(folder.Write("config.json", plan.config.config_json));
  MLA_RETURN_IF_ERROR(folder.Write("generation_config.json", plan.config.generation_config_json));
  MLA_RETURN_IF_ERROR(folder.Write("tokenizer.json", plan.config.tokenizer_json));
  MLA_RETURN_IF_ERROR(folder.Write("tokenizer_config.json", plan.config.tokenizer_config_json));
  MLA_ASSIGN_OR_RETURN(const bool stopped, WriteShards(plan, folder, executor, go_on));
  if (stopped) return true;
  MLA_RETURN_IF_ERROR(folder.Finish());
  return false;
}

}  // namespace

Result<bool> WriteSynthetic(const SyntheticPlan& plan, const std::string& out, Executor& executor, const GoOn& go_on) {
  std::string path = out;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return WithoutThrow("synthetic checkpoint", [&] { return Write(plan, path, executor, go_on); });
}

}  // namespace mla::bench
