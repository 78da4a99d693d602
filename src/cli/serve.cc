// mla serve MODEL: the model behind OpenAI's HTTP interface.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include "chat/seen_turns.h"
#include "cli/app.h"
#include "cli/chat_template_option.h"
#include "cli/command.h"
#include "cli/compute_options.h"
#include "cli/flags.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/serving_options.h"
#include "mla/tokenizer.h"
#include "model/model.h"
#include "server/server.h"

namespace mla::cli {
namespace {

struct ServeOptions : ComputeOptions {
  server::ServerOptions server;
  std::string api_key_file;
  std::string max_body = "4MiB";
  ServingOptions serving;
  ChatTemplateOptions chat;
};

// Lines to stderr that are dropped where nobody takes them: a full disk or a stuck pipe never holds the server up.
class DroppingSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
    // A pipe that is ready takes this much without waiting.
    const ssize_t ignored = write(STDERR_FILENO, text.data(), std::min<std::size_t>(text.size(), 4096));
    static_cast<void>(ignored);
  }
  void flush_() override {}
};

// One key a line; blanks at the ends don't count.
Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error{fmt::format("--api-key-file: {} can't be read", path)};
  std::vector<std::string> keys;
  for (std::string line; std::getline(in, line);) {
    const auto begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    keys.push_back(line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin));
  }
  if (keys.empty()) return Error{fmt::format("--api-key-file: expected a key a line, {} has none", path)};
  return keys;
}

// A connection is a descriptor; what a session starts with, often 1024, is less than the system gives.
void RaiseDescriptors(std::size_t connections) {
  rlimit limit{};
  const rlim_t wanted = connections + 128;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Replies whose next turns are expected; 16 MiB hold some hundred conversations of a few thousand tokens.
constexpr std::size_t kTurns = 1024;
constexpr std::size_t kTurnBytes = std::size_t{16} << 20;

// As the template writes it, with the ids of replies that were given here; on whichever thread reads the request. A
// request's variables come before the program's.
Result<server::ChatPrompt> Render(const ChatTemplate& chat, const ChatInput& settings, const Tokenizer& tokenizer,
                                  const server::ChatRequest& request, chat::SeenTurns* turns) {
  ChatInput input = settings;
  input.messages = request.messages;
  input.tools = request.tools;
  if (!request.variables.empty()) input.variables = request.variables;
  // Kept until the last reply, once: the closure below is copied along the way.
  const auto turn = std::make_shared<chat::SeenTurn>();
  MLA_ASSIGN_OR_RETURN(turn->text, chat.Render(input));
  MLA_ASSIGN_OR_RETURN(turn->ids, turns->Encode(tokenizer, turn->text));
  server::ChatPrompt prompt;
  prompt.ids = turn->ids;
  const std::string_view text = turn->text.text;
  prompt.in_reasoning = text.substr(0, text.find_last_not_of(" \n") + 1).ends_with("<think>");
  prompt.replied = [turns, &tokenizer, turn](std::span<const std::int32_t> reply) {
    turns->Add(tokenizer, *turn, reply);
  };
  return prompt;
}

Result<int> Serve(ServeOptions o, const Log& log) {
  signal(SIGPIPE, SIG_IGN);
  MLA_ASSIGN_OR_RETURN(const std::int64_t max_body, ParseSize(o.max_body));
  o.server.http.max_body = static_cast<std::uint64_t>(max_body);
  if (!o.api_key_file.empty()) {
    MLA_ASSIGN_OR_RETURN(o.server.api_keys, ReadKeys(o.api_key_file));
  }
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  MLA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(o.model));
  ChatInput settings;
  MLA_ASSIGN_OR_RETURN(const ChatTemplate chat, LoadChatTemplate(o.model, o.chat, &settings));
  o.weights = KeptWeights(o, opened.config);
  if (o.server.model_name.empty()) {
    o.server.model_name = std::filesystem::path(o.model).lexically_normal().filename().string();
    if (o.server.model_name.empty()) {
      o.server.model_name = std::filesystem::path(o.model).lexically_normal().parent_path().filename().string();
    }
  }
  MLA_ASSIGN_OR_RETURN(const EngineOptions engine,
                       ServingEngineOptions(o.serving, o, opened.info.max_position_embeddings));
  MLA_ASSIGN_OR_RETURN(const LoadedEngine loaded,
                       LoadEngine(o, opened, engine, ThreadCount(o, log), kServingSizeFlags, log));
  WarnOfRejectedKernels(*loaded.engine, log);
  RaiseDescriptors(o.server.http.max_connections);

  spdlog::logger lines("mla", std::make_shared<DroppingSink>());
  lines.set_pattern("time=%Y-%m-%dT%H:%M:%S.%e%z %v");
  server::ServerParts parts;
  parts.engine = loaded.engine.get();
  parts.info = &loaded.model->info();
  parts.tokenizer = &tokenizer;
  chat::SeenTurns turns(kTurns, kTurnBytes);
  if (!chat.names().empty()) {
    parts.chat = [&](const server::ChatRequest& request) { return Render(chat, settings, tokenizer, request, &turns); };
  }
  parts.log = [&lines](std::string_view line) { lines.info("{}", line); };
  MLA_ASSIGN_OR_RETURN(const auto server, server::Server::Start(std::move(parts), o.server));
  MLA_RETURN_IF_ERROR(WriteOut(fmt::format("listening on http://{}:{}\n", o.server.host, server->port())));
  MLA_RETURN_IF_ERROR(FlushOut());
  return server->Run(true) ? kInterrupted : kDone;
}

void AddLimitFlags(CLI::App& c, ServeOptions* o) {
  server::ServerOptions& s = o->server;
  c.add_option("--max-body", o->max_body, "Bytes of a request's body, as 4MiB")
      ->check(Checked(ParseSize))
      ->capture_default_str();
  c.add_option("--max-prompt", s.max_prompt, "Tokens of a prompt; 0: the context")
      ->check(WholeIn(0, std::uint64_t{1} << 31))
      ->capture_default_str();
  c.add_option("--max-queue", s.max_queue, "Prompts that wait; past it, 429")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--max-streams", s.max_streams, "Streamed answers at a time; past it, 429")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--max-connections", s.http.max_connections,
               "Open connections; past it, the one that has been idle longest is closed")
      ->check(WholeIn(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--idle-timeout", s.http.idle_seconds, "Seconds between requests of a connection")
      ->check(NumberIn(0, false, 86400))
      ->capture_default_str();
  c.add_option("--read-timeout", s.http.read_seconds, "Seconds for a whole request to come")
      ->check(NumberIn(0, false, 86400))
      ->capture_default_str();
  c.add_option("--request-timeout", s.request_seconds, "Seconds for an answer, its wait included; 0: no bound")
      ->check(NumberIn(0, true, 1e6))
      ->capture_default_str();
}

void AddServeFlags(CLI::App& c, ServeOptions* o) {
  AddModelArgument(c, o);
  c.add_option("--host", o->server.host, "IP address to listen on; 0.0.0.0 or :: for every one")->capture_default_str();
  c.add_option("--port", o->server.port, "Port; 0 takes a free one and prints it")
      ->check(WholeIn(0, 65535))
      ->capture_default_str();
  c.add_option("--api-key-file", o->api_key_file, "File of keys, one a line: then requests must bring one");
  c.add_option("--served-model-name", o->server.model_name, "The model's name; else its folder's");
  c.add_flag("--log-prompts", o->server.log_prompts, "Write prompts to the log; else no text is");
  AddLimitFlags(c, o);
  AddChatTemplateFlags(c, &o->chat);
  AddServingFlags(c, &o->serving, o);
  AddComputeFlags(c, o);
  c.add_flag("--quiet,-q", o->quiet, "No progress while loading");
}

}  // namespace

Action AddServe(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model over OpenAI's HTTP interface");
  auto options = std::make_shared<ServeOptions>();
  AddServeFlags(*command, options.get());
  return [options, log]() -> Result<int> {
    if (options->is_explicit()) return Error{"--mode: the explicit reference can't be served"};
    return Serve(*options, log);
  };
}

}  // namespace mla::cli
