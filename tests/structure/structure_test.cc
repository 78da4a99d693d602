// Holds the tree to the design's house, and each rule to a small tree that breaks it.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "structure/rules.h"

namespace mla::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Tree& RealTree() {
  static const Tree kTree = ReadTree(MLA_SOURCE_DIR);
  return kTree;
}

Edges RealEdges() {
  Complaints complaints;
  Edges edges = CMakeEdges(RealTree(), &complaints);
  EXPECT_THAT(complaints, IsEmpty());
  return edges;
}

TEST(Structure, TheTreeIsRead) {
  EXPECT_GT(RealTree().count("src/base/check.h"), 0U);
  EXPECT_GT(RealTree().count("include/mla/result.h"), 0U);
  EXPECT_GT(RealTree().count(".ci/run"), 0U);
  EXPECT_EQ(RealTree().count("models/demo/model.safetensors"), 0U);
  for (const auto& [path, text] : RealTree()) EXPECT_NE(path.rfind("build/", 0), 0U) << path;
  EXPECT_THAT(RealEdges().at("attention"), ElementsAre("base", "cache", "ops"));
}

TEST(Structure, FoldersHaveTheDesignsEdges) {
  EXPECT_THAT(CheckEdgesAgainstDesign(RealEdges(), DesignEdges()), IsEmpty());
}
TEST(Structure, IncludesKeepToTheEdges) { EXPECT_THAT(CheckIncludes(RealTree(), RealEdges()), IsEmpty()); }
TEST(Structure, HeadersIncludeNoThirdParty) { EXPECT_THAT(CheckHeadersUseNoThirdParty(RealTree()), IsEmpty()); }
TEST(Structure, NoCycles) {
  EXPECT_THAT(CheckNoCycles(RealTree(), RealEdges()), IsEmpty());
  EXPECT_THAT(CheckNoCycles({}, DesignEdges()), IsEmpty());
}
TEST(Structure, FilesHaveAtMost500Lines) { EXPECT_THAT(CheckFileLengths(RealTree(), 500), IsEmpty()); }
TEST(Structure, NoPathsOfOneMachine) { EXPECT_THAT(CheckNoMachinePaths(RealTree()), IsEmpty()); }
TEST(Structure, KernelFilesIncludeNoLibraryCode) { EXPECT_THAT(CheckKernelIncludes(RealTree()), IsEmpty()); }

// Trees that break one rule each.

TEST(StructureRules, CMakeListsAreParsed) {
  Complaints complaints;
  const Edges edges = CMakeEdges({{"src/CMakeLists.txt", "set(folders base)\n"},
                                  {"src/a/a.cc", ""},
                                  {"src/a/CMakeLists.txt", "mla_folder(a DEPS b c\n  LIBS fmt::fmt)\n"},
                                  {"src/b/b.cc", ""},
                                  {"src/b/CMakeLists.txt", "mla_folder(b LIBS x DEPS c)\n"},
                                  {"src/c/c.cc", ""},
                                  {"src/d/CMakeLists.txt", "mla_folder(c)\n"}},
                                 &complaints);
  EXPECT_EQ(edges, (Edges{{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}, {"d", {}}}));
  EXPECT_THAT(complaints, ElementsAre("src/c/CMakeLists.txt: expected mla_folder(c ...)",
                                      "src/d/CMakeLists.txt: expected mla_folder(d ...)"));
}

TEST(StructureRules, AnEdgeThatTheDesignLacks) {
  EXPECT_THAT(CheckEdgesAgainstDesign({{"base", {"io"}}, {"io", {"base"}}, {"misc", {}}}, DesignEdges()),
              ElementsAre(HasSubstr("src/base/CMakeLists.txt: the design has no edge to io"),
                          HasSubstr("src/misc: no folder of the design")));
}

TEST(StructureRules, AnIncludeAgainstTheEdges) {
  const Tree tree = {{"include/mla/x.h", "#include \"base/b.h\"\n"},
                     {"src/base/b.h", "#include \"mla/x.h\"\n  #  include \"io/i.h\"\n"},
                     {"src/io/i.h", "#include \"base/b.h\"\n#include <base/b.h>\n"},
                     {"src/io/i.cc", "#include \"i.h\"\n#include \"io/../base/b.h\"\n#include \"mla_build_info.h\"\n"}};
  EXPECT_THAT(CheckIncludes(tree, {{"base", {}}, {"io", {"base"}}}),
              ElementsAre(HasSubstr("include/mla/x.h:1: include/mla must not include base"),
                          HasSubstr("src/base/b.h:2: base must not include io"), HasSubstr("src/io/i.cc:1"),
                          HasSubstr("src/io/i.cc:2"), HasSubstr("src/io/i.h:2: <base/b.h> is ours")));
}

TEST(StructureRules, AThirdPartyHeader) {
  const Tree tree = {{"include/mla/x.h", "#include <vector>\n#include <fmt/format.h>\n"},
                     {"src/io/i.h", "#include <sys/mman.h>\n#include <nlohmann/json.hpp>\n"},
                     {"src/io/i.cc", "#include <fmt/format.h>\n"}};
  EXPECT_THAT(CheckHeadersUseNoThirdParty(tree), ElementsAre(HasSubstr("include/mla/x.h:2: <fmt/format.h>"),
                                                             HasSubstr("src/io/i.h:2: <nlohmann/json.hpp>")));
}

TEST(StructureRules, Cycles) {
  EXPECT_THAT(CheckNoCycles({}, {{"a", {"b"}}, {"b", {"c"}}, {"c", {"a"}}}),
              ElementsAre("folders in a cycle: a -> b -> c -> a"));
  EXPECT_THAT(
      CheckNoCycles({{"src/a/1.h", "#include \"b/2.h\"\n"}, {"src/b/2.h", ""}, {"src/b/3.h", "#include \"a/1.h\"\n"}},
                    {}),
      ElementsAre("folders in a cycle: a -> b -> a"));
  EXPECT_THAT(CheckNoCycles({{"src/a/1.h", "#include \"a/2.h\"\n"}, {"src/a/2.h", "#include \"a/1.h\"\n"}}, {}),
              ElementsAre("files in a cycle: src/a/1.h -> src/a/2.h -> src/a/1.h"));
}

TEST(StructureRules, ALongFile) {
  const std::string lines(501, '\n');
  EXPECT_THAT(
      CheckFileLengths({{"src/a/long.cc", lines}, {"src/a/fits.cc", lines.substr(1)}, {"docs/x.md", lines}}, 500),
      ElementsAre("src/a/long.cc: 501 lines, at most 500"));
}

TEST(StructureRules, AMachinesPath) {
  const std::string w = std::string("/") + "work";
  const std::string r = std::string("/") + "root";
  EXPECT_THAT(
      CheckNoMachinePaths({{"a", "x\n" + w + "/main\n"}, {"b", "HOME=" + r + "\n"}, {"c", "see file:/" + r + "/x"}}),
      ElementsAre("a:2: a path of one machine", "b:1: a path of one machine", "c:1: a path of one machine"));
  EXPECT_THAT(CheckNoMachinePaths({{"a", w + "ers, the" + w + ", " + w + "space, ${dir}" + r + ", .." + r}}),
              IsEmpty());
}

TEST(StructureRules, LibraryCodeInAKernel) {
  const Tree tree = {{"src/ops/k_avx2.cc", "#include \"ops/k.h\"\n#include <stdint.h>\n"},
                     {"src/ops/k_avx512.cc", "#include <algorithm>\n"},
                     {"src/ops/k.inl", "#include <cmath>\n"},
                     {"src/ops/k.h", "#include \"ops/deep.h\"\n"},
                     {"src/ops/deep.h", "#include <vector>\n"},
                     {"src/ops/k.cc", "#include <vector>\n"},
                     {"src/base/simd.h", "#include <immintrin.h>\n#include <utility>\n"}};
  EXPECT_THAT(CheckKernelIncludes(tree),
              ElementsAre(HasSubstr("src/base/simd.h:2: <utility>"), HasSubstr("src/ops/k.inl:1: <cmath>"),
                          HasSubstr("src/ops/deep.h:1: <vector> reaches the kernel file src/ops/k_avx2.cc"),
                          HasSubstr("src/ops/k_avx512.cc:1: <algorithm>")));
}

}  // namespace
}  // namespace mla::testing
