// mla chat MODEL: a conversation in the terminal.
#include "mla/chat.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/app.h"
#include "cli/chat_commands.h"
#include "cli/chat_template_option.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/streamer.h"
#include "engine/limits.h"
#include "io/quote.h"
#include "mla/engine.h"
#include "mla/tokenizer.h"
#include "model/model.h"
#include "sampler/sampler.h"
#include "text/prompt.h"

namespace mla::cli {
namespace {

struct ChatOptions : RunOptions {
  std::optional<std::string> system;
  ChatTemplateOptions chat;
};

// Where nothing else is asked for: a longer context takes memory that most conversations never fill.
constexpr std::int64_t kUsualContext = 8192;

// A line of stdin without its end; those that end in a backslash go on in the next. Nothing at the end of the input.
class Lines {
 public:
  Lines() : terminal_(isatty(STDIN_FILENO) != 0) {}
  ~Lines() { std::free(line_); }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  bool terminal() const { return terminal_; }

  Result<std::optional<std::string>> Next() {
    std::string text;
    for (bool more = true; more;) {
      if (terminal_) std::fputs(text.empty() ? "> " : "... ", stderr);
      const ssize_t size = getline(&line_, &capacity_, stdin);
      if (size < 0) return text.empty() ? std::nullopt : std::optional(text);
      text.append(line_, static_cast<std::size_t>(size));
      if (text.ends_with('\n')) text.pop_back();
      more = text.ends_with('\\');
      if (more) text.back() = '\n';
      if (text.size() > kMostLine) return Error{fmt::format("stdin: a message of more than {} bytes", kMostLine)};
    }
    if (io::ValidUtf8Prefix(text) != text.size()) return Error{"stdin: a line that is no UTF-8"};
    return std::optional(std::move(text));
  }

 private:
  static constexpr std::size_t kMostLine = std::size_t{64} << 20;
  bool terminal_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

class Chat {
 public:
  Chat(const ChatOptions& o, const model::Opened& opened, const Tokenizer& tokenizer, const ChatTemplate& chat,
       ChatInput settings, Engine& engine)
      : o_(o),
        opened_(opened),
        tokenizer_(tokenizer),
        engine_(engine),
        conversation_(chat, tokenizer, std::move(settings)) {
    conversation_.SetSystem(o.system);
  }

  // Until the input ends. In a script, which nobody watches, the first error ends it.
  Result<int> Run(const Log& log) {
    Lines lines;
    if (lines.terminal() && !o_.quiet) std::fputs("/help tells what else a line can be.\n", stderr);
    for (;;) {
      Result<std::optional<std::string>> line = lines.Next();
      if (line.ok() && !*line) {
        if (lines.terminal()) std::fputs("\n", stderr);
        return kDone;
      }
      const Result<LineKind> done = line.ok() ? Take(&**line) : line.error();
      if (!done.ok() && !lines.terminal()) return done.error();
      if (!done.ok()) log->error("{}", io::Printable(done.error().message, kLongestError));
      if (done.ok() && *done == LineKind::kQuit) return kDone;
    }
  }

 private:
  Result<LineKind> Take(std::string* line) {
    std::string answer;
    MLA_ASSIGN_OR_RETURN(const LineKind kind, RunCommand(line, &conversation_, &engine_, &answer));
    if (kind != LineKind::kMessage) {
      std::fputs(answer.c_str(), stderr);
      return kind;
    }
    if (line->find_first_not_of(" \t\n") != std::string::npos) MLA_RETURN_IF_ERROR(Reply(*line));
    return kind;
  }

  Result<Request> RequestFor(const std::string& message) {
    Request request;
    MLA_ASSIGN_OR_RETURN(request.prompt, conversation_.Prompt(message));
    MLA_RETURN_IF_ERROR(text::CheckVocabulary(request.prompt, opened_.info.vocab_size));
    if (static_cast<std::int64_t>(request.prompt.size()) >= engine_.context())
      return Error{
          fmt::format("the conversation has {} tokens, and with room for one more does not fit the context of "
                      "{}: /reset, or --ctx",
                      request.prompt.size(), engine_.context())};
    request.max_tokens = o_.max_tokens;
    request.sampling = Sampling(o_, opened_.info.sampling);
    if (!o_.ignore_eos) request.eos_ids = text::EosIds(opened_.info.eos_ids, &tokenizer_);
    return request;
  }

  Status Reply(const std::string& message) {
    MLA_ASSIGN_OR_RETURN(const Request request, RequestFor(message));
    MLA_ASSIGN_OR_RETURN(const SequenceId id, engine_.Submit(request));
    Streamer streamer(&tokenizer_, true);
    const auto begin = Clock::now();
    Status drawn = Draw(id, &streamer);
    const SequenceView view = engine_.Get(id);
    // An id that ended the reply is the template's to write.
    const bool ended = view.finish == FinishReason::kEos;
    const std::vector<std::int32_t> ids(view.output().begin(), view.output().end() - (ended ? 1 : 0));
    const std::int64_t cached = view.cached_tokens;
    engine_.Release(id);
    if (!drawn.ok()) return drawn;
    MLA_RETURN_IF_ERROR(streamer.Finish());
    conversation_.AddReply(streamer.text(), ids);
    if (!o_.quiet) {
      std::fputs(fmt::format("[{} tokens in {:.1f} s; {} of the prompt's {} were in the cache]\n", ids.size(),
                             Since(begin), cached, request.prompt.size())
                     .c_str(),
                 stderr);
    }
    return {};
  }

  // Streams the reply until it ends or Ctrl-C does.
  Status Draw(SequenceId id, Streamer* streamer) {
    InterruptScope interrupt;
    interrupt.Defer();
    std::size_t delivered = 0;
    while (engine_.Get(id).finish == FinishReason::kNone && !interrupt.Requested()) {
      if (!engine_.Step()) return Error{"cache: no page is left"};
      const SequenceView view = engine_.Get(id);
      const std::size_t shown = view.output().size() - (view.finish == FinishReason::kEos ? 1 : 0);
      for (; delivered < shown; ++delivered) MLA_RETURN_IF_ERROR(streamer->Push(view.output()[delivered]));
    }
    const SequenceView view = engine_.Get(id);
    if (view.finish == FinishReason::kNotFinite)
      return engine::NotFiniteError(static_cast<std::int64_t>(view.ids.size()));
    return {};
  }

  const ChatOptions& o_;
  const model::Opened& opened_;
  const Tokenizer& tokenizer_;
  Engine& engine_;
  Conversation conversation_;
};

Result<int> RunChat(ChatOptions o, const Log& log) {
  if (o.is_explicit()) return Error{"--mode explicit: `mla run` has it, `mla chat` has not"};
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(o.model));
  o.weights = KeptWeights(o, opened.config);
  MLA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(o.model));
  ChatInput settings;
  MLA_ASSIGN_OR_RETURN(const ChatTemplate chat, LoadChatTemplate(o.model, o.chat, &settings));
  if (chat.names().empty()) return Error{"the model has no chat template: --template plain, or a file, gives it one"};
  MLA_RETURN_IF_ERROR(sampler::Validate(Sampling(o, opened.info.sampling)));
  const std::int64_t most = opened.info.max_position_embeddings;
  MLA_RETURN_IF_ERROR(CheckContext(o.ctx, most));
  const std::int64_t context = o.ctx > 0 ? o.ctx : std::min(most, kUsualContext);
  MLA_ASSIGN_OR_RETURN(const LoadedEngine loaded, LoadEngine(o, opened, context, ThreadCount(o, log), "--ctx", log));
  WarnOfRejectedKernels(*loaded.engine, log);
  return Chat(o, opened, tokenizer, chat, std::move(settings), *loaded.engine).Run(log);
}

}  // namespace

Action AddChat(CLI::App& app, const Log& log) {
  CLI::App* command = app.add_subcommand("chat", "Talk with a model, through its own chat template");
  auto options = std::make_shared<ChatOptions>();
  options->max_tokens = 1024;
  AddModelArgument(*command, options.get());
  command->add_option("--system", options->system, "The system's message, before all others");
  AddChatTemplateFlags(*command, &options->chat);
  AddComputeFlags(*command, options.get());
  AddSamplingFlags(*command, options.get());
  command->get_option("--ctx")->description(
      fmt::format("Most tokens of the conversation; 0: {}, as far as the model goes", kUsualContext));
  command->get_option("--max-tokens")->description("Most tokens of a reply");
  command->add_flag("--quiet,-q", options->quiet, "No progress, and no line of figures behind a reply");
  return [options, log] { return RunChat(*options, log); };
}

}  // namespace mla::cli
