#include "testing/process.h"

#include <array>
#include <chrono>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mla::testing {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    Close(&read);
    Close(&write);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
};

[[noreturn]] void Exec(const std::vector<std::string>& command, int in, int out, int err) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: execv's signature
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// Appends what a descriptor holds; false at its end.
bool Drain(int fd, std::string* to) {
  std::array<char, 4096> block{};
  const ssize_t got = read(fd, block.data(), block.size());
  if (got <= 0) return false;
  to->append(block.data(), static_cast<std::size_t>(got));
  return true;
}

}  // namespace

ProcessResult RunProcess(const std::vector<std::string>& command, const ProcessOptions& options) {
  Pipe in;
  Pipe out;
  Pipe err;
  const int file =
      options.stdout_path.empty() ? -1 : open(options.stdout_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const pid_t pid = fork();
  if (pid == 0) Exec(command, in.read, file >= 0 ? file : out.write, err.write);
  Pipe::Close(&in.read);
  Pipe::Close(&out.write);
  Pipe::Close(&err.write);
  if (file >= 0) close(file);
  const auto previous = signal(SIGPIPE, SIG_IGN);
  std::size_t sent = 0;
  while (sent < options.input.size()) {
    const ssize_t n = write(in.write, options.input.data() + sent, options.input.size() - sent);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  Pipe::Close(&in.write);
  signal(SIGPIPE, previous);

  ProcessResult result;
  bool told = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  std::array<pollfd, 2> fds = {pollfd{out.read, POLLIN, 0}, pollfd{err.read, POLLIN, 0}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (std::chrono::steady_clock::now() > deadline) kill(pid, SIGKILL);
    if (poll(fds.data(), fds.size(), 1000) <= 0) continue;
    if (fds[0].revents != 0 && !Drain(out.read, &result.out)) fds[0].fd = -1;
    if (fds[1].revents != 0 && !Drain(err.read, &result.err)) fds[1].fd = -1;
    if (!told && options.on_first_output && !result.out.empty()) {
      told = true;
      options.on_first_output(pid);
    }
  }
  int status = 0;
  waitpid(pid, &status, 0);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace mla::testing
