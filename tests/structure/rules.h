// The rules of the source tree, as functions from files to complaints: run on the real tree, and on small made-up ones
// that break each rule.
#ifndef MLA_TESTS_STRUCTURE_RULES_H_
#define MLA_TESTS_STRUCTURE_RULES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

namespace mla::testing {

// Path from the root ("src/base/check.h") -> contents.
using Tree = std::map<std::string, std::string>;
// Folder of src/ -> folders that it may include, besides itself and include/mla.
using Edges = std::map<std::string, std::set<std::string>>;
using Complaints = std::vector<std::string>;

// Text files below root: binary files, build trees and version control left out.
Tree ReadTree(const std::string& root);

// The table of docs/design.md, "The house".
Edges DesignEdges();

// DEPS of src/*/CMakeLists.txt. A folder with sources and no mla_folder(NAME ...) line of its own name is a complaint.
Edges CMakeEdges(const Tree& tree, Complaints* complaints);

// Folders and edges in CMake that the design does not have.
Complaints CheckEdgesAgainstDesign(const Edges& cmake, const Edges& design);

// Includes in quotes: of include/mla by "mla/x.h", of src by "folder/x.h" along the edges; nothing by another path.
Complaints CheckIncludes(const Tree& tree, const Edges& edges);

// Headers in angle brackets, in installed and internal headers: the standard libraries of C and C++, POSIX, intrinsics.
Complaints CheckHeadersUseNoThirdParty(const Tree& tree);

// Cycles between folders of src (by DEPS and by the includes as they are) and between files.
Complaints CheckNoCycles(const Tree& tree, const Edges& edges);

Complaints CheckFileLengths(const Tree& tree, int max_lines);

// Absolute paths of one machine.
Complaints CheckNoMachinePaths(const Tree& tree);

// Files that are compiled for one instruction set (*_avx2.cc, *_avx512.cc, *_avx512bf16.cc, *_amx.cc, *.inl,
// base/simd.h) and what they include, to any depth: no standard-library header with inline code, which the linker might
// share with code for lesser machines.
Complaints CheckKernelIncludes(const Tree& tree);

}  // namespace mla::testing

#endif  // MLA_TESTS_STRUCTURE_RULES_H_
