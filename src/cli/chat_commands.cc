#include "cli/chat_commands.h"

#include <cerrno>
#include <cstdio>
#include <span>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/file.h"
#include "io/json.h"
#include "io/quote.h"

namespace mla::cli {
namespace {

constexpr std::string_view kHelp =
    "/reset         begin anew; a system's message stays\n"
    "/save FILE     write the messages as JSON\n"
    "/load FILE     read them in place of these\n"
    "/quit          end; so does the end of the input\n"
    "/help          this\n"
    "A line that ends in \\ goes on in the next one. //x says /x. Ctrl-C ends a reply.\n";

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

Status SaveMessages(const std::string& path, const std::vector<ChatMessage>& messages) {
  std::string json = "[";
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string one = ChatMessagesJson(std::span(&messages[i], 1));
    json += (i == 0 ? "\n " : ",\n ") + one.substr(1, one.size() - 2);
  }
  json += "\n]\n";
  const std::string part = path + ".part";
  const io::FileDescriptor file(open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() < 0) return io::CantWrite(path, errno);
  int fault = io::WriteAll(file.get(), std::as_bytes(std::span(json)));
  if (fault == 0 && fsync(file.get()) != 0) fault = errno;
  if (fault == 0 && std::rename(part.c_str(), path.c_str()) != 0) fault = errno;
  if (fault == 0) return {};
  unlink(part.c_str());
  return io::CantWrite(path, fault);
}

Result<std::vector<ChatMessage>> LoadMessages(const std::string& path) {
  constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
  MLA_ASSIGN_OR_RETURN(const io::JsonValue json, io::ReadJsonFile(path, kMostBytes));
  const std::string shown = io::Printable(path);
  if (!json.is_array())
    return Error{fmt::format("{}: expected an array of messages, found {}", shown, json.Describe())};
  std::vector<ChatMessage> messages;
  for (const io::JsonValue& entry : json.items()) {
    const io::JsonValue* role = entry.Find("role");
    const io::JsonValue* content = entry.Find("content");
    const bool plain = role != nullptr && content != nullptr && role->is_string() && entry.members().size() == 2 &&
                       (content->is_string() || content->is_null());
    if (!plain) {
      return Error{
          fmt::format("{}: message {}: expected \"role\" and \"content\" alone, both texts", shown, messages.size())};
    }
    ChatMessage& message = messages.emplace_back();
    message.role = role->string();
    if (content->is_string()) message.content = content->string();
  }
  return messages;
}

Result<LineKind> RunCommand(std::string* line, Conversation* conversation, std::string* answer) {
  if (line->empty() || (*line)[0] != '/') return LineKind::kMessage;
  if (line->starts_with("//")) {
    line->erase(0, 1);
    return LineKind::kMessage;
  }
  const std::size_t blank = line->find(' ');
  const std::string word = line->substr(0, blank);
  const std::string path(blank == std::string::npos ? std::string_view()
                                                    : Trimmed(std::string_view(*line).substr(blank)));
  const bool file = word == "/save" || word == "/load";
  if (file && path.empty()) return Error{fmt::format("{}: expected a file's name behind it", word)};
  if (word == "/quit" || word == "/exit") return LineKind::kQuit;
  if (word == "/help") {
    *answer = kHelp;
  } else if (word == "/reset") {
    conversation->Reset();
  } else if (word == "/save") {
    const std::vector<ChatMessage> messages = conversation->messages();
    MLA_RETURN_IF_ERROR(SaveMessages(path, messages));
    *answer = fmt::format("{} messages written\n", messages.size());
  } else if (word == "/load") {
    MLA_ASSIGN_OR_RETURN(std::vector<ChatMessage> messages, LoadMessages(path));
    *answer = fmt::format("{} messages read\n", messages.size());
    conversation->Set(std::move(messages));
  } else {
    return Error{fmt::format("{}: no such command; /help tells which there are", io::Printable(word, 40))};
  }
  return LineKind::kCommand;
}

}  // namespace mla::cli
