// Jinja's tests: what stands behind `is`.
#include <array>

#include <fmt/format.h>

#include "chat/builtins.h"
#include "chat/operators.h"

namespace mla::chat {
namespace {

template <Value::Kind kind>
Result<Value> IsKind(Call& call) {
  return Value::Bool(call.subject.kind() == kind);
}

Result<Value> IsDefined(Call& call) { return Value::Bool(!call.subject.is_undefined()); }
Result<Value> IsNumber(Call& call) { return Value::Bool(call.subject.is_number()); }
Result<Value> IsTrueItself(Call& call) { return Value::Bool(call.subject.is_bool() && call.subject.boolean()); }
Result<Value> IsFalseItself(Call& call) { return Value::Bool(call.subject.is_bool() && !call.subject.boolean()); }

// What has a length and subscripts; in Python undefined values do too.
Result<Value> IsSequence(Call& call) {
  const Value& value = call.subject;
  const bool list = value.is_list() && value.list().flavor <= ListFlavor::kRange;
  return Value::Bool(list || value.is_text() || value.is_dict() || value.is_undefined());
}

Result<Value> IsIterable(Call& call) {
  const Value& value = call.subject;
  return Value::Bool(value.is_list() || value.is_text() || value.is_dict() || value.is_undefined());
}

Result<Value> IsCallable(Call& call) {
  const Value::Kind kind = call.subject.kind();
  return Value::Bool(kind == Value::Kind::kUndefined || kind == Value::Kind::kMacro || kind == Value::Kind::kFunction ||
                     kind == Value::Kind::kMethod);  // an undefined value is: calling it tells the fault
}

template <CompareOp op>
Result<Value> Compares(Call& call) {
  MLA_ASSIGN_OR_RETURN(const bool holds, Holds(op, call.subject, *call.args[0], call.heap));
  return Value::Bool(holds);
}

Result<Value> Divides(Call& call, std::int64_t divisor, std::int64_t rest) {
  MLA_ASSIGN_OR_RETURN(const Value found, Apply(BinaryOp::kModulo, call.subject, Value::Int(divisor), call.heap));
  return Value::Bool(Equal(found, Value::Int(rest), call.heap));
}

Result<Value> IsOdd(Call& call) { return Divides(call, 2, 1); }
Result<Value> IsEven(Call& call) { return Divides(call, 2, 0); }
Result<Value> IsDivisible(Call& call) {
  MLA_ASSIGN_OR_RETURN(const std::int64_t divisor, WholeArgument(call, 0, 1));
  return Divides(call, divisor, 0);
}

constexpr std::array<Builtin, 33> kTests = {{
    {"defined", IsDefined},
    {"undefined", IsKind<Value::Kind::kUndefined>},
    {"none", IsKind<Value::Kind::kNone>},
    {"boolean", IsKind<Value::Kind::kBool>},
    {"true", IsTrueItself},
    {"false", IsFalseItself},
    {"integer", IsKind<Value::Kind::kInt>},
    {"float", IsKind<Value::Kind::kFloat>},
    {"number", IsNumber},
    {"string", IsKind<Value::Kind::kText>},
    {"mapping", IsKind<Value::Kind::kDict>},
    {"sequence", IsSequence},
    {"iterable", IsIterable},
    {"callable", IsCallable},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisible, {"num"}, 1},
    {"in", Compares<CompareOp::kIn>, {"seq"}, 1},
    {"equalto", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"==", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"eq", Compares<CompareOp::kEqual>, {"other"}, 1},
    {"!=", Compares<CompareOp::kNotEqual>, {"other"}, 1},
    {"ne", Compares<CompareOp::kNotEqual>, {"other"}, 1},
    {">", Compares<CompareOp::kGreater>, {"other"}, 1},
    {"gt", Compares<CompareOp::kGreater>, {"other"}, 1},
    {"greaterthan", Compares<CompareOp::kGreater>, {"other"}, 1},
    {">=", Compares<CompareOp::kGreaterEqual>, {"other"}, 1},
    {"ge", Compares<CompareOp::kGreaterEqual>, {"other"}, 1},
    {"<", Compares<CompareOp::kLess>, {"other"}, 1},
    {"lt", Compares<CompareOp::kLess>, {"other"}, 1},
    {"lessthan", Compares<CompareOp::kLess>, {"other"}, 1},
    {"<=", Compares<CompareOp::kLessEqual>, {"other"}, 1},
    {"le", Compares<CompareOp::kLessEqual>, {"other"}, 1},
}};

}  // namespace

std::span<const Builtin> Tests() { return kTests; }

}  // namespace mla::chat
