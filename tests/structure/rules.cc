#include "structure/rules.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

namespace mla::testing {
namespace {

bool StartsWith(const std::string& s, std::string_view prefix) { return s.rfind(prefix, 0) == 0; }
bool EndsWith(const std::string& s, std::string_view suffix) {
  return s.size() >= suffix.size() && s.compare(s.size() - suffix.size(), suffix.size(), suffix) == 0;
}

bool IsHeader(const std::string& path) { return EndsWith(path, ".h") || EndsWith(path, ".inl"); }
bool IsCode(const std::string& path) { return IsHeader(path) || EndsWith(path, ".cc"); }
bool IsOurs(const std::string& path) { return StartsWith(path, "src/") || StartsWith(path, "include/"); }

struct Include {
  int line;
  bool quoted;
  std::string name;
};

// Drops blanks, then `word`, from the front of *rest; false where the word is not there.
bool Eat(std::string_view* rest, std::string_view word) {
  rest->remove_prefix(std::min(rest->find_first_not_of(" \t"), rest->size()));
  if (rest->substr(0, word.size()) != word) return false;
  rest->remove_prefix(word.size());
  return true;
}

std::vector<Include> IncludesOf(const std::string& text) {
  std::vector<Include> includes;
  std::istringstream in(text);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::string_view rest = line;
    if (!Eat(&rest, "#") || !Eat(&rest, "include")) continue;
    const bool quoted = Eat(&rest, "\"");
    if (!quoted && !Eat(&rest, "<")) continue;
    includes.push_back({number, quoted, std::string(rest.substr(0, rest.find(quoted ? '"' : '>')))});
  }
  return includes;
}

// The words of `mla_folder(...)` in a CMakeLists.txt; empty where there is none.
std::vector<std::string> FolderCall(const std::string& text) {
  const std::string call = "mla_folder(";
  const auto begin = text.find(call);
  const auto end = text.find(')', begin == std::string::npos ? begin : begin + call.size());
  if (begin == std::string::npos || end == std::string::npos) return {};
  std::istringstream words(text.substr(begin + call.size(), end - begin - call.size()));
  return {std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()};
}

// "src/base/check.h" -> "base", "include/mla/result.h" -> "mla", others "".
std::string FolderOf(const std::string& path) {
  if (StartsWith(path, "include/mla/")) return "mla";
  if (!StartsWith(path, "src/")) return "";
  const auto slash = path.find('/', 4);
  return slash == std::string::npos ? "" : path.substr(4, slash - 4);
}

// Where a quoted include of our code lies.
std::string PathOf(const std::string& include) { return (StartsWith(include, "mla/") ? "include/" : "src/") + include; }

std::string At(const std::string& path, int line) { return path + ":" + std::to_string(line) + ": "; }

// Files that the build writes; they may be included by their name alone.
const std::set<std::string> kGenerated = {"mla_build_info.h", "mla_page.h"};

// One complaint for each cycle that a depth-first walk closes.
Complaints Cycles(const Edges& graph, const std::string& what) {
  Complaints complaints;
  std::set<std::string> done;
  std::vector<std::string> path;
  const std::function<void(const std::string&)> visit = [&](const std::string& node) {
    const auto open = std::find(path.begin(), path.end(), node);
    if (open != path.end()) {
      std::string text = what + " in a cycle: ";
      for (auto it = open; it != path.end(); ++it) text += *it + " -> ";
      complaints.push_back(text + node);
      return;
    }
    if (done.count(node) > 0) return;
    path.push_back(node);
    const auto edges = graph.find(node);
    if (edges != graph.end()) {
      for (const std::string& next : edges->second) visit(next);
    }
    path.pop_back();
    done.insert(node);
  };
  for (const auto& [node, edges] : graph) visit(node);
  return complaints;
}

}  // namespace

Tree ReadTree(const std::string& root) {
  namespace fs = std::filesystem;
  Tree tree;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool hidden = name.size() > 1 && name[0] == '.' && name != ".ci";
      if (hidden || StartsWith(name, "build") || name == "install" || name == "__pycache__")
        it.disable_recursion_pending();
      continue;
    }
    // A worktree's .git is a file.
    if (!it->is_regular_file() || it->is_symlink() || name == "compile_commands.json" || name == ".git") continue;
    std::ifstream in(it->path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (text.find('\0') != std::string::npos) continue;
    tree[it->path().lexically_relative(root).generic_string()] = std::move(text);
  }
  return tree;
}

Edges DesignEdges() {
  Edges edges = {
      {"base", {}},
      {"io", {"base"}},
      {"contract", {"base", "io"}},
      {"text", {"base", "io"}},
      {"chat", {"base", "io", "text"}},
      {"ops", {"base"}},
      {"cache", {"base"}},
      {"attention", {"base", "ops", "cache"}},
      {"weights", {"base", "io", "contract", "ops"}},
      {"layers", {"base", "contract", "ops", "cache", "weights", "attention"}},
      {"model", {"base", "io", "contract", "ops", "cache", "weights", "attention", "layers"}},
      {"reference", {"base", "io", "contract"}},
      {"sampler", {"base"}},
      {"engine", {"base", "io", "cache", "attention", "model", "sampler"}},
      {"plan", {"base", "io", "contract", "ops", "cache", "attention", "weights", "model", "engine"}},
      {"verify",
       {"base", "io", "contract", "ops", "cache", "weights", "attention", "layers", "model", "reference", "sampler",
        "engine"}},
      {"server", {"base", "io", "text", "model", "engine"}},
  };
  std::set<std::string> all;
  for (const auto& [folder, deps] : edges) all.insert(folder);
  edges["bench"] = all;  // what it measures: anything but the server and the proofs
  edges["bench"].erase("server");
  edges["bench"].erase("verify");
  all.insert("bench");
  edges["cli"] = all;
  return edges;
}

Edges CMakeEdges(const Tree& tree, Complaints* complaints) {
  Edges edges;
  for (const auto& [path, text] : tree) {
    const std::string folder = FolderOf(path);
    if (folder.empty() || folder == "mla" || edges.count(folder) > 0) continue;
    edges[folder] = {};
    const std::string list = "src/" + folder + "/CMakeLists.txt";
    const auto found = tree.find(list);
    const std::vector<std::string> call = found == tree.end() ? std::vector<std::string>{} : FolderCall(found->second);
    if (call.empty() || call[0] != folder) {
      std::string expected = list;
      complaints->push_back(expected.append(": expected mla_folder(").append(folder).append(" ...)"));
      continue;
    }
    bool in_deps = false;
    for (std::size_t i = 1; i < call.size(); ++i) {
      const std::string& word = call[i];
      if (word == "DEPS" || word == "LIBS") {
        in_deps = word == "DEPS";
      } else if (in_deps) {
        edges[folder].insert(word);
      }
    }
  }
  return edges;
}

Complaints CheckEdgesAgainstDesign(const Edges& cmake, const Edges& design) {
  Complaints complaints;
  for (const auto& [folder, deps] : cmake) {
    const auto allowed = design.find(folder);
    if (allowed == design.end()) {
      complaints.push_back("src/" + folder + ": no folder of the design");
      continue;
    }
    for (const std::string& dep : deps) {
      if (allowed->second.count(dep) != 0) continue;
      std::string fault = "src/";
      complaints.push_back(fault.append(folder).append("/CMakeLists.txt: the design has no edge to ").append(dep));
    }
  }
  return complaints;
}

Complaints CheckIncludes(const Tree& tree, const Edges& edges) {
  Complaints complaints;
  for (const auto& [path, text] : tree) {
    if (!IsOurs(path) || !IsCode(path)) continue;
    const std::string folder = FolderOf(path);
    for (const Include& include : IncludesOf(text)) {
      const std::string at = At(path, include.line);
      if (!include.quoted) {
        // Ours in angle brackets would pass the rules by.
        if (tree.count(PathOf(include.name)) > 0)
          complaints.push_back(at + "<" + include.name + "> is ours: use quotes");
        continue;
      }
      if (kGenerated.count(include.name) > 0 && folder != "mla") continue;
      if (tree.count(PathOf(include.name)) == 0) {
        complaints.push_back(at + "\"" + include.name + "\" is no file of include/ or src/, by its full name");
        continue;
      }
      const std::string to = FolderOf(PathOf(include.name));
      const auto allowed = edges.find(folder);
      if (to == "mla" || to == folder) continue;
      if (allowed == edges.end() || allowed->second.count(to) == 0) {
        std::string fault = at;
        complaints.push_back(
            fault.append(folder == "mla" ? "include/mla" : folder).append(" must not include ").append(to));
      }
    }
  }
  return complaints;
}

Complaints CheckHeadersUseNoThirdParty(const Tree& tree) {
  // The C++ standard library of C++20, the C library, and what of POSIX and Linux the code may need.
  static const std::set<std::string> kAllowed = {"algorithm",
                                                 "any",
                                                 "array",
                                                 "atomic",
                                                 "barrier",
                                                 "bit",
                                                 "bitset",
                                                 "cassert",
                                                 "cctype",
                                                 "cerrno",
                                                 "cfenv",
                                                 "cfloat",
                                                 "charconv",
                                                 "chrono",
                                                 "cinttypes",
                                                 "climits",
                                                 "clocale",
                                                 "cmath",
                                                 "compare",
                                                 "complex",
                                                 "concepts",
                                                 "condition_variable",
                                                 "coroutine",
                                                 "csetjmp",
                                                 "csignal",
                                                 "cstdarg",
                                                 "cstddef",
                                                 "cstdint",
                                                 "cstdio",
                                                 "cstdlib",
                                                 "cstring",
                                                 "ctime",
                                                 "cuchar",
                                                 "cwchar",
                                                 "cwctype",
                                                 "deque",
                                                 "exception",
                                                 "execution",
                                                 "filesystem",
                                                 "format",
                                                 "forward_list",
                                                 "fstream",
                                                 "functional",
                                                 "future",
                                                 "initializer_list",
                                                 "iomanip",
                                                 "ios",
                                                 "iosfwd",
                                                 "iostream",
                                                 "istream",
                                                 "iterator",
                                                 "latch",
                                                 "limits",
                                                 "list",
                                                 "locale",
                                                 "map",
                                                 "memory",
                                                 "memory_resource",
                                                 "mutex",
                                                 "new",
                                                 "numbers",
                                                 "numeric",
                                                 "optional",
                                                 "ostream",
                                                 "queue",
                                                 "random",
                                                 "ranges",
                                                 "ratio",
                                                 "regex",
                                                 "scoped_allocator",
                                                 "semaphore",
                                                 "set",
                                                 "shared_mutex",
                                                 "source_location",
                                                 "span",
                                                 "sstream",
                                                 "stack",
                                                 "stdexcept",
                                                 "stop_token",
                                                 "streambuf",
                                                 "string",
                                                 "string_view",
                                                 "syncstream",
                                                 "system_error",
                                                 "thread",
                                                 "tuple",
                                                 "type_traits",
                                                 "typeindex",
                                                 "typeinfo",
                                                 "unordered_map",
                                                 "unordered_set",
                                                 "utility",
                                                 "valarray",
                                                 "variant",
                                                 "vector",
                                                 "version",
                                                 "assert.h",
                                                 "ctype.h",
                                                 "errno.h",
                                                 "fenv.h",
                                                 "float.h",
                                                 "inttypes.h",
                                                 "limits.h",
                                                 "locale.h",
                                                 "math.h",
                                                 "setjmp.h",
                                                 "signal.h",
                                                 "stdarg.h",
                                                 "stdbool.h",
                                                 "stddef.h",
                                                 "stdint.h",
                                                 "stdio.h",
                                                 "stdlib.h",
                                                 "string.h",
                                                 "time.h",
                                                 "dirent.h",
                                                 "dlfcn.h",
                                                 "fcntl.h",
                                                 "poll.h",
                                                 "pthread.h",
                                                 "sched.h",
                                                 "semaphore.h",
                                                 "sys/ioctl.h",
                                                 "sys/mman.h",
                                                 "sys/resource.h",
                                                 "sys/socket.h",
                                                 "sys/stat.h",
                                                 "sys/statvfs.h",
                                                 "sys/time.h",
                                                 "sys/types.h",
                                                 "sys/uio.h",
                                                 "sys/wait.h",
                                                 "termios.h",
                                                 "unistd.h",
                                                 "immintrin.h",
                                                 "arm_neon.h",
                                                 "cpuid.h"};
  Complaints complaints;
  for (const auto& [path, text] : tree) {
    if (!IsOurs(path) || !IsHeader(path)) continue;
    for (const Include& include : IncludesOf(text)) {
      if (!include.quoted && kAllowed.count(include.name) == 0) {
        complaints.push_back(At(path, include.line) + "<" + include.name + ">: third-party headers stay in .cc files");
      }
    }
  }
  return complaints;
}

Complaints CheckNoCycles(const Tree& tree, const Edges& edges) {
  Edges folders = edges;
  Edges files;
  for (const auto& [path, text] : tree) {
    if (!IsOurs(path) || !IsCode(path)) continue;
    for (const Include& include : IncludesOf(text)) {
      if (!include.quoted || tree.count(PathOf(include.name)) == 0) continue;
      files[path].insert(PathOf(include.name));
      const std::string from = FolderOf(path);
      const std::string to = FolderOf(PathOf(include.name));
      if (from != to) folders[from].insert(to);
    }
  }
  Complaints complaints = Cycles(folders, "folders");
  for (std::string& complaint : Cycles(files, "files")) complaints.push_back(std::move(complaint));
  return complaints;
}

Complaints CheckFileLengths(const Tree& tree, int max_lines) {
  Complaints complaints;
  for (const auto& [path, text] : tree) {
    if (!IsOurs(path) || !IsCode(path)) continue;
    const auto lines = std::count(text.begin(), text.end(), '\n');
    if (lines > max_lines) {
      complaints.push_back(path + ": " + std::to_string(lines) + " lines, at most " + std::to_string(max_lines));
    }
  }
  return complaints;
}

Complaints CheckNoMachinePaths(const Tree& tree) {
  Complaints complaints;
  for (const auto& [path, text] : tree) {
    for (const std::string& needle : {std::string("/") + "work", std::string("/") + "root"}) {
      for (auto at = text.find(needle); at != std::string::npos; at = text.find(needle, at + 1)) {
        // "a/workers" and "/workspace" are other words.
        const auto is_word = [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
        };
        const char before = at == 0 ? ' ' : text[at - 1];
        const char after = at + needle.size() < text.size() ? text[at + needle.size()] : ' ';
        if (is_word(before) || before == '.' || before == '}' || before == ')' || is_word(after)) continue;
        complaints.push_back(
            At(path,
               static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) + 1) +
            "a path of one machine");
      }
    }
  }
  return complaints;
}

Complaints CheckKernelIncludes(const Tree& tree) {
  // C's own, whose functions are the library's, or inline without ever being emitted.
  static const std::set<std::string> kPlain = {"stdint.h", "stddef.h", "string.h", "immintrin.h", "arm_neon.h"};
  Complaints complaints;
  std::set<std::string> seen;
  const std::function<void(const std::string&, const std::string&)> visit = [&](const std::string& path,
                                                                                const std::string& root) {
    const auto file = tree.find(path);
    if (file == tree.end() || !seen.insert(path).second) return;
    for (const Include& include : IncludesOf(file->second)) {
      if (include.quoted) {
        // Tests have kernel files too; their own headers lie in tests/.
        const std::string ours = PathOf(include.name);
        visit(tree.count(ours) > 0 ? ours : "tests/" + include.name, root);
      } else if (kPlain.count(include.name) == 0) {
        complaints.push_back(At(path, include.line) + "<" + include.name + "> reaches the kernel file " + root);
      }
    }
  };
  for (const auto& [path, text] : tree) {
    const bool kernel = EndsWith(path, "_avx2.cc") || EndsWith(path, "_avx512.cc") ||
                        EndsWith(path, "_avx512bf16.cc") || EndsWith(path, "_amx.cc") || EndsWith(path, ".inl") ||
                        path == "src/base/simd.h";
    if (kernel) visit(path, path);
  }
  return complaints;
}

}  // namespace mla::testing
