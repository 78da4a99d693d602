// What follows a primary expression: members, subscripts and calls.
#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "chat/expressions.h"
#include "io/quote.h"

namespace mla::chat {
namespace {

// Methods that change what they are called on: Jinja's sandbox for templates refuses them too.
constexpr std::array<std::string_view, 11> kMutating = {"append", "extend", "insert",  "pop",        "remove", "clear",
                                                        "update", "sort",   "reverse", "setdefault", "popitem"};

}  // namespace

Result<ExprPtr> ExpressionParser::Postfix(ExprPtr expr) {
  for (;;) {
    if (SkipOperator(".")) {
      MLA_ASSIGN_OR_RETURN(expr, Member(std::move(expr)));
    } else if (SkipOperator("[")) {
      MLA_ASSIGN_OR_RETURN(expr, Subscript(std::move(expr)));
    } else if (IsOperator("(")) {
      MLA_ASSIGN_OR_RETURN(expr, CallOf(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::Member(ExprPtr expr) {
  if (now().kind == Token::Kind::kInteger) {
    ExprPtr index = Constant(Value::Int(now().integer));
    Take();
    return Join(Expr::Kind::kItem, std::move(expr), std::move(index));
  }
  if (now().kind != Token::Kind::kName) return Fail(fmt::format("expected a member's name, found {}", Found()));
  ExprPtr member = New(Expr::Kind::kAttribute);
  member->name = Take().text;
  member->parts.push_back(std::move(expr));
  return Done(std::move(member));
}

Result<ExprPtr> ExpressionParser::Subscript(ExprPtr expr) {
  ExprPtr slice = New(Expr::Kind::kSlice);
  slice->parts.resize(4);
  slice->parts[0] = std::move(expr);
  std::size_t part = 1;
  bool is_slice = false;
  while (!IsOperator("]")) {
    if (SkipOperator(":")) {
      is_slice = true;
      if (++part > 3) return Fail("a slice has three parts");
      continue;
    }
    if (slice->parts[part]) return Fail(fmt::format("expected ']', found {}", Found()));
    MLA_ASSIGN_OR_RETURN(slice->parts[part], Expression());
  }
  MLA_RETURN_IF_ERROR(Expect("]"));
  if (is_slice) return Done(std::move(slice));
  if (!slice->parts[1]) return Fail("a subscript without its inside");
  return Join(Expr::Kind::kItem, std::move(slice->parts[0]), std::move(slice->parts[1]));
}

Result<ExprPtr> ExpressionParser::CallOf(ExprPtr callee) {
  ExprPtr call = New(Expr::Kind::kCall);
  call->line = callee->line;
  call->name = callee->name;
  const std::string shown = io::Printable(callee->name, 40);
  if (callee->kind == Expr::Kind::kName) {
    call->id = callee->id;
    call->builtin = FindFunction(call->name);
    MLA_RETURN_IF_ERROR(ArgumentsOf(call.get()));
    called.emplace_back(call->name, call->line);
  } else if (callee->kind == Expr::Kind::kCaller) {
    call->kind = Expr::Kind::kCallerCall;
    MLA_RETURN_IF_ERROR(ArgumentsOf(call.get()));
  } else if (callee->kind == Expr::Kind::kAttribute) {
    if (std::find(kMutating.begin(), kMutating.end(), call->name) != kMutating.end())
      return Fail(fmt::format("'{}' would change a value, which a chat template must not do", shown));
    if (!IsMethod(call->name)) return Fail(fmt::format("the method '{}' is not supported", shown));
    call->kind = Expr::Kind::kMethodCall;
    call->parts = std::move(callee->parts);
    MLA_RETURN_IF_ERROR(ArgumentsOf(call.get()));
  } else {
    return Fail("a call of what is no function, macro or method");
  }
  return Done(std::move(call));
}

Status ExpressionParser::ArgumentsOf(Expr* call) {
  MLA_RETURN_IF_ERROR(Expect("("));
  while (!IsOperator(")")) {
    if (IsOperator("*") || IsOperator("**")) return Fail("arguments behind * or ** are not supported");
    if (now().kind == Token::Kind::kName && ahead().kind == Token::Kind::kOperator && ahead().text == "=") {
      std::string name = Take().text;
      Take();
      MLA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      for (const auto& other : call->named_arguments) {
        if (other.first == name) return Fail(fmt::format("the argument '{}' twice", io::Printable(name, 40)));
      }
      call->named_arguments.emplace_back(std::move(name), std::move(value));
    } else {
      MLA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      if (!call->named_arguments.empty()) return Fail("an argument without a name behind one that has one");
      call->arguments.push_back(std::move(value));
    }
    if (!SkipOperator(",")) break;
  }
  return Expect(")");
}

}  // namespace mla::chat
