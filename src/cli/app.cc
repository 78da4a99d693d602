#include "cli/app.h"

#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "base/cpu_info.h"
#include "cli/command.h"
#include "io/quote.h"
#include "mla_build_info.h"

namespace mla::cli {
namespace {

std::string VersionText() {
  const CpuInfo cpu = DetectCpu();
  std::string kernels;
  for (auto isa = std::rbegin(kIsas); isa != std::rend(kIsas); ++isa) {
    if (cpu.Has(*isa)) kernels += fmt::format("{}{}", kernels.empty() ? "" : ", ", IsaName(*isa));
  }
  return fmt::format("mla {} ({}), {} {}\nkernels this machine can run: {}; mla kernels tests them\nprocessor: {}",
                     MLA_BUILD_VERSION, MLA_BUILD_COMMIT, MLA_BUILD_COMPILER, MLA_BUILD_TYPE, kernels,
                     cpu.model.empty() ? "unknown" : cpu.model);
}

// Model files are mapped: one that another process cuts short, or a disk that fails, shows as this signal.
void OnLostPage(int /*signal*/) {
  constexpr char kMessage[] = "mla: error: a model file was cut short, or could not be read, while it was in use\n";
  const ssize_t ignored = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  static_cast<void>(ignored);
  _exit(kFailed);
}

int RunApp(int argc, char** argv) {
  // Plain lines, as a person reads them: "mla: warning: ...".
  auto log = std::make_shared<spdlog::logger>("mla", std::make_shared<spdlog::sinks::stderr_sink_st>());
  log->set_pattern("%n: %l: %v");

  CLI::App app("Runs models with Multi-head Latent Attention, and shows that every number is right.", "mla");
  app.set_version_flag("--version", VersionText, "Print commit, compiler and kernels, and exit");
  app.require_subcommand(1);
  std::vector<std::pair<const char*, Action>> actions;
  actions.emplace_back("run", AddRun(app, log));
  actions.emplace_back("chat", AddChat(app, log));
  actions.emplace_back("serve", AddServe(app, log));
  actions.emplace_back("inspect", AddInspect(app));
  actions.emplace_back("perplexity", AddPerplexity(app, log));
  actions.emplace_back("verify", AddVerify(app, log));
  actions.emplace_back("synth", AddSynth(app, log));
  actions.emplace_back("permute-rope", AddPermuteRope(app, log));
  actions.emplace_back("kernels", AddKernels(app));
  actions.emplace_back("plan", AddPlan(app));
  actions.emplace_back("tune", AddTune(app, log));
  actions.emplace_back("bench", AddBench(app, log));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (app.exit(e) != 0) return kUsage;
    return std::cout.flush() && std::fflush(stdout) == 0 ? kDone : kFailed;  // --help, --version
  }
  for (const auto& [name, action] : actions) {
    if (!app.got_subcommand(name)) continue;
    const Result<int> result = action();
    if (result.ok()) return *result;
    log->error("{}", io::Printable(result.error().message, kLongestError));
    return kFailed;
  }
  return kUsage;
}

}  // namespace

int Main(int argc, char** argv) {
  signal(SIGBUS, OnLostPage);
  signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is then an error of write, with a message
  try {
    return RunApp(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("mla: error: out of memory\n", stderr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mla: error: %s\n", e.what());
  }
  return kFailed;
}

}  // namespace mla::cli
