// HTTP/1.1 over sockets, on one thread: connections, their limits, and whole or streamed answers.
#ifndef MLA_SERVER_HTTP_H_
#define MLA_SERVER_HTTP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "mla/result.h"
#include "server/api_error.h"

namespace mla::server {

struct HttpLimits {
  std::uint64_t max_body = std::uint64_t{4} << 20;  // bytes of a request's body
  std::uint32_t max_header = 16 << 10;              // bytes of its head
  std::size_t max_connections = 1024;               // past it, the one that has been idle longest is closed
  std::size_t max_unsent = std::size_t{1} << 20;    // bytes of a stream that its reader has not taken
  double read_seconds = 30;                         // for a whole request, from its first byte
  double idle_seconds = 120;                        // between requests
  double write_seconds = 30;                        // for a reader to take anything at all
};

struct HttpRequest {
  std::string method;
  std::string path;  // without the query
  std::string authorization;
  std::string origin;
  std::string host;
  std::string body;
};

// A request and the way to answer it, once. Used on the server's thread alone. After the peer has left, answers go
// nowhere.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // A whole answer.
  virtual void Respond(int status, std::string_view content_type, std::string_view body,
                       std::string_view more_headers = "") = 0;
  // Or 200 and parts of one, as server-sent events; a reader that leaves more than max_unsent bytes is dropped.
  virtual void BeginStream() = 0;
  virtual void Send(std::string_view bytes) = 0;
  virtual void EndStream() = 0;
  // Called once, if the peer leaves or is dropped before the answer has ended; at once, where it has.
  virtual void OnGone(std::function<void()> gone) = 0;
};

void RespondError(Exchange& exchange, const ApiError& error);

class HttpServer {
 public:
  using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

  // Listens. Port 0 takes a free one. Fails, naming both, where the address can't be had. The handler is called on the
  // thread of Run, and does not throw.
  static Result<std::unique_ptr<HttpServer>> Listen(const std::string& host, int port, const HttpLimits& limits,
                                                    Handler handler);
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // Serves until Stop. A first SIGTERM or SIGINT calls on_signal, where signals are asked for; a second one stops at
  // once. True where it was stopped so.
  virtual bool Run(bool signals, std::function<void()> on_signal) = 0;
  // On the thread of Run: no more connections, and idle ones are closed; Run returns when the last answer has gone out.
  virtual void Drain() = 0;
  // From any thread: runs f on the thread of Run.
  virtual void Post(std::function<void()> f) = 0;
  // From any thread: Run returns.
  virtual void Stop() = 0;
  virtual std::size_t connections() const = 0;
};

}  // namespace mla::server

#endif  // MLA_SERVER_HTTP_H_
