// A server in this process with a small model behind it, and clients over real sockets.
#include <chrono>
#include <functional>
#include <thread>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/json.h"
#include "server/server.h"
#include "testing/models.h"

namespace mla::server {
namespace {

using ::testing::HasSubstr;
using testing::Need;
using ::testing::StartsWith;

// A blocking socket. Reads give up after 60 s: a test that waits so long has failed.
class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { close(fd_); }
  bool connected() const { return connected_; }

  void Send(const std::string& bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void Post(const std::string& path, const std::string& body, const std::string& more = "") {
    Send("POST " + path + " HTTP/1.1\r\nHost: h\r\n" + more + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body);
  }
  // What has come once it holds `text`, or once the server has closed.
  std::string ReadUntil(const std::string& text) {
    char block[4096];
    while (got_.find(text) == std::string::npos) {
      const ssize_t n = recv(fd_, block, sizeof(block), 0);
      if (n <= 0) break;
      got_.append(block, static_cast<std::size_t>(n));
    }
    return got_;
  }
  std::string ReadAll() { return ReadUntil("\x01 never sent"); }

 private:
  int fd_;
  bool connected_ = false;
  std::string got_;
};

std::string BodyOf(const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); }

const Tokenizer& DemoTokenizer() {
  static const Tokenizer kTokenizer = Need(Tokenizer::Load(testing::DemoDir()));
  return kTokenizer;
}

const Model& SmallModel() {
  static const Model kModel = [] {
    testing::TinyOptions options;
    options.vocab_size = 2048;  // the demo tokenizer's
    return testing::TinyModel(options, 3);
  }();
  return kModel;
}

class Http : public ::testing::Test {
 protected:
  void Start(const std::function<void(ServerOptions&)>& change = {}, std::int64_t max_sequences = 4) {
    EngineOptions options;
    options.max_sequences = max_sequences;
    pool_ = MakeThreadPool(1);
    engine_ = std::make_unique<Engine>(Need(Engine::Create(SmallModel(), options, *pool_)));
    ServerOptions server;
    server.port = 0;
    server.model_name = "tiny";
    if (change) change(server);
    ServerParts parts;
    parts.engine = engine_.get();
    parts.info = &SmallModel().info();
    parts.tokenizer = &DemoTokenizer();
    parts.log = [](std::string_view) {};
    parts.chat = [this](const ChatRequest& request) -> Result<ChatPrompt> {
      MLA_ASSIGN_OR_RETURN(auto ids, DemoTokenizer().Encode(request.messages));
      return ChatPrompt{std::move(ids), false, [this](std::span<const std::int32_t> reply) {
                          replies_.emplace_back(reply.begin(), reply.end());
                        }};
    };
    server_ = Need(Server::Start(std::move(parts), server));
    thread_ = std::thread([this] { server_->Run(false); });
  }

  void TearDown() override {
    if (!server_) return;
    server_->Stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    engine_->CheckPages();
  }

  std::string Call(const std::string& path, const std::string& body, const std::string& more = "") {
    Client client(server_->port());
    client.Post(path, body, "Connection: close\r\n" + more);
    return client.ReadAll();
  }
  std::string Get(const std::string& path) {
    Client client(server_->port());
    client.Send("GET " + path + " HTTP/1.1\r\nConnection: close\r\n\r\n");
    return client.ReadAll();
  }
  // Until it holds; false after a minute.
  bool Soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 6000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  }
  std::int64_t PagesUsed() const {
    const LoopSnapshot now = server_->snapshot();
    return now.pages.total - now.pages.free - now.pages.idle;
  }

  std::unique_ptr<Executor> pool_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> server_;
  std::thread thread_;
  std::vector<std::vector<std::int32_t>> replies_;  // of chats, as the server told them; read once it has answered
};

// Texts of a stream's events, joined.
std::string StreamedText(const std::string& answer, const std::string& key) {
  std::string text;
  for (std::size_t at = answer.find("data: {"); at != std::string::npos; at = answer.find("data: {", at + 1)) {
    const auto json = Need(io::ParseJson(answer.substr(at + 6, answer.find("\n\n", at) - at - 6), "event"));
    for (const io::JsonValue& choice : json.Find("choices")->items()) {
      const io::JsonValue* holder = key == "text" ? &choice : choice.Find("delta");
      if (const io::JsonValue* piece = holder->Find(key)) text += piece->string();
    }
  }
  return text;
}

// What the engine itself gives for that prompt.
std::string Expected(const std::string& prompt, std::int64_t tokens) {
  const auto pool = MakeThreadPool(1);
  Engine engine = Need(Engine::Create(SmallModel(), {}, *pool));
  Request request;
  request.prompt = Need(DemoTokenizer().Encode(prompt));
  request.prompt.insert(request.prompt.begin(), *DemoTokenizer().bos_id());
  request.max_tokens = tokens;
  StreamDecoder decoder(DemoTokenizer());
  std::string text;
  for (const std::int32_t id : Need(engine.Generate(request)).ids) text += decoder.Push(id);
  return text + decoder.Finish();
}

const char* const kLong =
    R"({"prompt": "a", "max_tokens": 3000, "ignore_eos": true, "temperature": 0, "stream": true})";

TEST_F(Http, AnswersAreTheEngines) {
  Start();
  const std::string expected = Expected("Once upon", 24);
  const std::string body = R"({"prompt": "Once upon", "max_tokens": 24, "temperature": 0, "ignore_eos": true)";
  const std::string whole = Call("/v1/completions", body + "}");
  ASSERT_THAT(whole, StartsWith("HTTP/1.1 200 OK"));
  const auto json = Need(io::ParseJson(BodyOf(whole), "answer"));
  const io::JsonValue& choice = json.Find("choices")->items()[0];
  EXPECT_EQ(choice.Find("text")->string(), expected);
  EXPECT_EQ(choice.Find("finish_reason")->string(), "length");
  EXPECT_EQ(json.Find("usage")->Find("completion_tokens")->integer(), 24);

  const std::string stream =
      Call("/v1/completions", body + R"(, "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_EQ(StreamedText(stream, "text"), expected);
  EXPECT_THAT(stream, HasSubstr("text/event-stream"));
  EXPECT_THAT(stream, HasSubstr(R"("completion_tokens":24)"));
  EXPECT_LT(stream.find("completion_tokens"), stream.find("data: [DONE]"));

  // A stop text that begins inside a token's text and ends in another's.
  const std::string stop = expected.substr(expected.size() / 2, 5);
  const std::string stopped = Call("/v1/completions", body + R"(, "stop": )" + "\"" + stop + "\"}");
  if (stop.find_first_of("\"\\\n") == std::string::npos && io::ParseJson("\"" + stop + "\"", "").ok()) {
    const auto cut = Need(io::ParseJson(BodyOf(stopped), "answer"));
    EXPECT_EQ(cut.Find("choices")->items()[0].Find("text")->string(), expected.substr(0, expected.find(stop)));
    EXPECT_EQ(cut.Find("choices")->items()[0].Find("finish_reason")->string(), "stop");
  }
}

TEST_F(Http, ChatStreamsWhatItAnswers) {
  Start();
  const std::string body =
      R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 12, "temperature": 0, "logprobs": true,
          "top_logprobs": 2)";
  const auto json = Need(io::ParseJson(BodyOf(Call("/v1/chat/completions", body + "}")), "answer"));
  const io::JsonValue& choice = json.Find("choices")->items()[0];
  EXPECT_EQ(choice.Find("message")->Find("role")->string(), "assistant");
  EXPECT_EQ(choice.Find("logprobs")->Find("content")->items().size(), 12U);
  EXPECT_EQ(choice.Find("logprobs")->Find("content")->items()[0].Find("top_logprobs")->items().size(), 2U);
  const std::string stream = Call("/v1/chat/completions", body + R"(, "stream": true})");
  EXPECT_EQ(StreamedText(stream, "content"), choice.Find("message")->Find("content")->string());
  EXPECT_THAT(stream, HasSubstr(R"("delta":{"role":"assistant")"));
  server_->Stop();
  thread_.join();
  ASSERT_EQ(replies_.size(), 2U) << "each reply's ids are told once";
  EXPECT_EQ(replies_[0].size(), 12U);
  EXPECT_EQ(replies_[0], replies_[1]);
}

TEST_F(Http, SeveralPromptsAndSamplesWithEcho) {
  Start();
  const std::string answer =
      Call("/v1/completions",
           R"({"prompt": [[5, 6, 7], [8]], "n": 2, "max_tokens": 1, "temperature": 0, "echo": true, "logprobs": 2})");
  const auto json = Need(io::ParseJson(BodyOf(answer), "answer"));
  const auto choices = json.Find("choices")->items();
  ASSERT_EQ(choices.size(), 4U);
  const io::JsonValue* logprobs = choices[1].Find("logprobs");
  ASSERT_EQ(logprobs->Find("token_logprobs")->items().size(), 4U);
  EXPECT_TRUE(logprobs->Find("token_logprobs")->items()[0].is_null());
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_LT(logprobs->Find("token_logprobs")->items()[i].number(), 0);
    EXPECT_GE(logprobs->Find("top_logprobs")->items()[i].members().size(), 1U);
  }
  EXPECT_EQ(choices[2].Find("logprobs")->Find("tokens")->items().size(), 2U);
}

TEST_F(Http, AClientThatLeavesFreesItsPages) {
  Start();
  for (const std::string& body : {std::string(kLong), std::string(R"({"prompt": "a", "max_tokens": 3000, "n": 2,
                                  "ignore_eos": true})")}) {
    {
      Client client(server_->port());
      client.Post("/v1/completions", body);
      ASSERT_TRUE(Soon([&] { return PagesUsed() > 0; }));
    }
    EXPECT_TRUE(Soon([&] { return PagesUsed() == 0 && server_->snapshot().scheduler.running == 0; }));
  }
  EXPECT_EQ(server_->snapshot().scheduler.cancelled, 2);
  EXPECT_LT(server_->snapshot().engine.generated_rows, 3000);
  EXPECT_THAT(Get("/metrics"), HasSubstr("mla_clients_left_total 2\n"));
}

TEST_F(Http, RefusesWithAStatusAndAName) {
  Start([](ServerOptions& o) {
    o.api_keys = {"right", "other"};
    o.http.max_body = 1000;
    o.http.max_header = 2000;
    o.max_prompt = 50;
  });
  const std::string key = "Authorization: Bearer right\r\n";
  EXPECT_THAT(Call("/v1/completions", "{}"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Call("/v1/completions", "{}", "Authorization: Bearer righ\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Call("/v1/completions", "{}", "Authorization: Bearer \r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Call("/v1/completions", "{}", "Authorization: Bearer other\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Call("/v1/completions", "{}", key), HasSubstr(R"("param":"prompt")"));
  EXPECT_THAT(Call("/v1/completions", "\xff", key), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(Call("/v1/completions", R"({"prompt": "a", "model": "b"})", key), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Call("/v1/completions", R"({"prompt": ")" + std::string(900, '7') + "\"}", key),
              HasSubstr("context_length_exceeded"));
  EXPECT_THAT(Call("/v1/completions", std::string(1001, ' '), key), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(Call("/v1/completions", "{}", key + "Origin: http://evil\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Call("/v1/completions", "{}", "X: " + std::string(3000, 'x') + "\r\n"), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Call("/health", ""), AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET")));
  EXPECT_THAT(Get("/../etc/passwd"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(Get("/health"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/"), HasSubstr("<!doctype html>"));
  Client garbage(server_->port());
  garbage.Send("\x16\x03\x01 no HTTP\r\n\r\n");
  EXPECT_THAT(garbage.ReadAll(), StartsWith("HTTP/1.1 400"));
  // A head without an end.
  Client endless(server_->port());
  endless.Send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 50; ++i) endless.Send("X-" + std::to_string(i) + ": " + std::string(90, 'y') + "\r\n");
  EXPECT_THAT(endless.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 431"));
}

TEST_F(Http, AFullQueueSaysSo) {
  Start([](ServerOptions& o) { o.max_queue = 1; }, 1);
  Client running(server_->port());
  running.Post("/v1/completions", kLong);
  ASSERT_TRUE(Soon([&] { return server_->snapshot().scheduler.running == 1; }));
  running.ReadUntil("data: ");
  Client waiting(server_->port());
  waiting.Post("/v1/completions", kLong);
  ASSERT_TRUE(Soon([&] { return server_->snapshot().scheduler.waiting == 1; }));
  EXPECT_THAT(Call("/v1/completions", kLong), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After: 1\r\n")));
  EXPECT_THAT(Get("/health"), StartsWith("HTTP/1.1 200"));
}

TEST_F(Http, SlowOnesAreBounded) {
  Start([](ServerOptions& o) {
    o.http.read_seconds = 0.2;
    o.http.max_unsent = 20000;
    o.http.max_connections = 3;
  });
  Client slow(server_->port());
  slow.Send("GET / HT");
  EXPECT_THAT(slow.ReadAll(), StartsWith("HTTP/1.1 408"));

  // Idle ones make room.
  Client idle1(server_->port());
  Client idle2(server_->port());
  Client idle3(server_->port());
  EXPECT_THAT(Get("/health"), StartsWith("HTTP/1.1 200"));

  // A reader that takes nothing: dropped once the kernel's buffers and ours are full.
  Client reader(server_->port(), 4096);
  reader.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 3000, "ignore_eos": true, "temperature": 0,
                                   "stream": true, "logprobs": 20})");
  ASSERT_TRUE(Soon([&] { return server_->snapshot().scheduler.cancelled == 1; }));
  EXPECT_TRUE(Soon([&] { return PagesUsed() == 0; }));
}

TEST_F(Http, ADeadlineEndsAnAnswer) {
  Start([](ServerOptions& o) { o.request_seconds = 0.05; });
  EXPECT_THAT(Call("/v1/completions", R"({"prompt": "a", "max_tokens": 4000, "ignore_eos": true})"),
              StartsWith("HTTP/1.1 504"));
  EXPECT_THAT(Call("/v1/completions", kLong), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("timeout_error")));
}

TEST_F(Http, DrainingFinishesWhatRuns) {
  Start();
  Client running(server_->port());
  running.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": true})");
  running.ReadUntil("data: ");
  Client kept(server_->port());
  kept.Send("GET /ready HTTP/1.1\r\n\r\n");
  EXPECT_THAT(kept.ReadUntil("ready"), StartsWith("HTTP/1.1 200"));
  server_->Drain();
  EXPECT_THAT(running.ReadAll(), HasSubstr("data: [DONE]"));
  thread_.join();
  EXPECT_FALSE(Client(server_->port()).connected());
}

}  // namespace
}  // namespace mla::server
