// Expressions of a rendering.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "chat/operators.h"
#include "chat/renderer.h"
#include "io/quote.h"

namespace mla::chat {

Result<Value> Renderer::Eval(const Expr& expr) {
  heap_->Spend(1);
  if (!heap_->ok()) return heap_->Fault();
  const Deeper deeper(&depth_);
  MLA_RETURN_IF_ERROR(deeper.Check());
  line_ = expr.line;
  return EvalHere(expr);
}

Result<Value> Renderer::EvalHere(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kConstant: return expr.constant;
    case Expr::Kind::kName: return EvalName(expr);
    case Expr::Kind::kLoop: return EvalLoop(expr);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple: return EvalList(expr);
    case Expr::Kind::kDict: return EvalDict(expr);
    case Expr::Kind::kAttribute:
    case Expr::Kind::kItem: return EvalMember(expr);
    case Expr::Kind::kSlice: return EvalSlice(expr);
    case Expr::Kind::kCall: return EvalCall(expr);
    case Expr::Kind::kCaller: return caller_ != nullptr ? Value::Function() : Value::Undefined(heap_, "caller");
    case Expr::Kind::kCallerCall: return EvalCallerCall(expr);
    case Expr::Kind::kMethodCall: return EvalMethodCall(expr);
    case Expr::Kind::kFilter:
    case Expr::Kind::kTest: {
      MLA_ASSIGN_OR_RETURN(const Value subject, Eval(*expr.parts[0]));
      return EvalFilter(expr, subject);
    }
    case Expr::Kind::kNot: {
      MLA_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
      return Value::Bool(!IsTrue(value));
    }
    case Expr::Kind::kNegative:
    case Expr::Kind::kPositive: return EvalSign(expr);
    case Expr::Kind::kBinary: return EvalBinary(expr);
    case Expr::Kind::kConcat: return EvalConcat(expr);
    case Expr::Kind::kCompare: return EvalCompare(expr);
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
    case Expr::Kind::kCondition: return EvalChoice(expr);
  }
  return Value();
}

Value Renderer::EvalName(const Expr& expr) {
  if (const Value* value = Find(expr.id); value != nullptr) return *value;
  if (FindFunction(expr.name) != nullptr) return Value::Function();
  return Value::Undefined(heap_, expr.name);
}

Value Renderer::EvalLoop(const Expr& expr) {
  const Loop& loop = *loops_.back();
  const auto at = static_cast<std::int64_t>(loop.at);
  const auto length = static_cast<std::int64_t>(loop.items.size());
  switch (expr.member) {
    case LoopMember::kIndex: return Value::Int(at + 1);
    case LoopMember::kIndex0: return Value::Int(at);
    case LoopMember::kRevindex: return Value::Int(length - at);
    case LoopMember::kRevindex0: return Value::Int(length - at - 1);
    case LoopMember::kFirst: return Value::Bool(at == 0);
    case LoopMember::kLast: return Value::Bool(at + 1 == length);
    case LoopMember::kLength: return Value::Int(length);
    case LoopMember::kPrevious: return at == 0 ? Value::Undefined(heap_, "previtem") : loop.items[loop.at - 1];
    case LoopMember::kNext: return at + 1 == length ? Value::Undefined(heap_, "nextitem") : loop.items[loop.at + 1];
    case LoopMember::kDepth: return Value::Int(1);
    case LoopMember::kDepth0: return Value::Int(0);
  }
  return Value();
}

Result<Value> Renderer::EvalList(const Expr& expr) {
  std::vector<Value> items;
  for (const ExprPtr& part : expr.parts) {
    MLA_ASSIGN_OR_RETURN(Value item, Eval(*part));
    items.push_back(std::move(item));
  }
  return Value::List(heap_, expr.kind == Expr::Kind::kList ? ListFlavor::kList : ListFlavor::kTuple, std::move(items));
}

Result<Value> Renderer::EvalDict(const Expr& expr) {
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
    MLA_ASSIGN_OR_RETURN(Value key, Eval(*expr.parts[i]));
    MLA_ASSIGN_OR_RETURN(Value value, Eval(*expr.parts[i + 1]));
    MLA_RETURN_IF_ERROR(AddEntry(std::move(key), std::move(value), heap_, &entries));
  }
  return Value::Dict(heap_, std::move(entries));
}

Result<Value> Renderer::EvalMember(const Expr& expr) {
  MLA_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
  if (expr.kind == Expr::Kind::kAttribute) return GetAttribute(value, expr.name, heap_);
  MLA_ASSIGN_OR_RETURN(const Value key, Eval(*expr.parts[1]));
  return GetItem(value, key, heap_);
}

Result<Value> Renderer::EvalSlice(const Expr& expr) {
  MLA_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
  Value bounds[3] = {Value::None(), Value::None(), Value::None()};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expr.parts[i + 1]) continue;
    MLA_ASSIGN_OR_RETURN(bounds[i], Eval(*expr.parts[i + 1]));
  }
  return Slice(value, bounds[0], bounds[1], bounds[2], heap_);
}

Result<Value> Renderer::EvalConcat(const Expr& expr) {
  MarkedTextBuilder out(heap_);
  for (const ExprPtr& part : expr.parts) {
    MLA_ASSIGN_OR_RETURN(const Value value, Eval(*part));
    MLA_RETURN_IF_ERROR(AppendText(value, heap_, &out));
  }
  return Value::Text(heap_, out.Take());
}

Result<Value> Renderer::EvalCompare(const Expr& expr) {
  MLA_ASSIGN_OR_RETURN(Value left, Eval(*expr.parts[0]));
  for (std::size_t i = 0; i < expr.comparisons.size(); ++i) {
    MLA_ASSIGN_OR_RETURN(Value right, Eval(*expr.parts[i + 1]));
    MLA_ASSIGN_OR_RETURN(const bool holds, Holds(expr.comparisons[i], left, right, heap_));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Renderer::EvalSign(const Expr& expr) {
  MLA_ASSIGN_OR_RETURN(const Value value, Eval(*expr.parts[0]));
  const Value zero = Value::Int(0);
  if (expr.kind == Expr::Kind::kNegative && value.is_float()) return Value::Float(-value.number());
  return Apply(expr.kind == Expr::Kind::kNegative ? BinaryOp::kSubtract : BinaryOp::kAdd, zero, value, heap_);
}

Result<Value> Renderer::EvalBinary(const Expr& expr) {
  MLA_ASSIGN_OR_RETURN(const Value left, Eval(*expr.parts[0]));
  MLA_ASSIGN_OR_RETURN(const Value right, Eval(*expr.parts[1]));
  return Apply(expr.op, left, right, heap_);
}

Result<Value> Renderer::EvalChoice(const Expr& expr) {
  if (expr.kind == Expr::Kind::kCondition) {
    MLA_ASSIGN_OR_RETURN(const Value test, Eval(*expr.parts[1]));
    if (IsTrue(test)) return Eval(*expr.parts[0]);
    return expr.parts[2] ? Eval(*expr.parts[2]) : Value();
  }
  MLA_ASSIGN_OR_RETURN(Value left, Eval(*expr.parts[0]));
  if (IsTrue(left) == (expr.kind == Expr::Kind::kOr)) return left;
  return Eval(*expr.parts[1]);
}

Result<Arguments> Renderer::EvalArguments(const Expr& call) {
  Arguments arguments;
  for (const ExprPtr& argument : call.arguments) {
    MLA_ASSIGN_OR_RETURN(Value value, Eval(*argument));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, argument] : call.named_arguments) {
    MLA_ASSIGN_OR_RETURN(Value value, Eval(*argument));
    arguments.named.emplace_back(name, std::move(value));
  }
  return arguments;
}

Result<Value> Renderer::EvalCall(const Expr& expr, const Caller* caller) {
  const Value* found = Find(expr.id);
  if (found != nullptr && found->kind() != Value::Kind::kMacro)
    return Error{fmt::format("'{}' is {}, and can't be called", io::Printable(expr.name, 40), KindName(*found))};
  if (found == nullptr && expr.builtin == nullptr)
    return Error{fmt::format("'{}' is undefined, and can't be called", io::Printable(expr.name, 40))};
  const Macro* macro = found == nullptr ? nullptr : found->macro();  // arguments may add variables
  MLA_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  if (macro != nullptr) return CallMacro(*macro, arguments, caller);
  if (caller != nullptr)
    return Error{fmt::format("'{}' has no use for a call block's body", io::Printable(expr.name, 40))};
  return chat::Run(*expr.builtin, environment_, Value(), arguments);
}

Result<Value> Renderer::EvalCallerCall(const Expr& expr, const Caller* caller) {
  if (caller_ == nullptr) return Error{"no call block calls this macro: 'caller' is undefined"};
  const Caller& called = *caller_;
  MLA_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return CallCaller(called, arguments, caller);
}

Result<Value> Renderer::EvalCallBlock(const Stmt& stmt) {
  const Caller caller{*stmt.macro, {visible_, slots_.size(), seen_}, loops_.empty() ? nullptr : loops_.back()};
  if (stmt.expr->kind == Expr::Kind::kCallerCall) return EvalCallerCall(*stmt.expr, &caller);
  return EvalCall(*stmt.expr, &caller);
}

Result<Value> Renderer::EvalMethodCall(const Expr& expr) {
  MLA_ASSIGN_OR_RETURN(const Value subject, Eval(*expr.parts[0]));
  const Builtin* method = FindMethod(subject.kind(), expr.name);
  if (method == nullptr) {
    MLA_ASSIGN_OR_RETURN(const Value member, GetAttribute(subject, expr.name, heap_));
    if (member.is_undefined())
      return Error{fmt::format("{} has no method '{}'", KindName(subject), io::Printable(expr.name, 40))};
    return Error{fmt::format("'{}' of {} is {}, and can't be called", io::Printable(expr.name, 40), KindName(subject),
                             KindName(member))};
  }
  MLA_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return chat::Run(*method, environment_, subject, arguments);
}

Result<Value> Renderer::EvalFilter(const Expr& expr, const Value& subject) {
  MLA_ASSIGN_OR_RETURN(const Arguments arguments, EvalArguments(expr));
  return chat::Run(*expr.builtin, environment_, subject, arguments);
}

Result<Value> Renderer::EvalChain(const Expr& expr, const Value& subject) {
  if (!expr.parts[0]) return EvalFilter(expr, subject);
  MLA_ASSIGN_OR_RETURN(const Value inner, EvalChain(*expr.parts[0], subject));
  return EvalFilter(expr, inner);
}

}  // namespace mla::chat
