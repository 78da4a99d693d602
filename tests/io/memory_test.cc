// What parsing takes of memory, counted at operator new, against the bytes of the file: a small multiple of them, for
// hostile files too. Mapped files don't count.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "mla/tokenizer.h"
#include "testing/temp_dir.h"
#include "text/tiktoken_file.h"

namespace {

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};

void* Allocate(std::size_t bytes) {
  void* block = std::malloc(bytes == 0 ? 1 : bytes);
  if (block == nullptr) throw std::bad_alloc();
  const std::int64_t now = live += static_cast<std::int64_t>(malloc_usable_size(block));
  if (now > peak) peak = now;
  return block;
}

void Release(void* block) noexcept {
  if (block != nullptr) live -= static_cast<std::int64_t>(malloc_usable_size(block));
  std::free(block);
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void operator delete(void* block) noexcept { Release(block); }
void operator delete[](void* block) noexcept { Release(block); }
void operator delete(void* block, std::size_t /*bytes*/) noexcept { Release(block); }
void operator delete[](void* block, std::size_t /*bytes*/) noexcept { Release(block); }

namespace mla {
namespace {

// The most that `work` held at a time beyond what was there before, for each byte of a file of `bytes`.
double PerByte(std::size_t bytes, const std::function<void()>& work) {
  const std::int64_t before = live;
  peak = before;
  work();
  const double ratio = static_cast<double>(peak - before) / static_cast<double>(bytes);
  fmt::print("{:.2f} bytes a byte, of {}\n", ratio, bytes);
  return ratio;
}

std::string Repeated(const std::string& head, const std::string& item, const std::string& tail, std::size_t times) {
  std::string text = head;
  for (std::size_t i = 0; i < times; ++i) text += item;
  text.back() = tail[0];
  return text;
}

// A value is 16 bytes, once on the stack of what is open and once in its array while they move, with at least 2 bytes
// of text: 16. A string of 9 bytes or more is a block of up to 32, with 12 of text or more; an array of one value one
// of 24 (16 and its length), with 4: (2 * 16 + 24) / 4 = 14. 20 leaves room for what the stack's blocks hold beside it.
TEST(Memory, HostileJson) {
  constexpr std::size_t kTimes = 500'000;
  for (const char* item : {"1,", "[],", "[1],", "{},", "\"\",", "\"123456789\",", "{\"a\":1},", "[[[1]]],", "-0.5,"}) {
    const std::string text = Repeated("[", item, "]", kTimes);
    EXPECT_LT(PerByte(text.size(), [&] { EXPECT_TRUE(io::ParseJson(text, "t").ok()); }), 20) << item;
  }
  std::string text = "{";
  for (std::size_t i = 0; i < kTimes; ++i) text += fmt::format("\"{:x}\":1,", i);
  text.back() = '}';
  EXPECT_LT(PerByte(text.size(), [&] { EXPECT_TRUE(io::ParseJson(text, "t").ok()); }), 20);
}

// A config of 10 MB: an unknown field that holds a long list.
TEST(Memory, AConfigIsRefusedWithinItsLimit) {
  const testing::TempDir dir;
  const std::string text = Repeated("{\"torch_dtype\":[", "0,", "]", 5'000'000) + "}";
  dir.Write("config.json", text);
  EXPECT_LT(PerByte(text.size(), [&] { EXPECT_FALSE(contract::LoadConfig(dir.path()).ok()); }), 20);
}

std::string Header(std::size_t tensors) {
  std::string json = "{";
  for (std::size_t i = 0; i < tensors; ++i) {
    json += fmt::format(
        R"("model.layers.{}.mlp.experts.{}.gate_proj.weight":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}},)",
        i / 256, i % 256, i, i + 1);
  }
  json.back() = '}';
  return json;
}

std::string Shard(std::size_t tensors) {
  const std::string header = Header(tensors);
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return file + header + std::string(tensors, 'x');
}

// A tree, then the entries: a tensor has 100 bytes of header, eight values, four blocks and two names: below 8.
TEST(Memory, HeadersAndAnIndex) {
  constexpr std::size_t kTensors = 100'000;
  const std::string file = Shard(kTensors);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(file.data()), file.size());
  EXPECT_LT(PerByte(file.size(), [&] { EXPECT_TRUE(io::ParseSafetensors(bytes, "t").ok()); }), 8);

  const testing::TempDir dir;
  std::string index = "{\"weight_map\":{";
  for (std::size_t i = 0; i < kTensors; ++i) {
    index += fmt::format(R"("model.layers.{}.mlp.experts.{}.gate_proj.weight":"model-00001-of-00001.safetensors",)",
                         i / 256, i % 256);
  }
  index.back() = '}';
  index += "}";
  dir.Write("model.safetensors.index.json", index);
  dir.Write("model-00001-of-00001.safetensors", file);
  EXPECT_LT(PerByte(index.size() + file.size(), [&] { EXPECT_TRUE(io::Checkpoint::Open(dir.path()).ok()); }), 8);
}

// A line of 11 bytes or more: an entry of 40 bytes, two indices and a line of 4 each, then a table's node and place for
// each token: below 16.
TEST(Memory, ATiktokenFile) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (int i = 0; i < 262144; ++i) {
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[(i >> shift) & 63];
    text += fmt::format(" {}\n", i);
  }
  EXPECT_LT(PerByte(text.size(), [&] { EXPECT_TRUE(text::ParseTiktoken(text, "t").ok()); }), 16);
  // A rank says nothing about how long its file is; a space nothing about how many lines there are.
  const std::string far = "YQ== 16777215\n";
  EXPECT_LT(PerByte(far.size(), [&] { EXPECT_FALSE(text::ParseTiktoken(far, "t").ok()); }), 100);
  const std::string spaces(1'000'000, ' ');
  EXPECT_LT(PerByte(spaces.size(), [&] { EXPECT_FALSE(text::ParseTiktoken(spaces, "t").ok()); }), 16);
}

// The vocabulary of DeepSeek-V3, 7.8 MB.
TEST(Memory, ATokenizer) {
  if (testing::SharedDir().empty()) GTEST_SKIP() << "no shared folder";
  const std::string dir = testing::SharedDir() + "/data/deepseek_v3_tokenizer";
  const auto bytes = io::ReadFile(dir + "/tokenizer.json", std::int64_t{1} << 30);
  if (!bytes.ok()) GTEST_SKIP() << bytes.error().message;
  EXPECT_LT(PerByte(bytes->size(), [&] { EXPECT_TRUE(Tokenizer::Load(dir).ok()); }), 12);
}

}  // namespace
}  // namespace mla
