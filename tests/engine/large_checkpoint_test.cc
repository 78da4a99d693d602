// Loading a checkpoint of 1 GiB takes no more anonymous memory than was planned, and 64 MiB.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mla/engine.h"
#include "testing/models.h"

namespace mla::testing {
namespace {

// "NAME:   123 kB" of a file in /proc, in bytes; -1 where there is none.
std::int64_t ProcBytes(const char* file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  }
  return -1;
}

TinyOptions LargeOptions() {
  TinyOptions o;
  o.vocab_size = 16384;
  o.hidden_size = 2048;
  o.intermediate_size = 6144;
  o.num_hidden_layers = 6;
  o.num_attention_heads = 16;
  o.q_lora_rank = 768;
  o.kv_lora_rank = 512;
  o.qk_nope_head_dim = 128;
  o.qk_rope_head_dim = 64;
  o.v_head_dim = 128;
  o.n_routed_experts = 16;
  o.moe_intermediate_size = 704;
  return o;
}

struct Peak {
  std::int64_t planned = 0;
  std::int64_t anonymous = 0;
};

// Loads and runs the model while a thread watches this process's anonymous memory.
Peak LoadAndRun(const std::string& dir) {
  Peak peak;
  std::atomic<bool> done{false};
  std::atomic<std::int64_t> most{0};
  std::thread watch([&] {
    while (!done) {
      const std::int64_t now = ProcBytes("/proc/self/status", "RssAnon");
      if (now > most) most = now;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  {
    const auto pool = MakeThreadPool(2);
    const Model model = Need(Model::Load(dir, {}, *pool));
    EngineOptions options;
    options.mode = Mode::kRole;
    options.context = 1024;
    Engine engine = Need(Engine::Create(model, options, *pool));
    peak.planned = engine.memory().total();
    Request request;
    request.prompt = RandomIds(200, model.info().vocab_size, 1);
    request.max_tokens = 3;
    Need(engine.Generate(request));
  }
  done = true;
  watch.join();
  peak.anonymous = most;
  return peak;
}

TEST(Anonymous, MemoryOfLoadingAGigabyteIsThePlan) {
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  if (kUnderSanitizer) GTEST_SKIP() << "sanitizers hold memory of their own";
  const TempDir dir;
  std::error_code failed;
  const auto space = std::filesystem::space(dir.path(), failed);
  if (failed || space.available < static_cast<std::uintmax_t>(4 * kGiB)) GTEST_SKIP() << "needs 4 GiB of free disk";
  const std::int64_t available = ProcBytes("/proc/meminfo", "MemAvailable");
  if (available < 3 * kGiB) GTEST_SKIP() << "needs 3 GiB of free memory";

  WriteTinyCheckpoint(dir.path(), TinyConfigJson(LargeOptions()), 1, DType::kBF16, 2);
  std::int64_t size = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir.path()))
    size += static_cast<std::int64_t>(file.file_size());
  EXPECT_GE(size, kGiB);

  // A process of its own, whose memory is its own.
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Peak peak = LoadAndRun(dir.path());
    const bool written = write(ends[1], &peak, sizeof(peak)) == static_cast<ssize_t>(sizeof(peak));
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  Peak peak;
  const auto got = read(ends[0], &peak, sizeof(peak));
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(got, static_cast<ssize_t>(sizeof(peak)));
  std::printf("checkpoint %.1f MiB, planned %.1f MiB, peak of anonymous memory %.1f MiB\n",
              static_cast<double>(size) / 1048576, static_cast<double>(peak.planned) / 1048576,
              static_cast<double>(peak.anonymous) / 1048576);
  EXPECT_GE(peak.anonymous, kGiB) << "the watch saw nothing";
  EXPECT_LE(peak.anonymous, peak.planned + (std::int64_t{64} << 20));
}

}  // namespace
}  // namespace mla::testing
