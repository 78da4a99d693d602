// A model behind OpenAI's HTTP interface: routes, admission, and the answers under way.
#ifndef MLA_SERVER_SERVER_H_
#define MLA_SERVER_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/engine.h"
#include "mla/model.h"
#include "mla/result.h"
#include "mla/tokenizer.h"
#include "server/engine_loop.h"
#include "server/http.h"
#include "server/request.h"

namespace mla::server {

// A conversation as the model's template writes it.
struct ChatPrompt {
  std::vector<std::int32_t> ids;
  bool in_reasoning = false;  // it ends with <think>
  // May be empty. Told, on the server's thread, the ids of each reply that has ended, but for the one that ended it.
  std::function<void(std::span<const std::int32_t>)> replied = {};
};
using RenderChat = std::function<Result<ChatPrompt>(const ChatRequest&)>;

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
  HttpLimits http;
  std::string model_name;
  std::vector<std::string> api_keys;  // empty: no key is asked for
  std::int64_t max_prompt = 0;        // tokens; 0: the context
  std::int64_t max_queue = 256;       // prompts that wait
  std::int64_t max_streams = 256;     // streamed answers at a time
  double request_seconds = 600;       // for an answer; 0: no bound
  bool log_prompts = false;
};

// What a server stands on; all of it outlives the server. The engine is the server's while it lives.
struct ServerParts {
  Engine* engine = nullptr;
  const ModelInfo* info = nullptr;
  const Tokenizer* tokenizer = nullptr;
  RenderChat chat;                            // empty: the model has no chat template
  std::function<void(std::string_view)> log;  // a line of key=value; does not throw
};

class Server {
 public:
  // Listens. Fails where the address can't be had.
  static Result<std::unique_ptr<Server>> Start(ServerParts parts, ServerOptions options);
  virtual ~Server() = default;

  virtual int port() const = 0;
  // Serves until Stop, or until it has drained after a first SIGTERM or SIGINT (where `signals`). True where a second
  // one stopped it.
  virtual bool Run(bool signals) = 0;
  // From any thread.
  virtual void Drain() = 0;
  virtual void Stop() = 0;
  virtual LoopSnapshot snapshot() const = 0;
};

}  // namespace mla::server

#endif  // MLA_SERVER_SERVER_H_
