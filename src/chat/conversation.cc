#include "chat/conversation.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chat/json_text.h"

namespace mla::chat {
namespace {

using io::JsonValue;

Value Untrusted(std::string_view text, Heap* heap) {
  return Value::Text(heap, MarkedText::Untrusted(std::string(text)));
}

// A name that a template writes, not words of a message.
Value Word(std::string_view text, Heap* heap) { return Value::Text(heap, MarkedText::Trusted(std::string(text))); }

// The roles of the protocol are no content: templates build tokens of them, as <|{{ role }}|>.
Value Role(std::string_view role, Heap* heap) {
  static constexpr std::array<std::string_view, 5> kRoles = {"system", "user", "assistant", "tool", "developer"};
  const bool known = std::find(kRoles.begin(), kRoles.end(), role) != kRoles.end();
  return known ? Word(role, heap) : Untrusted(role, heap);
}

Result<Value> Content(const JsonValue& content, const std::string& where, Heap* heap) {
  if (content.is_string() || content.is_null()) return FromJson(content, heap);
  if (!content.is_array())
    return Error{fmt::format("{}: content: expected a text, null or a list, found {}", where, content.Describe())};
  std::string text;
  for (std::size_t i = 0; i < content.items().size(); ++i) {
    const JsonValue& part = content.items()[i];
    const JsonValue* type = part.Find("type");
    const JsonValue* words = part.Find("text");
    if (type == nullptr || type->string() != "text" || words == nullptr || !words->is_string()) {
      return Error{fmt::format("{}: content[{}]: expected {{\"type\": \"text\", \"text\": ...}}, found {}", where, i,
                               type == nullptr ? part.Describe() : "type " + type->Describe())};
    }
    if (i > 0) text += '\n';
    text += words->string();
  }
  return Untrusted(text, heap);
}

// Arguments in the form that the template writes. A text that is no JSON of an object stays a text.
Result<Value> ArgumentsOf(const JsonValue& json, ToolArguments form, Heap* heap) {
  if (json.is_object() && form == ToolArguments::kText) {
    MarkedTextBuilder text(heap);
    MLA_RETURN_IF_ERROR(AppendJson(FromJson(json, heap), JsonStyle(), heap, &text));
    return Value::Text(heap, text.Take());
  }
  if (json.is_string() && form == ToolArguments::kObject) {
    const Result<JsonValue> parsed = io::ParseJson(json.string(), "arguments");
    if (parsed.ok() && parsed->is_object()) return FromJson(*parsed, heap);
  }
  return FromJson(json, heap);
}

Result<Value> ToolCall(const JsonValue& json, ToolArguments form, Heap* heap) {
  if (!json.is_object()) return FromJson(json, heap);
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.members()) {
    Value made;
    if (name == "arguments") {
      MLA_ASSIGN_OR_RETURN(made, ArgumentsOf(value, form, heap));
    } else if (name == "function") {
      MLA_ASSIGN_OR_RETURN(made, ToolCall(value, form, heap));
    } else {
      made = FromJson(value, heap);
    }
    entries.emplace_back(Untrusted(name, heap), std::move(made));
  }
  return Value::Dict(heap, std::move(entries));
}

Result<Value> ToolCalls(const JsonValue& json, ToolArguments form, Heap* heap) {
  if (!json.is_array()) return FromJson(json, heap);
  std::vector<Value> calls;
  for (const JsonValue& call : json.items()) {
    MLA_ASSIGN_OR_RETURN(Value made, ToolCall(call, form, heap));
    calls.push_back(std::move(made));
  }
  return Value::List(heap, ListFlavor::kList, std::move(calls));
}

Result<Value> Message(const JsonValue& json, bool as_given, ToolArguments form, const std::string& where, Heap* heap) {
  const JsonValue* role = json.Find("role");
  if (role == nullptr || !role->is_string())
    return Error{fmt::format("{}: expected an object with a text \"role\", found {}", where,
                             role == nullptr ? json.Describe() : "role " + role->Describe())};
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.members()) {
    Value made;
    if (name == "role") {
      made = Role(value.string(), heap);
    } else if (name == "content" && !as_given) {
      MLA_ASSIGN_OR_RETURN(made, Content(value, where, heap));
    } else if (name == "tool_calls" && !as_given) {
      MLA_ASSIGN_OR_RETURN(made, ToolCalls(value, form, heap));
    } else {
      made = FromJson(value, heap);
    }
    entries.emplace_back(Untrusted(name, heap), std::move(made));
  }
  if (!as_given && json.Find("content") == nullptr) entries.emplace_back(Untrusted("content", heap), Value::None());
  return Value::Dict(heap, std::move(entries));
}

}  // namespace

Value FromJson(const JsonValue& json, Heap* heap) {
  switch (json.kind()) {
    case JsonValue::Kind::kNull: return Value::None();
    case JsonValue::Kind::kBool: return Value::Bool(json.boolean());
    case JsonValue::Kind::kInt: return Value::Int(json.integer());
    case JsonValue::Kind::kDouble: return Value::Float(json.number());
    case JsonValue::Kind::kString: return Untrusted(json.string(), heap);
    case JsonValue::Kind::kArray: {
      std::vector<Value> items;
      for (const JsonValue& item : json.items()) {
        if (!heap->ok()) break;
        items.push_back(FromJson(item, heap));
      }
      return Value::List(heap, ListFlavor::kList, std::move(items));
    }
    case JsonValue::Kind::kObject: {
      std::vector<Entry> entries;
      for (const auto& [name, value] : json.members()) {
        if (!heap->ok()) break;
        entries.emplace_back(Untrusted(name, heap), FromJson(value, heap));
      }
      return Value::Dict(heap, std::move(entries));
    }
  }
  return Value::None();
}

Result<Value> MessagesFromJson(const JsonValue& json, bool as_given, ToolArguments arguments, Heap* heap) {
  if (!json.is_array()) return Error{fmt::format("messages: expected an array, found {}", json.Describe())};
  std::vector<Value> messages;
  for (std::size_t i = 0; i < json.items().size(); ++i) {
    if (!heap->ok()) return heap->Fault();
    MLA_ASSIGN_OR_RETURN(Value message,
                         Message(json.items()[i], as_given, arguments, fmt::format("messages[{}]", i), heap));
    messages.push_back(std::move(message));
  }
  return Value::List(heap, ListFlavor::kList, std::move(messages));
}

Result<Value> ToolsFromJson(const JsonValue& json, Heap* heap) {
  if (!json.is_array()) return Error{fmt::format("tools: expected an array, found {}", json.Describe())};
  for (std::size_t i = 0; i < json.items().size(); ++i) {
    if (!json.items()[i].is_object())
      return Error{fmt::format("tools[{}]: expected an object, found {}", i, json.items()[i].Describe())};
  }
  return FromJson(json, heap);
}

}  // namespace mla::chat
