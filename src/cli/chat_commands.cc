#include "cli/chat_commands.h"

#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "io/json.h"
#include "io/new_file.h"
#include "io/quote.h"

namespace mla::cli {
namespace {

constexpr std::string_view kHelp =
    "/reset         begin anew; a system's message stays\n"
    "/save FILE     write the messages as JSON, and what was computed of them to FILE.cache\n"
    "/load FILE     read them in place of these\n"
    "/history       show the messages so far\n"
    "/quit          end; so does the end of the input\n"
    "/help          this\n"
    "A line that ends in \\ goes on in the next one. //x says /x. Ctrl-C ends a reply.\n";

std::string_view Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

Status Save(const std::string& path, const Conversation& conversation, Engine* engine, std::string* answer) {
  const std::vector<ChatMessage> messages = conversation.messages();
  MLA_RETURN_IF_ERROR(SaveMessages(path, messages));
  *answer = fmt::format("{} messages written\n", messages.size());
  if (conversation.seen_ids().empty() || engine->options().prefix_reuse == PrefixReuse::kOff) return {};
  MLA_ASSIGN_OR_RETURN(const SavedCache saved, engine->SaveCache(conversation.seen_ids(), 0, path + ".cache"));
  *answer += fmt::format("{} computed rows written to {}.cache\n", saved.rows, io::Printable(path));
  return {};
}

// Rows that don't fit this model or engine are no loss but of time: they are computed again.
Status Load(const std::string& path, Conversation* conversation, Engine* engine, std::string* answer) {
  MLA_ASSIGN_OR_RETURN(std::vector<ChatMessage> messages, LoadMessages(path));
  *answer = fmt::format("{} messages read\n", messages.size());
  conversation->Set(std::move(messages));
  const std::string cache = path + ".cache";
  std::error_code none;
  if (!std::filesystem::exists(cache, none)) return {};
  const Result<LoadedCache> loaded = engine->LoadCache(cache);
  if (!loaded.ok()) {
    *answer += fmt::format("without computed rows: {}\n", loaded.error().message);
  } else if (conversation->Recall(loaded->ids)) {
    *answer += fmt::format("{} computed rows read\n", loaded->rows);
  } else {
    *answer += fmt::format("without computed rows: {}: is of other messages\n", io::Printable(cache));
  }
  return {};
}

std::string History(const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatMessage& message : messages)
    text += fmt::format("{}: {}\n", message.role, message.content.value_or(""));
  return text.empty() ? "no messages yet\n" : text;
}

}  // namespace

Status SaveMessages(const std::string& path, const std::vector<ChatMessage>& messages) {
  std::string json = "[";
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string one = ChatMessagesJson(std::span(&messages[i], 1));
    json += (i == 0 ? "\n " : ",\n ") + one.substr(1, one.size() - 2);
  }
  json += "\n]\n";
  return io::ReplaceFile(path, json);
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

Result<LineKind> RunCommand(std::string* line, Conversation* conversation, Engine* engine, std::string* answer) {
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
  } else if (word == "/history") {
    *answer = History(conversation->messages());
  } else if (word == "/reset") {
    conversation->Reset();
  } else if (word == "/save") {
    MLA_RETURN_IF_ERROR(Save(path, *conversation, engine, answer));
  } else if (word == "/load") {
    MLA_RETURN_IF_ERROR(Load(path, conversation, engine, answer));
  } else {
    return Error{fmt::format("{}: no such command; /help tells which there are", io::Printable(word, 40))};
  }
  return LineKind::kCommand;
}

}  // namespace mla::cli
