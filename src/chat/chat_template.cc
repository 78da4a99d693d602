#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "chat/conversation.h"
#include "chat/heap.h"
#include "chat/parser.h"
#include "chat/renderer.h"
#include "chat/template_files.h"
#include "io/json.h"
#include "io/quote.h"
#include "mla/chat.h"

namespace mla {
namespace {

using chat::ToolArguments;
using io::JsonValue;

// Of one rendering, beside what each byte of its input adds: a quarter of a second. A conversation of a thousand
// messages takes some ten thousand steps, and one for 64 bytes of each copy of its text.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 21;
constexpr std::int64_t kMostStepsPerByte = 4;
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;
constexpr std::int64_t kMostBytesPerByte = 64;
constexpr std::size_t kMostInput = std::size_t{64} << 20;

struct Loaded {
  std::string where;
  Result<chat::Template> parsed;
  ToolArguments arguments = ToolArguments::kAsGiven;
};

constexpr std::string_view kPlain =
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}User: {% elif message.role == 'assistant' %}Assistant: {% endif %}"
    "{{ message.content if message.content is not none else '' }}\n\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}";

// A conversation whose tool call has arguments to look for in what a template writes.
constexpr std::string_view kProbeName = "probed_argument";
std::string Probe(bool as_text, bool with_content) {
  const std::string object = fmt::format(R"({{"{}": "x"}})", kProbeName);
  return fmt::format(
      R"([{{"role":"user","content":"a"}},{{"role":"assistant","content":{},"tool_calls":[{{"id":"call_0",)"
      R"("type":"function","function":{{"name":"f","arguments":{}}}}}]}},)"
      R"({{"role":"tool","tool_call_id":"call_0","name":"f","content":"b"}}])",
      with_content ? R"("")" : "null", as_text ? io::JsonString(object) : object);
}

}  // namespace

struct ChatTemplate::Impl {
  std::vector<std::string> names;
  std::vector<Loaded> templates;  // of the same order
  chat::TemplateFiles files;      // for their tokens

  void Add(const std::string& name, const std::string& where, std::string_view source);
  Result<const Loaded*> Choose(const ChatInput& input) const;
  std::vector<chat::Variable> Variables(chat::Heap* heap) const;
  Result<chat::MarkedText> RenderWith(const Loaded& loaded, const ChatInput& input) const;
  bool Writes(const Loaded& loaded, bool as_text) const;
  ToolArguments FormOfArguments(const Loaded& loaded) const;
};

namespace {

Result<chat::Template> Parse(std::string_view source, const std::string& where) {
  Result<chat::Template> parsed = chat::ParseTemplate(source);
  if (!parsed.ok()) return Error{fmt::format("{}: {}", where, parsed.error().message)};
  return parsed;
}

// The variables of a request beside the conversation.
Status AddVariables(std::string_view json, chat::Heap* heap, JsonValue* keep, std::vector<chat::Variable>* variables) {
  if (json.empty()) return {};
  MLA_ASSIGN_OR_RETURN(*keep, io::ParseJson(json, "variables"));
  if (!keep->is_object()) return Error{fmt::format("variables: expected an object, found {}", keep->Describe())};
  for (const auto& [name, value] : keep->members()) {
    if (name == "messages" || name == "tools" || name == "add_generation_prompt")
      return Error{fmt::format("variables: \"{}\" is given apart", name)};
    variables->push_back({name, chat::FromJson(value, heap)});  // a later one of a name wins
  }
  return {};
}

}  // namespace

void ChatTemplate::Impl::Add(const std::string& name, const std::string& where, std::string_view source) {
  Loaded loaded{where, Parse(source, where)};
  if (loaded.parsed.ok()) loaded.arguments = FormOfArguments(loaded);
  names.push_back(name);
  templates.push_back(std::move(loaded));
}

std::vector<chat::Variable> ChatTemplate::Impl::Variables(chat::Heap* heap) const {
  std::vector<chat::Variable> variables;
  const auto text = [&](const std::string& token) { return chat::Value::Text(heap, chat::MarkedText::Trusted(token)); };
  for (const auto& [name, token] : files.tokens) variables.push_back({name, text(token)});
  for (const auto& [name, tokens] : files.token_lists) {
    std::vector<chat::Value> items;
    for (const std::string& token : tokens) items.push_back(text(token));
    variables.push_back({name, chat::Value::List(heap, chat::ListFlavor::kList, std::move(items))});
  }
  return variables;
}

Result<chat::MarkedText> ChatTemplate::Impl::RenderWith(const Loaded& loaded, const ChatInput& input) const {
  const std::size_t bytes = input.messages.size() + input.tools.size() + input.variables.size();
  if (bytes > kMostInput) return Error{fmt::format("messages: a conversation of more than {} bytes", kMostInput)};
  const auto size = static_cast<std::int64_t>(bytes);
  chat::Heap heap(kMostSteps + kMostStepsPerByte * size, kMostBytes + kMostBytesPerByte * size);
  chat::Environment environment;
  environment.heap = &heap;
  environment.now = input.now.value_or(static_cast<std::int64_t>(std::time(nullptr)));

  std::vector<chat::Variable> variables = Variables(&heap);
  variables.push_back({"documents", chat::Value::None()});
  JsonValue keep;  // the variables' names lie in it
  MLA_RETURN_IF_ERROR(AddVariables(input.variables, &heap, &keep, &variables));
  MLA_ASSIGN_OR_RETURN(const JsonValue messages, io::ParseJson(input.messages, "messages"));
  MLA_ASSIGN_OR_RETURN(chat::Value list, chat::MessagesFromJson(messages, input.as_given, loaded.arguments, &heap));
  variables.push_back({"messages", std::move(list)});
  chat::Value tools = chat::Value::None();
  if (!input.tools.empty()) {
    MLA_ASSIGN_OR_RETURN(const JsonValue json, io::ParseJson(input.tools, "tools"));
    MLA_ASSIGN_OR_RETURN(tools, chat::ToolsFromJson(json, &heap));
  }
  variables.push_back({"tools", std::move(tools)});
  variables.push_back({"add_generation_prompt", chat::Value::Bool(input.add_generation_prompt)});
  if (!heap.ok()) return heap.Fault();
  Result<chat::MarkedText> text = chat::Renderer(*loaded.parsed, environment, variables).Run();
  if (!text.ok()) return Error{fmt::format("{}: {}", loaded.where, text.error().message)};
  return text;
}

// Whether a tool call's arguments come out as JSON where they go in as a text, or as an object.
bool ChatTemplate::Impl::Writes(const Loaded& loaded, bool as_text) const {
  for (const bool with_content : {false, true}) {
    ChatInput input;
    input.messages = Probe(as_text, with_content);
    input.as_given = true;
    input.now = 0;
    const Result<chat::MarkedText> text = RenderWith(loaded, input);
    if (!text.ok()) continue;
    const std::size_t at = text->bytes.find(kProbeName);
    // As JSON in JSON, or as Python shows a mapping, it is not what the model was trained on.
    const char before = at == std::string::npos || at == 0 ? '\0' : text->bytes[at - 1];
    const bool escaped = at != std::string::npos && at > 1 && text->bytes[at - 2] == '\\';
    if (at != std::string::npos && before != '\'' && !escaped) return true;
  }
  return false;
}

ToolArguments ChatTemplate::Impl::FormOfArguments(const Loaded& loaded) const {
  // A text stays what the model wrote, to the byte.
  if (Writes(loaded, true)) return ToolArguments::kText;
  return Writes(loaded, false) ? ToolArguments::kObject : ToolArguments::kAsGiven;
}

Result<const Loaded*> ChatTemplate::Impl::Choose(const ChatInput& input) const {
  const auto find = [&](std::string_view name) -> const Loaded* {
    const auto found = std::find(names.begin(), names.end(), name);
    return found == names.end() ? nullptr : &templates[static_cast<std::size_t>(found - names.begin())];
  };
  if (names.empty()) return Error{"the model has no chat template"};
  std::string name = input.template_name;
  if (name.empty()) name = !input.tools.empty() && find("tool_use") != nullptr ? "tool_use" : "default";
  const Loaded* found = find(name);
  if (found == nullptr) {
    std::string known;
    for (const std::string& other : names) known += (known.empty() ? "" : ", ") + io::Quoted(other);
    return Error{fmt::format("no chat template is named {}: there is {}", io::Quoted(name), known)};
  }
  if (!found->parsed.ok()) return found->parsed.error();
  return found;
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& dir) {
  auto impl = std::make_unique<Impl>();
  MLA_ASSIGN_OR_RETURN(impl->files, chat::ReadTemplateFiles(dir));
  for (const chat::TemplateSource& source : impl->files.templates) impl->Add(source.name, source.where, source.text);
  if (!impl->names.empty() && impl->names[0] == "default" && !impl->templates[0].parsed.ok())
    return impl->templates[0].parsed.error();
  return ChatTemplate(std::move(impl));
}

Result<ChatTemplate> ChatTemplate::Load(const std::string& dir, std::string_view source, std::string_view where) {
  auto impl = std::make_unique<Impl>();
  MLA_ASSIGN_OR_RETURN(impl->files, chat::ReadTemplateFiles(dir));
  impl->Add("default", io::Printable(where), source);
  if (!impl->templates[0].parsed.ok()) return impl->templates[0].parsed.error();
  return ChatTemplate(std::move(impl));
}

std::string_view ChatTemplate::BuiltIn(std::string_view name) { return name == "plain" ? kPlain : std::string_view(); }

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

const std::vector<std::string>& ChatTemplate::names() const { return impl_->names; }

Result<ChatText> ChatTemplate::Render(const ChatInput& input) const {
  MLA_ASSIGN_OR_RETURN(const Loaded* loaded, impl_->Choose(input));
  MLA_ASSIGN_OR_RETURN(chat::MarkedText text, impl_->RenderWith(*loaded, input));
  return ChatText{std::move(text.bytes), std::move(text.trusted)};
}

Result<std::vector<std::int32_t>> EncodeChat(const Tokenizer& tokenizer, const ChatText& chat) {
  return tokenizer.Encode(chat.text, chat.trusted);
}

std::string ChatMessagesJson(std::span<const ChatMessage> messages) {
  std::string json = "[";
  for (const ChatMessage& message : messages) {
    if (json.size() > 1) json += ",";
    json += fmt::format("{{\"role\":{},\"content\":{}}}", io::JsonString(message.role),
                        message.content ? io::JsonString(*message.content) : "null");
  }
  return json + "]";
}

}  // namespace mla
