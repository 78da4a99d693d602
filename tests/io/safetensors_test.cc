#include "io/safetensors.h"

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "testing/temp_dir.h"

namespace mla::io {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string File(const std::string& header, std::size_t data, std::uint64_t length) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>((length >> (8 * i)) & 0xff);
  return out + header + std::string(data, 'd');
}
std::string File(const std::string& header, std::size_t data) { return File(header, data, header.size()); }

Result<std::vector<SafetensorsEntry>> Parse(const std::string& file) {
  return ParseSafetensors(std::as_bytes(std::span(file)), "f");
}

std::string FileFault(const std::string& file) {
  const Result<std::vector<SafetensorsEntry>> entries = Parse(file);
  if (entries.ok()) return "";
  EXPECT_THAT(entries.error().message, StartsWith("f: "));
  EXPECT_EQ(entries.error().message.find('\n'), std::string::npos) << entries.error().message;
  return entries.error().message;
}

std::vector<SafetensorsEntry> Good(const std::string& file) {
  const Result<std::vector<SafetensorsEntry>> entries = Parse(file);
  EXPECT_TRUE(entries.ok()) << entries.error().message;
  return entries.ok() ? *entries : std::vector<SafetensorsEntry>();
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" + offsets + "]}";
}

// One tensor alone in a file with `data` bytes.
std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets, std::size_t data) {
  return File("{" + Entry("t", dtype, shape, offsets) + "}", data);
}

TEST(Safetensors, ReadsWhatIsThere) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + Entry("b", "BF16", "2,3", "8,20") + "," +
                             Entry("a", "F32", "2", "0,8") + "," + Entry("s", "F16", "", "20,22") + "," +
                             Entry("z", "I64", "4,0", "22,22") + "}   ";
  const std::vector<SafetensorsEntry> entries = Good(File(header, 22));
  ASSERT_EQ(entries.size(), 4U);
  const auto base = static_cast<std::int64_t>(8 + header.size());
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].dtype, DType::kF32);
  EXPECT_EQ(entries[0].begin, base);
  EXPECT_EQ(entries[0].end, base + 8);
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].dtype, DType::kBF16);
  EXPECT_TRUE(entries[1].known_dtype);
  EXPECT_EQ(entries[1].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(entries[2].dtype, DType::kF16);
  EXPECT_TRUE(entries[2].shape.empty());
  EXPECT_FALSE(entries[3].known_dtype);
  EXPECT_EQ(entries[3].dtype_name, "I64");
  EXPECT_TRUE(Good(File("{}", 0)).empty());
}

TEST(Safetensors, EveryTypeHasItsWidth) {
  const std::vector<std::pair<const char*, std::size_t>> widths = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8},     {"C64", 8}};
  for (const auto& [word, width] : widths) {
    EXPECT_EQ(Good(One(word, "3", "0," + std::to_string(3 * width), 3 * width)).size(), 1U) << word;
    EXPECT_THAT(FileFault(One(word, "3", "0," + std::to_string(3 * width + 1), 3 * width + 1)),
                HasSubstr("tensor t: expected"));
  }
  EXPECT_EQ(Good(One("F8_E4M3", "3", "0,3", 3))[0].dtype, DType::kF8E4M3);
  EXPECT_EQ(Good(One("F8_E8M0", "3", "0,3", 3))[0].dtype, DType::kF8E8M0);
  EXPECT_TRUE(Good(One("F8_E8M0", "3", "0,3", 3))[0].known_dtype);
  EXPECT_FALSE(Good(One("F8_E5M2", "3", "0,3", 3))[0].known_dtype);
  Good(One("F4", "4", "0,2", 2));
  Good(One("F6_E2M3", "4", "0,3", 3));
  EXPECT_THAT(FileFault(One("F4", "3", "0,2", 2)), HasSubstr("whole bytes"));
  for (const char* word : {"f32", "F31", "", "BF16 ", "Q4"}) {
    EXPECT_THAT(FileFault(One(word, "1", "0,4", 4)),
                HasSubstr("tensor t: expected a dtype of the safetensors format, found"));
  }
}

TEST(Safetensors, HeaderLength) {
  for (std::size_t n = 0; n < 8; ++n)
    EXPECT_THAT(FileFault(std::string(n, '\0')), HasSubstr("less than its 8-byte header"));
  EXPECT_THAT(FileFault(File("{}", 0, std::uint64_t{1} << 63)),
              HasSubstr("at most 100000000 bytes, found a length of 922"));
  EXPECT_THAT(FileFault(File("{}", 0, ~std::uint64_t{0})), HasSubstr("at most 100000000 bytes"));
  EXPECT_THAT(FileFault(File("{}", 0, 100'000'001)), HasSubstr("at most 100000000 bytes"));
  EXPECT_THAT(FileFault(File("{}", 0, 100'000'000)),
              HasSubstr("cut short: its header has 100000000 bytes, 2 are there"));
  EXPECT_THAT(FileFault(File("{}", 0, 3)), HasSubstr("cut short"));
  EXPECT_THAT(FileFault(File("", 0)), HasSubstr("begins with {, found an empty one"));
  EXPECT_THAT(FileFault(File(" {}", 0)), HasSubstr("begins with {"));
  EXPECT_THAT(FileFault(File("[]", 0)), HasSubstr("begins with {"));
  EXPECT_THAT(FileFault(File("{", 0)), HasSubstr("header: byte 1: expected JSON"));
}

TEST(Safetensors, EntriesOfAnotherForm) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {R"("t": 1)", "tensor t: expected an object of dtype, shape and data_offsets, found 1"},
      {R"("t": {"shape": [1], "data_offsets": [0, 4]})", "tensor t: expected a dtype, found nothing"},
      {R"("t": {"dtype": 5, "shape": [1], "data_offsets": [0, 4]})", "tensor t: expected a dtype, found 5"},
      {R"("t": {"dtype": "F32", "data_offsets": [0, 4]})", "tensor t: expected a shape, found nothing"},
      {R"("t": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]})", "tensor t: expected a shape, found 1"},
      {R"("t": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]})", "dimensions that are whole numbers from 0"},
      {R"("t": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]})",
       "dimensions that are whole numbers from 0, found -1"},
      {R"("t": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]})", "dimensions that are whole numbers from 0"},
      {R"("t": {"dtype": "F32", "shape": [1]})", "expected data_offsets [begin, end], found nothing"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [0]})",
       "expected data_offsets [begin, end], found an array of 1"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]})", "found an array of 3"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]})",
       "offsets that are whole numbers from 0, found -4"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.0]})", "offsets that are whole numbers from 0"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e30]})", "offsets that are whole numbers from 0"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]})",
       "expected data_offsets in order, found [4, 0]"},
      {R"("t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1})", R"(alone, found "x")"},
      {R"("__metadata__": 1)", "__metadata__: expected an object of strings, found 1"},
      {R"("__metadata__": {"a": 1})", R"(__metadata__: expected an object of strings, found "a": 1)"},
      {Entry("t", "F32", "1", "0,4") + "," + Entry("t", "F32", "1", "0,4"), R"(the key "t" appears twice)"},
  };
  for (const auto& [body, words] : table) EXPECT_THAT(FileFault(File("{" + body + "}", 4)), HasSubstr(words)) << body;
}

TEST(Safetensors, SizesThatOverflow) {
  const char* words = "expected a size in whole bytes below 2^60";
  EXPECT_THAT(FileFault(One("F32", "4294967296,4294967296", "0,4", 4)), HasSubstr(words));  // 2^64: 0 if it wrapped
  EXPECT_THAT(FileFault(One("F32", "4611686018427387904,4", "0,0", 0)), HasSubstr(words));
  EXPECT_THAT(FileFault(One("F32", "9223372036854775807", "0,4", 4)), HasSubstr(words));
  EXPECT_THAT(FileFault(One("U8", "4611686018427387904", "0,4", 4)), HasSubstr(words));
  EXPECT_THAT(FileFault(One("F32", "4611686018427387904,4,0", "0,0", 0)), HasSubstr(words));
  EXPECT_THAT(FileFault(One("F32", "0,4611686018427387904,4", "0,0", 0)), HasSubstr(words));
  EXPECT_THAT(FileFault(One("F32", "2", "9223372036854775799,9223372036854775807", 8)),
              HasSubstr("within the file's 8 bytes"));
  EXPECT_THAT(FileFault(One("F32", "9223372036854775808", "0,4", 4)), HasSubstr("whole numbers from 0"));
}

TEST(Safetensors, DataIsFilledWithoutOverlapOrHole) {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return FileFault(File("{" + Entry("a", "U8", "4", a) + "," + Entry("b", "U8", "4", b) + "}", data));
  };
  EXPECT_EQ(two("0,4", "4,8", 8), "");
  EXPECT_EQ(two("4,8", "0,4", 8), "");
  EXPECT_THAT(two("0,4", "3,7", 7), HasSubstr("tensor b: expected to begin at 4, where a ends, found 3"));
  EXPECT_THAT(two("0,4", "0,4", 4), HasSubstr("tensor b: expected to begin at 4, where a ends, found 0"));
  EXPECT_THAT(two("0,4", "5,9", 9), HasSubstr("tensor b: expected to begin at 4, where a ends, found 5"));
  EXPECT_THAT(two("1,5", "5,9", 9), HasSubstr("tensor a: expected to begin at 0, the first byte, found 1"));
  EXPECT_THAT(two("0,4", "4,8", 9), HasSubstr("expected 8 bytes of data, found 9"));
  EXPECT_THAT(two("0,4", "4,8", 7), HasSubstr("tensor b: expected its end within the file's 7 bytes of data, found 8"));
  // Empty tensors at a border, and inside another tensor.
  const auto with_empty = [](const std::string& at) {
    return FileFault(File(
        "{" + Entry("a", "U8", "4", "0,4") + "," + Entry("e", "U8", "0", at) + "," + Entry("b", "U8", "4", "4,8") + "}",
        8));
  };
  for (const char* at : {"0,0", "4,4", "8,8"}) EXPECT_EQ(with_empty(at), "") << at;
  for (const char* at : {"2,2", "9,9"}) EXPECT_NE(with_empty(at), "") << at;
}

TEST(Safetensors, EveryTruncationAndManyDamages) {
  const std::string file = File("{\"__metadata__\":{\"a\":\"b\"}," + Entry("a", "F32", "1,2", "0,8") + "," +
                                    Entry("b", "BF16", "3", "8,14") + "}",
                                14);
  Good(file);
  for (std::size_t i = 0; i < file.size(); ++i) {
    EXPECT_NE(FileFault(file.substr(0, i)), "") << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      // Fine or refused; where it is taken, all bytes named lie in the file.
      const Result<std::vector<SafetensorsEntry>> entries = Parse(damaged);
      if (!entries.ok()) continue;
      for (const SafetensorsEntry& entry : *entries) {
        EXPECT_LE(entry.begin, entry.end);
        EXPECT_LE(entry.end, static_cast<std::int64_t>(file.size()));
      }
    }
  }
}

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::size_t FilesIn(const std::string& dir) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(dir), std::filesystem::directory_iterator()));
}

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

TEST(SafetensorsWriter, WhatIsWrittenIsRead) {
  const testing::TempDir dir;
  const std::string path = dir.File("m.safetensors");
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, {{"z", DType::kF32, {2}},
                                                                      {"a \"\\\n\u00e9", DType::kBF16, {1, 3}},
                                                                      {"empty", DType::kF16, {0, 5}},
                                                                      {"s", DType::kF16, {}}});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(writer->Append(Bytes("0123")).ok());
  SafetensorsWriter moved = std::move(*writer);
  ASSERT_TRUE(moved.Append(Bytes("4567abcdefXY")).ok());
  ASSERT_TRUE(moved.Append({}).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  const Status finished = moved.Finish();
  ASSERT_TRUE(finished.ok()) << finished.error().message;
  EXPECT_EQ(FilesIn(dir.path()), 1U);
  const std::string file = ReadAll(path);
  const std::vector<SafetensorsEntry> entries = Good(file);
  ASSERT_EQ(entries.size(), 4U);
  const auto find = [&](std::string_view name) {
    for (const SafetensorsEntry& entry : entries) {
      if (entry.name == name) return entry;
    }
    return SafetensorsEntry();
  };
  const auto text = [&](const SafetensorsEntry& e) {
    return file.substr(static_cast<std::size_t>(e.begin), static_cast<std::size_t>(e.end - e.begin));
  };
  EXPECT_EQ(text(find("z")), "01234567");
  EXPECT_EQ(text(find("a \"\\\n\u00e9")), "abcdef");
  EXPECT_EQ(find("a \"\\\n\u00e9").shape, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(text(find("empty")), "");
  EXPECT_EQ(text(find("s")), "XY");
  EXPECT_EQ(find("z").begin % 8, 0);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(info.st_mode & 0777U, 0666U & ~mask);
}

TEST(SafetensorsWriter, NothingStaysOfAnUnfinishedFile) {
  const testing::TempDir dir;
  const std::string path = dir.Write("m.safetensors", "before");
  {
    SafetensorsWriter writer = SafetensorsWriter::Create(path, {{"a", DType::kF32, {2}}}).value();
    ASSERT_TRUE(writer.Append(Bytes("0123")).ok());
    EXPECT_EQ(FilesIn(dir.path()), 2U);
  }
  EXPECT_EQ(FilesIn(dir.path()), 1U);
  SafetensorsWriter few = SafetensorsWriter::Create(path, {{"a", DType::kF32, {2}}}).value();
  ASSERT_TRUE(few.Append(Bytes("0123")).ok());
  EXPECT_THAT(few.Finish().error().message, HasSubstr("expected 8 bytes of tensors, found 4"));
  EXPECT_FALSE(few.Finish().ok());
  SafetensorsWriter many = SafetensorsWriter::Create(path, {{"a", DType::kF32, {1}}}).value();
  EXPECT_THAT(many.Append(Bytes("01234")).error().message, HasSubstr("expected 4 bytes of tensors, found more"));
  EXPECT_FALSE(many.Append(Bytes("0123")).ok());
  EXPECT_FALSE(many.Finish().ok());
  EXPECT_EQ(FilesIn(dir.path()), 1U);
  EXPECT_EQ(ReadAll(path), "before");
  // And a finished one takes the place of what was there.
  SafetensorsWriter good = SafetensorsWriter::Create(path, {{"a", DType::kF32, {1}}}).value();
  ASSERT_TRUE(good.Append(Bytes("0123")).ok());
  ASSERT_TRUE(good.Finish().ok());
  EXPECT_EQ(FilesIn(dir.path()), 1U);
  EXPECT_EQ(Good(ReadAll(path)).size(), 1U);
}

TEST(SafetensorsWriter, ImpossibleSpecs) {
  const testing::TempDir dir;
  const std::string path = dir.File("m.safetensors");
  const auto fault = [&](std::vector<SafetensorsSpec> specs) {
    const Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, std::move(specs));
    return writer.ok() ? "" : writer.error().message;
  };
  EXPECT_THAT(fault({{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}, {"a", DType::kF32, {2}}}),
              HasSubstr("appears twice"));
  EXPECT_THAT(fault({{"a", DType::kF32, {-1}}}), HasSubstr("expected dims from 0"));
  EXPECT_THAT(fault({{"a", DType::kF32, {std::int64_t{1} << 40, std::int64_t{1} << 40}}}), HasSubstr("2^62"));
  EXPECT_THAT(fault({{"\xff", DType::kF32, {1}}}), HasSubstr("expected a name"));
  EXPECT_THAT(fault({{"__metadata__", DType::kF32, {1}}}), HasSubstr("expected a name"));
  EXPECT_EQ(FilesIn(dir.path()), 0U);
  const Result<SafetensorsWriter> nowhere = SafetensorsWriter::Create(dir.File("no/m.safetensors"), {});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, HasSubstr("can't be written: No such file"));
}

// Writes a megabyte where only `room` bytes fit; returns the message.
std::string WriteWithoutRoom(const std::string& path) {
  const std::vector<std::byte> piece(4096);
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, {{"a", DType::kF32, {1 << 18}}});
  if (!writer.ok()) return writer.error().message;
  for (int i = 0; i < 256; ++i) {
    if (const Status status = writer->Append(piece); !status.ok()) {
      EXPECT_FALSE(writer->Finish().ok());
      return status.error().message;
    }
  }
  const Status status = writer->Finish();
  return status.ok() ? "" : status.error().message;
}

TEST(SafetensorsWriter, AFileSizeLimitLeavesNothing) {
  const testing::TempDir dir;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 100'000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = WriteWithoutRoom(dir.File("m.safetensors"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("m.safetensors: can't be written: File too large"));
  EXPECT_EQ(FilesIn(dir.path()), 0U);
}

TEST(SafetensorsWriter, AFullDiskLeavesNothing) {
  const testing::TempDir dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=65536") != 0) GTEST_SKIP() << "can't mount a small tmpfs";
  const std::string message = WriteWithoutRoom(dir.File("m.safetensors"));
  EXPECT_THAT(message, HasSubstr("m.safetensors: can't be written: No space left on device"));
  EXPECT_EQ(FilesIn(dir.path()), 0U);
  EXPECT_EQ(::umount(dir.path().c_str()), 0);
}

}  // namespace
}  // namespace mla::io
