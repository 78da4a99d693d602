// A folder that appears whole or not at all.
#include "io/new_folder.h"

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "io/new_file.h"
#include "testing/temp_dir.h"

namespace mla::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::TempDir;

std::string Text(const std::string& path) { return ReadFile(path, 1000).value(); }

bool IsEmpty(const std::string& folder) { return fs::directory_iterator(folder) == fs::directory_iterator(); }

TEST(NewFolder, AppearsOnceItIsWhole) {
  const TempDir dir;
  dir.Write("source", "copied");
  fs::create_symlink("source", dir.File("link"));
  for (const char* name : {"out", "slashed//"}) {
    NewFolder made = NewFolder::Create(dir.File(name)).value();
    NewFolder folder = std::move(made);
    ASSERT_TRUE(folder.Write("a", "text").ok());
    ASSERT_TRUE(folder.Copy(dir.File("link"), "b").ok());
    EXPECT_FALSE(fs::exists(dir.File(name)));
    EXPECT_EQ(Text(folder.File("a")), "text");
    ASSERT_TRUE(folder.Finish().ok());
    EXPECT_EQ(Text(dir.File(name) + "/a"), "text");
    EXPECT_EQ(Text(dir.File(name) + "/b"), "copied");
    EXPECT_FALSE(fs::is_symlink(dir.File(name) + "/b"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 4) << "and nothing beside";
}

TEST(NewFolder, NothingStaysOfAnUnfinishedOne) {
  const TempDir dir;
  {
    const NewFolder folder = NewFolder::Create(dir.File("out")).value();
    ASSERT_TRUE(folder.Write("a", "text").ok());
    EXPECT_FALSE(folder.Write("a", "again").ok());
    EXPECT_FALSE(folder.Copy(dir.File("none"), "b").ok());
    EXPECT_FALSE(IsEmpty(dir.path()));
  }
  EXPECT_TRUE(IsEmpty(dir.path()));
}

TEST(NewFolder, NeverReplacesAnything) {
  const TempDir dir;
  dir.Write("file", "x");
  fs::create_directory(dir.File("empty"));
  fs::create_symlink("nowhere", dir.File("dangling"));
  for (const char* name : {"file", "empty", "dangling"}) {
    const auto folder = NewFolder::Create(dir.File(name));
    ASSERT_FALSE(folder.ok());
    EXPECT_THAT(folder.error().message, HasSubstr(std::string(name) + ": expected no file or folder of that name"));
  }
  // Taken in the meantime, by an empty folder too.
  NewFolder folder = NewFolder::Create(dir.File("late")).value();
  fs::create_directory(dir.File("late"));
  const Status status = folder.Finish();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("late: expected no file or folder of that name"));
  const auto orphan = NewFolder::Create(dir.File("no/such"));
  ASSERT_FALSE(orphan.ok());
  EXPECT_THAT(orphan.error().message, HasSubstr("can't be written"));
}

TEST(ReplaceFile, IsTheOldOneOrTheNewOne) {
  const TempDir dir;
  const std::string path = dir.Write("a", "old and longer");
  ASSERT_TRUE(ReplaceFile(path, "new").ok());
  EXPECT_EQ(Text(path), "new");
  ASSERT_TRUE(ReplaceFile(dir.File("b"), "").ok());
  EXPECT_EQ(Text(dir.File("b")), "");
  fs::create_directory(dir.File("folder"));
  for (const std::string& bad : {dir.File("folder"), dir.File("none/a")}) {
    const Status status = ReplaceFile(bad, "text");
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr(bad + ": can't be written: "));
  }
  // Nothing is left beside them.
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 3);
}

}  // namespace
}  // namespace mla::io
