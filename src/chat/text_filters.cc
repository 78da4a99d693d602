// Jinja's filters that make texts and numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "chat/builtins.h"
#include "chat/json_text.h"
#include "chat/literals.h"
#include "chat/operators.h"
#include "chat/text_operations.h"

namespace mla::chat {
namespace {

Result<Value> Trim(Call& call) {
  MLA_ASSIGN_OR_RETURN(const MarkedText text, ToText(call.subject, call.heap));
  if (call.args[0] == nullptr || call.args[0]->is_none()) return Strip(text, nullptr, true, true, call.heap);
  MLA_ASSIGN_OR_RETURN(const std::string_view set, TextArgument(call, 0, ""));
  return Strip(text, &set, true, true, call.heap);
}

template <Case to>
Result<Value> CaseFilter(Call& call) {
  MLA_ASSIGN_OR_RETURN(const MarkedText text, ToText(call.subject, call.heap));
  return ChangeCase(text, to, true, call.heap);
}

Result<Value> ReplaceFilter(Call& call) {
  MLA_ASSIGN_OR_RETURN(const MarkedText text, ToText(call.subject, call.heap));
  MLA_ASSIGN_OR_RETURN(const MarkedText from, ToText(*call.args[0], call.heap));
  MLA_ASSIGN_OR_RETURN(const MarkedText to, ToText(*call.args[1], call.heap));
  const bool all = call.args[2] == nullptr || call.args[2]->is_none();
  std::int64_t most = -1;
  if (!all) {
    MLA_ASSIGN_OR_RETURN(most, WholeArgument(call, 2, -1));
  }
  return Replace(text, from.bytes, to, most, call.heap);
}

Result<Value> String(Call& call) {
  if (call.subject.is_text()) return call.subject;
  MLA_ASSIGN_OR_RETURN(MarkedText text, ToText(call.subject, call.heap));
  return Value::Text(call.heap, std::move(text));
}

// Lines but the first, and those that are empty unless `blank`, get an indent before them.
Result<Value> Indent(Call& call) {
  if (!call.subject.is_text()) return Error{fmt::format("expected a text, found {}", KindName(call.subject))};
  MarkedText indent;
  if (call.args[0] != nullptr && call.args[0]->is_text()) {
    indent = call.args[0]->text();
  } else {
    MLA_ASSIGN_OR_RETURN(const std::int64_t width, WholeArgument(call, 0, 4));
    if (width > 1000) return Error{"more than 1000 blanks"};
    indent = MarkedText::Trusted(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
  }
  // The lines of the text with one more line feed behind it: Jinja counts an empty last line.
  const MarkedText newline = MarkedText::Trusted("\n");
  MarkedTextBuilder ended(call.heap);
  ended.Append(call.subject.text());
  ended.Append(newline);
  const Value text = Value::Text(call.heap, ended.Take());
  const Builtin& split = *FindMethod(Value::Kind::kText, "splitlines");
  MLA_ASSIGN_OR_RETURN(const Value lines, Run(split, call.environment, text, {}));
  const std::vector<Value>& items = lines.list().items;
  const bool first = TrueArgument(call, 1, false);
  const bool blank = TrueArgument(call, 2, false);
  MarkedTextBuilder out(call.heap);
  for (std::size_t i = 0; i < items.size() && call.heap->ok(); ++i) {
    if (i > 0) out.Append(newline);
    const bool indented = i == 0 ? first : blank || !items[i].bytes().empty();
    if (indented) out.Append(indent);
    out.Append(items[i].text());
  }
  return Value::Text(call.heap, out.Take());
}

Result<Value> ToJson(Call& call) {
  JsonStyle style;
  style.ensure_ascii = TrueArgument(call, 0, false);
  if (const Value* indent = call.args[1]; indent != nullptr && !indent->is_none()) {
    if (indent->is_text()) {
      style.indent = std::string(indent->bytes());
    } else {
      MLA_ASSIGN_OR_RETURN(const std::int64_t width, WholeArgument(call, 1, 0));
      if (width > 1000) return Error{"an indent of more than 1000 blanks"};
      style.indent = std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = call.args[2]; separators != nullptr && !separators->is_none()) {
    const bool two = separators->is_list() && separators->list().items.size() == 2 &&
                     separators->list().items[0].is_text() && separators->list().items[1].is_text();
    if (!two) return Error{"expected two texts as separators"};
    style.item_separator = std::string(separators->list().items[0].bytes());
    style.key_separator = std::string(separators->list().items[1].bytes());
  }
  style.sort_keys = TrueArgument(call, 3, false);
  MarkedTextBuilder out(call.heap);
  MLA_RETURN_IF_ERROR(AppendJson(call.subject, style, call.heap, &out));
  return Value::Text(call.heap, out.Take());
}

Result<Value> Truncated(double number) {
  if (!(std::abs(number) < 9.2e18)) return Error{"a whole number of more than 64 bits, or none"};
  return Value::Int(static_cast<std::int64_t>(number));
}

Result<Value> Int(Call& call) {
  const Value& value = call.subject;
  const Value otherwise = call.args[0] == nullptr ? Value::Int(0) : *call.args[0];
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_whole()) return Value::Int(value.integer());
  if (value.is_float()) return Truncated(value.number());
  if (!value.is_text()) return otherwise;
  MLA_ASSIGN_OR_RETURN(const std::int64_t base, WholeArgument(call, 1, 10));
  if (base < 2 || base > 36) return Error{"a base of 2 to 36"};
  if (const auto whole = ParseInt(value.bytes(), static_cast<int>(base))) return Value::Int(*whole);
  if (const auto number = ParseFloat(value.bytes())) return Truncated(*number);
  return otherwise;
}

Result<Value> Float(Call& call) {
  const Value& value = call.subject;
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_number()) return Value::Float(value.number());
  if (value.is_text()) {
    if (const auto number = ParseFloat(value.bytes())) return Value::Float(*number);
  }
  return call.args[0] == nullptr ? Value::Float(0) : *call.args[0];
}

Result<Value> Abs(Call& call) {
  if (!call.subject.is_number()) return Error{fmt::format("of {}", KindName(call.subject))};
  if (call.subject.is_float()) return Value::Float(std::abs(call.subject.number()));
  if (call.subject.integer() >= 0) return Value::Int(call.subject.integer());
  return Apply(BinaryOp::kSubtract, Value::Int(0), call.subject, call.heap);
}

Result<Value> Default(Call& call) {
  const bool falls = call.subject.is_undefined() || (TrueArgument(call, 1, false) && !IsTrue(call.subject));
  if (!falls) return call.subject;
  return call.args[0] == nullptr ? Value::Text(call.heap, {}) : *call.args[0];
}

constexpr std::array<Builtin, 14> kFilters = {{
    {"trim", Trim, {"chars"}},
    {"upper", CaseFilter<Case::kUpper>},
    {"lower", CaseFilter<Case::kLower>},
    {"capitalize", CaseFilter<Case::kCapitalize>},
    {"title", CaseFilter<Case::kTitle>},
    {"replace", ReplaceFilter, {"old", "new", "count"}, 2},
    {"string", String},
    {"indent", Indent, {"width", "first", "blank"}},
    {"tojson", ToJson, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"int", Int, {"default", "base"}},
    {"float", Float, {"default"}},
    {"abs", Abs},
    {"default", Default, {"default_value", "boolean"}},
    {"d", Default, {"default_value", "boolean"}},
}};

}  // namespace

std::span<const Builtin> TextFilters() { return kFilters; }

}  // namespace mla::chat
