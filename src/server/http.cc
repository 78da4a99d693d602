#include "server/http.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <list>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace mla::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
constexpr int kSendBuffer = 64 << 10;

using Code = boost::system::error_code;

class Connection;
using Connections = std::list<std::shared_ptr<Connection>>;  // longest without a request first

struct Shared {
  explicit Shared(const HttpLimits& l) : limits(l), io(1) {}
  HttpLimits limits;
  asio::io_context io;
  HttpServer::Handler handler;
  Connections connections;
  bool draining = false;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

std::string Head(int status, std::string_view type, std::string_view more, bool keep) {
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\nConnection: {}\r\n{}",
                     status, ReasonPhrase(status), type, keep ? "keep-alive" : "close", more);
}

// Always reads, also while it answers: that is how it sees a client leave. What comes meanwhile waits, up to a bound.
class Connection final : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Shared& shared, tcp::socket socket)
      : shared_(shared), socket_(std::move(socket)), timer_(shared.io), write_timer_(shared.io) {}

  void Start(Connections::iterator self) {
    self_ = self;
    NewParser();
    Arm(shared_.limits.idle_seconds);
    Read();
  }

  bool busy() const { return busy_; }
  void CloseIfIdle() {
    if (!busy_ && !writing_ && unsent_.empty()) Close();
  }

  const HttpRequest& request() const override { return request_; }
  void OnGone(std::function<void()> gone) override {
    if (closed_) return gone();
    gone_ = std::move(gone);
  }

  void Respond(int status, std::string_view type, std::string_view body, std::string_view more) override {
    if (closed_ || !busy_) return;
    unsent_ += Head(status, type, more, KeepAlive());
    fmt::format_to(std::back_inserter(unsent_), "Content-Length: {}\r\n\r\n", body.size());
    if (request_.method != "HEAD") unsent_ += body;
    Answered();
  }

  void BeginStream() override {
    if (closed_) return;
    streaming_ = true;
    unsent_ += Head(200, "text/event-stream; charset=utf-8", "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n",
                    KeepAlive());
    unsent_ += chunked_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
    Write();
  }

  void Send(std::string_view bytes) override {
    if (closed_ || !streaming_ || bytes.empty()) return;
    if (unsent_.size() + bytes.size() > shared_.limits.max_unsent) return Close();
    if (chunked_) {
      fmt::format_to(std::back_inserter(unsent_), "{:x}\r\n", bytes.size());
      unsent_.append(bytes).append("\r\n");
    } else {
      unsent_ += bytes;
    }
    Write();
  }

  void EndStream() override {
    if (closed_ || !streaming_) return;
    streaming_ = false;
    if (chunked_) unsent_ += "0\r\n\r\n";
    Answered();
  }

  void Close() {
    if (std::exchange(closed_, true)) return;
    const auto keep = shared_from_this();
    Code ignored;
    timer_.cancel();
    write_timer_.cancel();
    socket_.close(ignored);
    shared_.connections.erase(self_);
    if (const auto gone = std::exchange(gone_, nullptr)) gone();
  }

 private:
  bool KeepAlive() const { return keep_alive_ && !shared_.draining; }

  void NewParser() {
    parser_.emplace();
    parser_->eager(true);
    parser_->header_limit(shared_.limits.max_header);
    parser_->body_limit(shared_.limits.max_body);
    begun_ = false;
  }

  void Arm(double seconds) {
    timer_.expires_after(Milliseconds(seconds));
    timer_.async_wait([self = shared_from_this()](Code fault) {
      if (fault || self->closed_ || self->busy_) return;
      if (!self->begun_ || self->failed_) return self->Close();
      self->Fail({.status = 408, .message = "the request did not come in time"});
    });
  }

  void Read() {
    socket_.async_read_some(asio::buffer(block_), [self = shared_from_this()](Code fault, std::size_t got) {
      if (self->closed_) return;
      // A peer that has shut its side has left: its answer would be computed for nobody.
      if (fault) return self->failed_ || !self->answer_ending() ? self->Close() : void(self->last_ = true);
      if (!self->failed_) self->Take(got);
      if (!self->closed_) self->Read();
    });
  }
  // The answer is whole and only has to go out.
  bool answer_ending() const { return !busy_ && (writing_ || !unsent_.empty()); }

  void Take(std::size_t got) {
    // Never more than one read of a request that came early: nobody's client pipelines bodies.
    if (pending_.size() + got > shared_.limits.max_header + block_.size()) {
      return busy_ ? Close() : Fail({.status = 431, .message = "the request's head is too long"});
    }
    pending_.append(block_.data(), got);
    if (!busy_) Parse();
  }

  void Parse() {
    while (!pending_.empty() && !parser_->is_done()) {
      if (!std::exchange(begun_, true)) Arm(shared_.limits.read_seconds);
      Code fault;
      const std::size_t used = parser_->put(asio::buffer(pending_), fault);
      pending_.erase(0, used);
      if (fault == http::error::need_more) break;
      if (fault) return Refuse(fault);
      if (used == 0) break;
    }
    if (parser_->is_header_done() && !std::exchange(continued_, parser_->is_header_done())) Expectation();
    if (parser_->is_done()) Handle();
  }

  void Expectation() {
    const auto& head = parser_->get();
    if (parser_->is_done() || head[http::field::expect] != "100-continue") return;
    unsent_ += "HTTP/1.1 100 Continue\r\n\r\n";
    Write();
  }

  void Refuse(const Code& fault) {
    if (fault == http::error::header_limit) {
      return Fail({.status = 431,
                   .message = fmt::format("the request's head: expected at most {} bytes", shared_.limits.max_header)});
    }
    if (fault == http::error::body_limit) {
      return Fail({.status = 413,
                   .message = fmt::format("body: expected at most {} bytes (--max-body)", shared_.limits.max_body)});
    }
    Fail({.message = fmt::format("no HTTP/1.1 request: {}", fault.message())});
  }

  // An answer to what is no whole request; the rest of it is read and dropped for a moment, since closing at once would
  // take the answer back.
  void Fail(const ApiError& error) {
    failed_ = true;
    keep_alive_ = false;
    pending_.clear();
    busy_ = true;
    RespondError(*this, error);
  }

  void Handle() {
    const auto& head = parser_->get();
    const auto text = [](const auto& view) { return std::string(view.data(), view.size()); };
    request_.method = text(head.method_string());
    request_.path = text(head.target());
    request_.path.resize(std::min(request_.path.find('?'), request_.path.size()));
    request_.authorization = text(head[http::field::authorization]);
    request_.origin = text(head[http::field::origin]);
    request_.host = text(head[http::field::host]);
    chunked_ = head.version() >= 11;
    keep_alive_ = parser_->keep_alive() && chunked_;
    request_.body = std::move(parser_->get().body());
    busy_ = true;
    continued_ = false;
    timer_.cancel();
    shared_.handler(shared_from_this());
  }

  void Answered() {
    gone_ = nullptr;
    last_ = last_ || !KeepAlive();
    busy_ = false;
    begun_ = false;
    request_ = {};
    if (!failed_) NewParser();
    shared_.connections.splice(shared_.connections.end(), shared_.connections, self_);
    Arm(failed_ ? 2 : shared_.limits.idle_seconds);
    Write();
    if (last_ || closed_ || pending_.empty()) return;
    asio::post(shared_.io, [self = shared_from_this()] {
      if (!self->closed_ && !self->busy_) self->Parse();
    });
  }

  void Write() {
    if (writing_ || closed_ || unsent_.empty()) return;
    writing_ = true;
    in_flight_ = std::exchange(unsent_, "");
    write_timer_.expires_after(Milliseconds(shared_.limits.write_seconds));
    write_timer_.async_wait([self = shared_from_this()](Code fault) {
      if (!fault) self->Close();
    });
    asio::async_write(socket_, asio::buffer(in_flight_), [self = shared_from_this()](Code fault, std::size_t) {
      self->writing_ = false;
      self->write_timer_.cancel();
      if (self->closed_) return;
      if (fault) return self->Close();
      if (!self->unsent_.empty()) return self->Write();
      if (self->last_ && !self->busy_) self->Finish();
    });
  }

  // All is sent. Where the peer may still be sending, closing now could take the answer back.
  void Finish() {
    if (!failed_) return Close();
    Code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }

  Shared& shared_;
  tcp::socket socket_;
  asio::steady_timer timer_;        // of reading
  asio::steady_timer write_timer_;  // of writing
  Connections::iterator self_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::array<char, 16384> block_;
  std::string pending_;    // read, not yet parsed
  std::string unsent_;     // to be written after
  std::string in_flight_;  // what is being written
  HttpRequest request_;
  std::function<void()> gone_;
  bool begun_ = false;      // a request's first byte is here
  bool continued_ = false;  // its head is
  bool busy_ = false;       // a whole request waits for its answer
  bool streaming_ = false;
  bool chunked_ = true;
  bool keep_alive_ = true;
  bool writing_ = false;
  bool failed_ = false;  // what comes is read and dropped
  bool last_ = false;    // closed once all is sent
  bool closed_ = false;
};

class AsioServer final : public HttpServer {
 public:
  AsioServer(const HttpLimits& limits, Handler handler)
      : shared_(limits), acceptor_(shared_.io), retry_(shared_.io), signals_(shared_.io) {
    shared_.handler = std::move(handler);
  }

  ~AsioServer() override {
    try {
      Code ignored;
      acceptor_.close(ignored);
      while (!shared_.connections.empty()) std::shared_ptr<Connection>(shared_.connections.front())->Close();
    } catch (const std::exception&) {
      // What is still open is closed with the sockets themselves.
    }
  }

  Status Open(const std::string& host, int port) {
    Code fault;
    const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, fault);
    if (fault) return Error{fmt::format("--host: expected an IP address or localhost, found '{}'", host)};
    const tcp::endpoint endpoint(address, static_cast<std::uint16_t>(port));
    acceptor_.open(endpoint.protocol(), fault);
    if (!fault) acceptor_.set_option(tcp::acceptor::reuse_address(true), fault);
    if (!fault) acceptor_.bind(endpoint, fault);
    if (!fault) acceptor_.listen(tcp::acceptor::max_listen_connections, fault);
    if (fault) return Error{fmt::format("{} port {}: {}", host, port, fault.message())};
    port_ = acceptor_.local_endpoint(fault).port();
    Accept();
    return {};
  }

  int port() const override { return port_; }
  std::size_t connections() const override { return shared_.connections.size(); }
  void Post(std::function<void()> f) override { asio::post(shared_.io, std::move(f)); }
  void Stop() override { shared_.io.stop(); }

  bool Run(bool signals, std::function<void()> on_signal) override {
    if (signals) {
      Code ignored;
      signals_.add(SIGTERM, ignored);
      signals_.add(SIGINT, ignored);
      signals_.async_wait([this, on_signal = std::move(on_signal)](Code fault, int) {
        if (fault) return;
        signals_.async_wait([this](Code again, int) {
          if (again) return;
          at_once_ = true;
          Stop();
        });
        on_signal();
      });
    }
    shared_.io.run();
    return at_once_;
  }

  void Drain() override {
    shared_.draining = true;
    Code ignored;
    acceptor_.close(ignored);
    for (auto it = shared_.connections.begin(); it != shared_.connections.end();) (*it++)->CloseIfIdle();
    WaitForLast();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](Code fault, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (fault) {
        // Out of descriptors, mostly: what is open goes on, and new ones wait in the kernel's queue.
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](Code cancelled) {
          if (!cancelled && acceptor_.is_open()) Accept();
        });
        return;
      }
      Take(std::move(socket));
      Accept();
    });
  }

  void Take(tcp::socket socket) {
    auto& all = shared_.connections;
    if (all.size() >= shared_.limits.max_connections) {
      const auto oldest = std::find_if(all.begin(), all.end(), [](const auto& c) { return !c->busy(); });
      if (oldest == all.end()) return;  // the socket closes: as many are being answered as may be
      std::shared_ptr<Connection>(*oldest)->Close();
    }
    Code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    // What the kernel keeps for a reader is bounded too, and a peer that has vanished is noticed.
    socket.set_option(asio::socket_base::send_buffer_size(kSendBuffer), ignored);
    const int idle = 60;
    const auto unanswered = static_cast<unsigned>(shared_.limits.write_seconds * 1000);
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered, sizeof(unanswered));
    all.push_back(std::make_shared<Connection>(shared_, std::move(socket)));
    all.back()->Start(std::prev(all.end()));
  }

  void WaitForLast() {
    if (shared_.connections.empty()) return Stop();
    retry_.expires_after(std::chrono::milliseconds(20));
    retry_.async_wait([this](Code cancelled) {
      if (cancelled) return;
      for (auto it = shared_.connections.begin(); it != shared_.connections.end();) (*it++)->CloseIfIdle();
      WaitForLast();
    });
  }

  Shared shared_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  asio::signal_set signals_;
  int port_ = 0;
  bool at_once_ = false;
};

}  // namespace

void RespondError(Exchange& exchange, const ApiError& error) {
  std::string more;
  if (error.retry_after > 0) more = fmt::format("Retry-After: {}\r\n", error.retry_after);
  if (!error.allow.empty()) more += fmt::format("Allow: {}\r\n", error.allow);
  if (error.status == 401) more += "WWW-Authenticate: Bearer\r\n";
  exchange.Respond(error.status, "application/json", ErrorJson(error), more);
}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const std::string& host, int port, const HttpLimits& limits,
                                                       Handler handler) {
  try {
    auto server = std::make_unique<AsioServer>(limits, std::move(handler));
    MLA_RETURN_IF_ERROR(server->Open(host, port));
    return std::unique_ptr<HttpServer>(std::move(server));
  } catch (const std::exception& e) {
    return Error{fmt::format("sockets: {}", e.what())};
  }
}

}  // namespace mla::server
