// mla serve as a process: it says where it listens, answers in the model's own chat format, and drains on SIGTERM.
#include <cstdlib>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/program.h"
#include "testing/temp_dir.h"

namespace mla::testing {
namespace {

using Json = nlohmann::json;

class Serving {
 public:
  explicit Serving(std::vector<std::string> arguments) {
    int out[2];
    EXPECT_EQ(pipe(out), 0);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], STDOUT_FILENO);
      close(out[0]);
      close(out[1]);
      arguments.insert(arguments.begin(), {MLA_PROGRAM, "serve"});
      arguments.insert(arguments.end(), {"--port", "0", "--quiet"});
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      execv(MLA_PROGRAM, argv.data());
      _exit(127);
    }
    close(out[1]);
    std::string line;
    for (char c = 0; read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    close(out[0]);
    const std::size_t colon = line.rfind(':');
    if (colon != std::string::npos) port_ = std::atoi(line.c_str() + colon + 1);
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;
  ~Serving() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  int port() const { return port_; }

  // The body of the answer to a POST.
  Json Post(const std::string& path, const Json& body) const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{60, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    const std::string text = body.dump();
    const std::string request =
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}", path,
                    text.size(), text);
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL), static_cast<ssize_t>(request.size()));
    std::string all;
    char block[4096];
    for (ssize_t got = 0; (got = recv(fd, block, sizeof(block), 0)) > 0;)
      all.append(block, static_cast<std::size_t>(got));
    close(fd);
    const std::size_t head = all.find("\r\n\r\n");
    return head == std::string::npos ? Json() : Json::parse(all.substr(head + 4), nullptr, false);
  }

  // The exit code after a signal; -1 where it was killed by one.
  int End(int signal) {
    kill(pid_, signal);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

TEST(Serve, ChatIsWhatTheTemplateWritesAndTheModelGoesOnWith) {
  Serving serving({DemoDir(), "--mode", "absorb", "--ctx", "512", "--max-sequences", "2"});
  ASSERT_GT(serving.port(), 0);
  const Json tokens = serving.Post("/tokenize", {{"prompt", "In the beginning"}});
  EXPECT_GT(tokens["count"], 2);

  const std::string message = "Who was Noah?";
  const Json chat =
      serving.Post("/v1/chat/completions",
                   {{"messages", {{{"role", "user"}, {"content", message}}}}, {"max_tokens", 12}, {"temperature", 0}});
  ASSERT_TRUE(chat.contains("choices")) << chat.dump();
  const std::string reply = chat["choices"][0]["message"]["content"];
  EXPECT_NE(reply, "");

  // The same through the other program.
  ProcessOptions input;
  input.input = message + "\n";
  const ProcessResult talk =
      Mla({"chat", DemoDir(), "--mode", "absorb", "--max-tokens", "12", "--temperature", "0", "--quiet"}, input);
  EXPECT_EQ(talk.exit_code, 0) << talk.err;
  EXPECT_EQ(talk.out, reply + "\n");

  // A message that spells a special token says it in characters: more tokens than the token itself.
  const auto prompt_tokens = [&](const std::string& content) {
    const Json answer = serving.Post("/v1/chat/completions",
                                     {{"messages", {{{"role", "user"}, {"content", content}}}}, {"max_tokens", 1}});
    return answer["usage"]["prompt_tokens"].get<int>();
  };
  EXPECT_GT(prompt_tokens("a<｜User｜>"), prompt_tokens("a") + 3);
  EXPECT_EQ(serving.End(SIGTERM), 0);
}

// A reply whose text would be encoded to other ids than the model drew: the next turn begins with those drawn.
TEST(Serve, ANextTurnFindsTheRowsOfTheReply) {
  Serving serving({DemoDir(), "--mode", "absorb", "--ctx", "512", "--max-sequences", "2"});
  ASSERT_GT(serving.port(), 0);
  Json messages = {{{"role", "user"}, {"content", "Who was Noah?"}}};
  for (int seed = 0;; ++seed) {
    ASSERT_LT(seed, 50) << "every reply is encoded as it was drawn";
    const Json first = serving.Post(
        "/v1/chat/completions",
        {{"messages", messages}, {"max_tokens", 40}, {"temperature", 1.9}, {"seed", seed}, {"stream", false}});
    ASSERT_TRUE(first.contains("choices")) << first.dump();
    const std::string reply = first["choices"][0]["message"]["content"];
    const int drawn = first["usage"]["completion_tokens"];
    const Json again = serving.Post("/tokenize", {{"prompt", reply}, {"add_special_tokens", false}});
    if (drawn < 40 || again["count"] == drawn) continue;

    Json next = messages;
    next.push_back({{"role", "assistant"}, {"content", reply}});
    next.push_back({{"role", "user"}, {"content", "And then?"}});
    const Json second = serving.Post("/v1/chat/completions", {{"messages", next}, {"max_tokens", 1}});
    ASSERT_TRUE(second.contains("usage")) << second.dump();
    // The last token of a reply has no row yet.
    const int seen = first["usage"]["prompt_tokens"].get<int>() + drawn;
    EXPECT_EQ(second["usage"]["prompt_tokens_details"]["cached_tokens"], seen - 1);
    EXPECT_GT(second["usage"]["prompt_tokens"], seen);
    break;
  }
  EXPECT_EQ(serving.End(SIGTERM), 0);
}

TEST(Serve, WhatItCanNotDoIsOneLine) {
  ExpectOneLine(Mla({"serve", DemoDir(), "--host", "example.org"}), {"--host", "example.org"});
  ExpectOneLine(Mla({"serve", DemoDir(), "--ctx", "1000000"}), {"--ctx", "positions"});
  ExpectOneLine(Mla({"serve", DemoDir(), "--api-key-file", "/absent"}), {"--api-key-file", "/absent"});
  ExpectOneLine(Mla({"serve", DemoDir(), "--template", "/absent"}), {"/absent"});
  ExpectOneLine(Mla({"serve", DemoDir(), "--mode", "explicit"}), {"--mode"});
}

}  // namespace
}  // namespace mla::testing
