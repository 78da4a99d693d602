#include "io/checkpoint.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/safetensors.h"
#include "testing/temp_dir.h"

namespace mla::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr const char* kIndex = "model.safetensors.index.json";

// A file of F32 tensors of two elements, each value the tensor's number.
void WriteShard(const std::string& path, const std::vector<std::pair<std::string, float>>& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, value] : tensors) specs.push_back({name, DType::kF32, {2}});
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, specs);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (const auto& [name, value] : tensors) {
    const float values[2] = {value, -value};
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
}

std::string Map(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out;
  for (const auto& [tensor, file] : entries) out += (out.empty() ? "\"" : ",\"") + tensor + "\":\"" + file + "\"";
  return "{\"metadata\":{\"total_size\":1},\"weight_map\":{" + out + "}}";
}

float Value(const Checkpoint& checkpoint, std::string_view name) {
  const Tensor* tensor = checkpoint.Find(name);
  if (tensor == nullptr) return -1;
  float value = 0;
  std::memcpy(&value, tensor->data, sizeof(value));
  return value;
}

std::string Fault(const std::string& path) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
  if (checkpoint.ok()) return "";
  EXPECT_EQ(checkpoint.error().message.find('\n'), std::string::npos) << checkpoint.error().message;
  return checkpoint.error().message;
}

// Two shards and their index.
void WriteSharded(const TempDir& dir) {
  WriteShard(dir.File("s1.safetensors"), {{"b", 2}, {"a", 1}});
  WriteShard(dir.File("s2.safetensors"), {{"c", 3}});
  dir.Write(kIndex, Map({{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "s2.safetensors"}}));
}

TEST(Checkpoint, OneFileHoweverItIsFound) {
  const TempDir dir;
  WriteShard(dir.File("other.safetensors"), {{"x", 5}, {"w", 4}});
  for (const std::string& path : {dir.path(), dir.File("other.safetensors")}) {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    ASSERT_EQ(checkpoint->tensors().size(), 2U);
    EXPECT_EQ(checkpoint->tensors()[0].name, "w");  // sorted
    EXPECT_EQ(checkpoint->tensors()[0].file, "other.safetensors");
    EXPECT_EQ(checkpoint->tensors()[0].elements(), 2);
    EXPECT_EQ(checkpoint->tensors()[0].bytes, 8);
    EXPECT_EQ(Value(*checkpoint, "x"), 5);
    EXPECT_EQ(checkpoint->Find("v"), nullptr);
    EXPECT_EQ(checkpoint->Find("z"), nullptr);
    EXPECT_EQ(checkpoint->file_bytes(), static_cast<std::int64_t>(fs::file_size(dir.File("other.safetensors"))));
  }
  // model.safetensors comes before any other file.
  WriteShard(dir.File("model.safetensors"), {{"m", 6}});
  EXPECT_EQ(Value(Checkpoint::Open(dir.path()).value(), "m"), 6);
}

TEST(Checkpoint, Shards) {
  const TempDir dir;
  WriteSharded(dir);
  WriteShard(dir.File("model.safetensors"), {{"stale", 9}});  // the index decides
  Result<Checkpoint> opened = Checkpoint::Open(dir.path());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint checkpoint = std::move(opened).value();
  ASSERT_EQ(checkpoint.tensors().size(), 3U);
  EXPECT_EQ(Value(checkpoint, "a"), 1);
  EXPECT_EQ(Value(checkpoint, "b"), 2);
  EXPECT_EQ(Value(checkpoint, "c"), 3);
  EXPECT_EQ(checkpoint.Find("c")->file, "s2.safetensors");
  EXPECT_EQ(checkpoint.file_bytes(), static_cast<std::int64_t>(fs::file_size(dir.File("s1.safetensors")) +
                                                               fs::file_size(dir.File("s2.safetensors"))));
}

TEST(Checkpoint, NothingOrTooMuchToOpen) {
  const TempDir dir;
  EXPECT_THAT(Fault(dir.path()), HasSubstr("exactly one *.safetensors file, found 0 such files"));
  WriteShard(dir.File("a.safetensors"), {{"a", 1}});
  WriteShard(dir.File("b.safetensors"), {{"b", 1}});
  EXPECT_THAT(Fault(dir.path()), HasSubstr("exactly one *.safetensors file, found 2 such files"));
  EXPECT_THAT(Fault(dir.File("none")), HasSubstr("none: can't be opened: No such file"));
}

TEST(Checkpoint, FilesOfAnotherKind) {
  const TempDir dir;
  const std::string path = dir.File("model.safetensors");
  fs::create_directory(path);
  EXPECT_THAT(Fault(dir.path()), HasSubstr("model.safetensors: expected a regular file, found a directory"));
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(Fault(dir.path()), HasSubstr("found a pipe"));
  fs::remove(path);
  dir.Write("model.safetensors", "");
  EXPECT_THAT(Fault(dir.path()), HasSubstr("model.safetensors: the file is empty"));
  fs::remove(path);
  fs::create_symlink("/dev/zero", path);
  EXPECT_THAT(Fault(dir.path()), HasSubstr("found a device"));
  fs::remove(path);
  fs::create_symlink("gone", path);
  EXPECT_THAT(Fault(dir.path()), HasSubstr("model.safetensors: can't be opened"));
}

TEST(Checkpoint, NamesInTheIndexArePlain) {
  const TempDir dir;
  const TempDir outside;
  WriteShard(outside.File("s.safetensors"), {{"a", 1}});
  fs::create_directory(dir.File("sub"));
  WriteShard(dir.File("sub/s.safetensors"), {{"a", 1}});
  for (const std::string& name :
       {std::string("../") + fs::path(outside.path()).filename().string() + "/s.safetensors",
        outside.File("s.safetensors"), std::string("sub/s.safetensors"), std::string(""), std::string("."),
        std::string(".."), std::string("./s.safetensors"), std::string("s.safetensors\\u0000x")}) {
    dir.Write(kIndex, Map({{"a", name}}));
    EXPECT_THAT(Fault(dir.path()), AllOf(HasSubstr(kIndex), HasSubstr("tensor a in a file of this folder"))) << name;
  }
  for (const char* map : {R"({"weight_map": {"a": 1}})", R"({"weight_map": {"a": null}})"}) {
    dir.Write(kIndex, map);
    EXPECT_THAT(Fault(dir.path()), HasSubstr("tensor a in a file of this folder, by its plain name, found"));
  }
  for (const char* index : {"{}", "[]", R"({"weight_map": []})", R"({"weight_map": {}})"}) {
    dir.Write(kIndex, index);
    EXPECT_THAT(Fault(dir.path()), HasSubstr("weight_map")) << index;
  }
  dir.Write(kIndex, "{");
  EXPECT_THAT(Fault(dir.path()), HasSubstr("index.json: byte 1: expected JSON"));
  dir.Write(kIndex, R"({"weight_map": {"a": "x", "a": "x"}})");
  EXPECT_THAT(Fault(dir.path()), HasSubstr("appears twice"));
}

TEST(Checkpoint, IndexAndShardsMustAgree) {
  const TempDir dir;
  WriteSharded(dir);
  ASSERT_EQ(Fault(dir.path()), "");
  fs::rename(dir.File("s2.safetensors"), dir.File("moved"));
  EXPECT_THAT(Fault(dir.path()), HasSubstr("s2.safetensors: can't be opened: No such file"));
  fs::rename(dir.File("moved"), dir.File("s2.safetensors"));

  const std::string s1 = "s1.safetensors";
  const std::string s2 = "s2.safetensors";
  dir.Write(kIndex, Map({{"a", s1}, {"b", s1}, {"c", s2}, {"d", s2}}));
  EXPECT_THAT(Fault(dir.path()), HasSubstr("tensor d: expected in s2.safetensors, which does not hold it"));
  dir.Write(kIndex, Map({{"a", s1}, {"a2", s2}, {"b", s1}, {"c", s2}}));
  EXPECT_THAT(Fault(dir.path()), HasSubstr("tensor a2: expected in s2.safetensors, which does not hold it"));
  dir.Write(kIndex, Map({{"a", s1}, {"b", s2}, {"c", s2}}));
  EXPECT_THAT(Fault(dir.path()), HasSubstr("tensor b: expected in s2.safetensors, found in s1.safetensors"));
  dir.Write(kIndex, Map({{"a", s1}, {"c", s2}}));
  EXPECT_THAT(Fault(dir.path()), HasSubstr("expected every tensor in weight_map, found b in s1.safetensors alone"));
  dir.Write(kIndex, Map({{"a", s1}, {"b", s1}}));
  EXPECT_EQ(Fault(dir.path()), "");  // s2 is not named: not opened

  WriteShard(dir.File(s2), {{"c", 3}, {"a", 4}});
  dir.Write(kIndex, Map({{"a", s1}, {"b", s1}, {"c", s2}}));
  EXPECT_THAT(Fault(dir.path()), AllOf(HasSubstr("tensor a in one file, found it in"), HasSubstr(s1), HasSubstr(s2)));
}

TEST(Checkpoint, ATruncatedShardIsNamed) {
  const TempDir dir;
  WriteSharded(dir);
  fs::resize_file(dir.File("s2.safetensors"), fs::file_size(dir.File("s2.safetensors")) - 1);
  EXPECT_THAT(Fault(dir.path()), HasSubstr("s2.safetensors: tensor c: expected its end within the file's 7 bytes"));
}

TEST(Checkpoint, EveryTruncationOfAFile) {
  const TempDir dir;
  const std::string path = dir.File("model.safetensors");
  WriteShard(path, {{"a", 1}, {"b", 2}});
  for (std::uintmax_t size = fs::file_size(path); size-- > 0;) {
    fs::resize_file(path, size);
    EXPECT_THAT(Fault(path), HasSubstr("model.safetensors: ")) << size;
  }
}

// Hugging Face's cache: snapshots/REVISION/NAME are links to ../../blobs/HASH, and the snapshot itself may be one.
TEST(Checkpoint, LinksAreFollowedWhereverTheyLead) {
  const TempDir dir;
  const TempDir store;
  fs::create_directories(dir.File("blobs"));
  fs::create_directories(dir.File("snapshots/main"));
  WriteShard(dir.File("blobs/1111"), {{"a", 1}});
  WriteShard(store.File("2222"), {{"b", 2}});
  dir.Write("blobs/3333", Map({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}}));
  const std::string snapshot = dir.File("snapshots/main");
  fs::create_symlink("../../blobs/1111", snapshot + "/s1.safetensors");
  fs::create_symlink(store.File("2222"), snapshot + "/s2.safetensors");
  fs::create_symlink("../../blobs/3333", snapshot + "/" + kIndex);
  fs::create_directory_symlink("snapshots/main", dir.File("current"));
  for (const std::string& path : {snapshot, dir.File("current")}) {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(Value(*checkpoint, "a"), 1);
    EXPECT_EQ(Value(*checkpoint, "b"), 2);
  }
  EXPECT_EQ(Value(Checkpoint::Open(snapshot + "/s2.safetensors").value(), "b"), 2);
}

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) count += entry.exists() || true ? 1 : 0;
  return count;
}

std::size_t Mappings(const std::string& of) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(of) != std::string::npos ? 1 : 0;
  return count;
}

TEST(Checkpoint, DescriptorsAreClosedAndMappingsEnd) {
  const TempDir dir;
  WriteSharded(dir);
  const std::size_t before = OpenDescriptors();
  {
    Checkpoint checkpoint = Checkpoint::Open(dir.path()).value();
    EXPECT_EQ(OpenDescriptors(), before);
    EXPECT_EQ(Mappings(dir.path()), 2U);
    Checkpoint moved = std::move(checkpoint);
    EXPECT_EQ(Value(moved, "c"), 3);
  }
  EXPECT_EQ(Mappings(dir.path()), 0U);
  dir.Write(kIndex, Map({{"a", "s1.safetensors"}, {"b", "s1.safetensors"}, {"c", "absent"}}));
  EXPECT_NE(Fault(dir.path()), "");
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(Mappings(dir.path()), 0U);
}

// Kilobytes of the mapping of `path` that are in this process's memory.
long ResidentKb(const std::string& path) {
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find(path) != std::string::npos) inside = true;
    if (inside && line.rfind("Rss:", 0) == 0) return std::stol(line.substr(4));
  }
  return -1;
}

TEST(Checkpoint, DroppedPagesLeaveMemoryAndComeBack) {
  const TempDir dir;
  const std::string path = dir.File("model.safetensors");
  constexpr std::int64_t kElements = 1 << 20;
  SafetensorsWriter writer = SafetensorsWriter::Create(path, {{"first", DType::kF32, {3}},
                                                              {"big", DType::kF32, {kElements}},
                                                              {"none", DType::kF32, {0}},
                                                              {"last", DType::kF32, {3}}})
                                 .value();
  const std::vector<std::byte> data(static_cast<std::size_t>(4 * (kElements + 6)), std::byte{0x3f});
  ASSERT_TRUE(writer.Append(data).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const Checkpoint checkpoint = Checkpoint::Open(dir.path()).value();
  const Tensor& big = *checkpoint.Find("big");
  const auto touch = [&] {
    unsigned sum = 0;
    for (std::int64_t i = 0; i < big.bytes; i += 512) sum += std::to_integer<unsigned>(big.data[i]);
    return sum;
  };
  const unsigned sum = touch();
  EXPECT_GE(ResidentKb(path), 4096);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const Tensor& tensor : checkpoint.tensors()) checkpoint.Drop(tensor);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ResidentKb(path), 128);  // the pages at both ends, and what the kernel maps around them
  EXPECT_EQ(touch(), sum);
}

TEST(Checkpoint, TheDemo) {
  const Result<Checkpoint> checkpoint = Checkpoint::Open(testing::DemoDir());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const Tensor* tensor = checkpoint->Find("model.layers.1.mlp.gate.e_score_correction_bias");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kF32);
  EXPECT_EQ(tensor->shape, std::vector<std::int64_t>{8});
}

}  // namespace
}  // namespace mla::io
