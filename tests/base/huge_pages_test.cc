#include "base/huge_pages.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

std::string Write(const TempDir& dir, const std::string& name, const std::string& text) {
  const std::string path = dir.path() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// As proc(5) shows them, cut to a few lines each.
constexpr const char* kHeap =
    "5581c0a00000-5581c0a21000 rw-p 00000000 00:00 0                          [heap]\n"
    "Size:                132 kB\nRss:                   8 kB\nAnonHugePages:         0 kB\n"
    "Private_Hugetlb:       0 kB\nVmFlags: rd wr mr mw me ac sd \n";
constexpr const char* kAdvised =
    "7f1000000000-7f1000a00000 rw-p 00000000 00:00 0 \n"
    "Size:              10240 kB\nKernelPageSize:        4 kB\nRss:                6148 kB\n"
    "AnonHugePages:      6144 kB\nShared_Hugetlb:        0 kB\nPrivate_Hugetlb:       0 kB\n"
    "THPeligible:           1\nProtectionKey:         0\nVmFlags: rd wr mr mw me nr sd hg \n";
// A file whose name looks like a key, huge pages that nobody asked for, and "hg" within another word.
constexpr const char* kOthers =
    "7f2000000000-7f2000400000 r--s 00000000 fe:01 12                         /models/AnonHugePages: 77 kB\n"
    "Size:               4096 kB\nRss:                4096 kB\nAnonHugePages:      4096 kB\n"
    "VmFlags: rd mr mw me ms sd nh hgx \n";
constexpr const char* kReserved =
    "7f3000000000-7f3000400000 rw-p 00000000 00:0f 77                         /anon_hugepage (deleted)\n"
    "Size:               4096 kB\nKernelPageSize:     2048 kB\nRss:                   0 kB\n"
    "AnonHugePages:         0 kB\nShared_Hugetlb:        0 kB\nPrivate_Hugetlb:    2048 kB\n"
    "VmFlags: rd wr mr mw me de ht sd \n";

TEST(HugePageUse, CountsMappingsThatAskedForHugePages) {
  const TempDir dir;
  const auto use = ReadHugePageUse(Write(dir, "smaps", std::string(kHeap) + kAdvised + kOthers + kReserved + kHeap));
  ASSERT_TRUE(use);
  EXPECT_EQ(use->asked, (10240 + 4096) * 1024);
  EXPECT_EQ(use->resident, (6148 + 2048) * 1024);
  EXPECT_EQ(use->huge, (6144 + 2048) * 1024);
}

TEST(HugePageUse, IsNoneWhereNothingAsked) {
  const TempDir dir;
  const auto use = ReadHugePageUse(Write(dir, "smaps", std::string(kHeap) + kOthers));
  ASSERT_TRUE(use);
  EXPECT_EQ(use->asked, 0);
  EXPECT_EQ(use->resident, 0);
  EXPECT_EQ(use->huge, 0);
}

TEST(HugePageUse, IsUnknownWhereTheSystemDoesNotSay) {
  const TempDir dir;
  EXPECT_FALSE(ReadHugePageUse(dir.path() + "/none"));
  EXPECT_FALSE(ReadHugePageUse(dir.path()));  // a folder
  EXPECT_FALSE(ReadHugePageUse(Write(dir, "empty", "")));
  // Before Linux 3.8 there were no flags.
  EXPECT_FALSE(ReadHugePageUse(Write(dir, "old", "Size:   4096 kB\nRss:   4096 kB\nAnonHugePages:   4096 kB\n")));
  EXPECT_FALSE(ReadHugePageUse(Write(dir, "other", std::string(100000, '\0') + "\n:\nSize: x kB\n")));
}

TEST(HugePagePool, CountsWhatNobodyHasAClaimOn) {
  const TempDir dir;
  Write(dir, "nr_hugepages", "100\n");
  Write(dir, "free_hugepages", "70\n");
  Write(dir, "resv_hugepages", "25\n");
  const HugePagePool pool = ReadHugePagePool(dir.path());
  EXPECT_EQ(pool.total, 100);
  EXPECT_EQ(pool.free, 45);
  EXPECT_EQ(TooFewHugePages("weights", 46 * kHugePageBytes - 1, pool).message,
            "weights: expected 46 free huge pages of 2 MiB, found 45 of 100 (sysctl vm.nr_hugepages)");
}

TEST(HugePagePool, IsEmptyWhereItCannotBeRead) {
  const TempDir dir;
  EXPECT_EQ(ReadHugePagePool(dir.path() + "/none").total, 0);
  Write(dir, "nr_hugepages", "many\n");
  Write(dir, "free_hugepages", "-3\n");
  const HugePagePool pool = ReadHugePagePool(dir.path());
  EXPECT_EQ(pool.total, 0);
  EXPECT_EQ(pool.free, 0);
}

}  // namespace
}  // namespace mla::testing
