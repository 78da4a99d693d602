#include "base/numa.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> UpTo(int n) {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < n; ++cpu) cpus.push_back(cpu);
  return cpus;
}

TEST(CpuList, ReadsWhatTheKernelWrites) {
  const std::vector<int> all = UpTo(32);
  const auto read = [&](const char* text) { return ParseCpuList(text, all).value_or(std::vector<int>{-1}); };
  EXPECT_THAT(read("0-3,8,10-11\n"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(read("7"), ElementsAre(7));
  EXPECT_THAT(read("\n"), IsEmpty());  // a node with memory alone
  EXPECT_THAT(read(""), IsEmpty());
  EXPECT_THAT(read("30-99"), ElementsAre(30, 31));  // offline ones, or outside the mask
  EXPECT_THAT(read("40-2147483647"), IsEmpty());    // takes no memory
}

TEST(CpuList, CutsToTheMask) {
  EXPECT_THAT(*ParseCpuList("0-7", std::vector<int>{1, 5, 9}), ElementsAre(1, 5));
  EXPECT_THAT(*ParseCpuList("0-7", std::vector<int>{}), IsEmpty());
}

TEST(CpuList, RefusesWhatIsMalformed) {
  const std::vector<int> all = UpTo(32);
  for (const char* text : {"x", "0-", "-3", "3-1", "0,,2", "0,", ",0", "0-3-5", "1 2", "0x3", "+1", "99999999999",
                           "0-99999999999", "0\n1", "--"}) {
    EXPECT_FALSE(ParseCpuList(text, all)) << text;
  }
}

// A tree as under /sys/devices/system/node: what each node's cpulist holds, and files that stand beside them.
class Tree {
 public:
  explicit Tree(const std::map<std::string, std::string>& lists) {
    for (const auto& [name, list] : lists) {
      std::filesystem::create_directory(dir_.File(name));
      std::ofstream(dir_.File(name) + "/cpulist") << list;
    }
    for (const char* file : {"has_cpu", "online", "possible"}) (void)dir_.Write(file, "0-1\n");
    std::filesystem::create_directory(dir_.File("power"));
  }
  std::vector<NumaNode> Read(const std::vector<int>& allowed) const { return ReadNumaNodes(allowed, dir_.path()); }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

TEST(NumaNodes, AreReadByNumber) {
  const Tree tree({{"node10", "4-5\n"}, {"node2", "0-1,6\n"}, {"node3", "2-3\n"}});
  const auto nodes = tree.Read(UpTo(8));
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].id, 2);
  EXPECT_THAT(nodes[0].cpus, ElementsAre(0, 1, 6));
  EXPECT_EQ(nodes[1].id, 3);
  EXPECT_EQ(nodes[2].id, 10);
  EXPECT_THAT(nodes[2].cpus, ElementsAre(4, 5));
}

TEST(NumaNodes, LeaveOutMemoryAloneAndProcessorsThatMayNotBeUsed) {
  const Tree tree({{"node0", "0-3\n"}, {"node1", "4-7\n"}, {"node2", "\n"}, {"nodes", "9\n"}, {"node", "9\n"}});
  const auto nodes = tree.Read({2, 3, 5});
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_THAT(nodes[0].cpus, ElementsAre(2, 3));
  EXPECT_THAT(nodes[1].cpus, ElementsAre(5));
  EXPECT_EQ(tree.Read({0, 1}).size(), 1U);
  EXPECT_THAT(tree.Read({}), IsEmpty());
}

TEST(NumaNodes, AreUnknownWhereTheTreeIsMissingOrMalformed) {
  const std::vector<int> all = UpTo(8);
  EXPECT_THAT(ReadNumaNodes(all, "/nowhere/at/all"), IsEmpty());
  const TempDir empty;
  EXPECT_THAT(ReadNumaNodes(all, empty.path()), IsEmpty());
  EXPECT_THAT(ReadNumaNodes(all, empty.Write("file", "0-3\n")), IsEmpty());
  EXPECT_THAT(Tree({{"node0", "0-3\n"}, {"node1", "4-x\n"}}).Read(all), IsEmpty());
  EXPECT_THAT(Tree({{"node0", "0-3\n"}, {"node1", "3-7\n"}}).Read(all), IsEmpty()) << "3 can't be in both";
  const Tree no_list(std::map<std::string, std::string>{{"node0", "0-3\n"}});
  std::filesystem::create_directory(no_list.dir().File("node1"));
  EXPECT_THAT(no_list.Read(all), IsEmpty());
  std::map<std::string, std::string> many;
  for (int node = 0; node <= kMaxNodes; ++node) many["node" + std::to_string(node)] = std::to_string(node);
  EXPECT_THAT(Tree(many).Read(UpTo(200)), IsEmpty());
}

TEST(NumaNodes, OfThisMachineHoldEveryProcessorOnce) {
  const std::vector<int> allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  std::vector<int> all;
  for (const NumaNode& node : ReadNumaNodes(allowed)) all.insert(all.end(), node.cpus.begin(), node.cpus.end());
  std::sort(all.begin(), all.end());
  if (!all.empty()) {
    EXPECT_EQ(all, allowed);
  }
}

TEST(SpreadWorkers, FollowsTheProcessors) {
  const std::vector<NumaNode> even = {{0, UpTo(4)}, {1, UpTo(4)}};
  EXPECT_THAT(SpreadWorkers(1, even), ElementsAre(0));
  EXPECT_THAT(SpreadWorkers(2, even), ElementsAre(0, 1));
  EXPECT_THAT(SpreadWorkers(5, even), ElementsAre(0, 0, 0, 1, 1));
  const std::vector<NumaNode> uneven = {{0, UpTo(2)}, {1, UpTo(6)}, {5, UpTo(4)}};
  EXPECT_THAT(SpreadWorkers(2, uneven), ElementsAre(1, 2));
  EXPECT_THAT(SpreadWorkers(3, uneven), ElementsAre(0, 1, 2));
  EXPECT_THAT(SpreadWorkers(6, uneven), ElementsAre(0, 1, 1, 1, 2, 2));
  const std::vector<int> twice = SpreadWorkers(24, uneven);  // more threads than processors
  EXPECT_EQ(std::count(twice.begin(), twice.end(), 0), 4);
  EXPECT_EQ(std::count(twice.begin(), twice.end(), 1), 12);
  EXPECT_EQ(std::count(twice.begin(), twice.end(), 2), 8);
}

// The policy of this thread, or nothing where the system keeps it to itself.
std::optional<int> Policy(unsigned long* first_nodes) {
  int mode = -1;
  unsigned long nodes[16] = {};
  if (syscall(SYS_get_mempolicy, &mode, nodes, 1024, nullptr, 0) != 0) return std::nullopt;
  *first_nodes = nodes[0];
  return mode;
}

TEST(PreferNode, HoldsAsLongAsItLives) {
  unsigned long nodes = 0;
  const auto before = Policy(&nodes);
  {
    const PreferNode prefer(0);
    const auto during = Policy(&nodes);
    if (during && *during != before) {  // allowed here
      EXPECT_EQ(*during, MPOL_PREFERRED);
      EXPECT_EQ(nodes, 1U);
    }
  }
  EXPECT_EQ(Policy(&nodes), before);
  for (const int node : {-1, 1023, 1024, 1 << 30}) {  // none, or none that exists: harmless
    { const PreferNode prefer(node); }
    EXPECT_EQ(Policy(&nodes), before);
  }
}

TEST(PinThread, KeepsToTheProcessorsAndRefusesNone) {
  const std::vector<int> allowed = AllowedCpus();
  ASSERT_TRUE(PinThread(std::vector<int>{allowed.back()}));
  EXPECT_THAT(AllowedCpus(), ElementsAre(allowed.back()));
  EXPECT_FALSE(PinThread({}));
  EXPECT_FALSE(PinThread(std::vector<int>{-1, 1 << 20}));
  EXPECT_THAT(AllowedCpus(), ElementsAre(allowed.back()));
  ASSERT_TRUE(PinThread(allowed));
}

}  // namespace
}  // namespace mla::testing
