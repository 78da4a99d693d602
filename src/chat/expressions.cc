#include "chat/expressions.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "io/quote.h"

namespace mla::chat {
namespace {

// Of an expression's tree. A sum of so many terms is one.
constexpr int kMostHeight = 400;

constexpr std::array<std::pair<std::string_view, LoopMember>, 11> kLoopMembers = {{
    {"index", LoopMember::kIndex},
    {"index0", LoopMember::kIndex0},
    {"revindex", LoopMember::kRevindex},
    {"revindex0", LoopMember::kRevindex0},
    {"first", LoopMember::kFirst},
    {"last", LoopMember::kLast},
    {"length", LoopMember::kLength},
    {"previtem", LoopMember::kPrevious},
    {"nextitem", LoopMember::kNext},
    {"depth", LoopMember::kDepth},
    {"depth0", LoopMember::kDepth0},
}};

constexpr std::array<std::pair<std::string_view, CompareOp>, 6> kCompareOps = {{
    {"==", CompareOp::kEqual},
    {"!=", CompareOp::kNotEqual},
    {"<", CompareOp::kLess},
    {"<=", CompareOp::kLessEqual},
    {">", CompareOp::kGreater},
    {">=", CompareOp::kGreaterEqual},
}};

// Filters and tests whose argument names another one.
bool NamesFilter(std::string_view filter) { return filter == "map"; }
bool NamesTest(std::string_view filter) {
  return filter == "select" || filter == "reject" || filter == "selectattr" || filter == "rejectattr";
}

}  // namespace

bool ExpressionParser::IsOperator(std::string_view text) const {
  return now().kind == Token::Kind::kOperator && now().text == text;
}

bool ExpressionParser::IsName(std::string_view text) const {
  return now().kind == Token::Kind::kName && now().text == text;
}

bool ExpressionParser::SkipOperator(std::string_view text) {
  if (!IsOperator(text)) return false;
  Take();
  return true;
}

bool ExpressionParser::SkipName(std::string_view text) {
  if (!IsName(text)) return false;
  Take();
  return true;
}

Status ExpressionParser::Expect(std::string_view op) {
  if (SkipOperator(op)) return {};
  return Fail(fmt::format("expected '{}', found {}", op, Found()));
}

Status ExpressionParser::ExpectKind(Token::Kind kind, std::string_view what) {
  if (now().kind != kind) return Fail(fmt::format("expected {}, found {}", what, Found()));
  Take();
  return {};
}

Error ExpressionParser::FailAt(int line, std::string_view what) {
  return Error{fmt::format("line {}: {}", line, what)};
}

std::string ExpressionParser::Found() const {
  switch (now().kind) {
    case Token::Kind::kData: return "text";
    case Token::Kind::kVariableBegin: return "{{";
    case Token::Kind::kVariableEnd: return "}}";
    case Token::Kind::kBlockBegin: return "{%";
    case Token::Kind::kBlockEnd: return "%}";
    case Token::Kind::kEnd: return "the end of the template";
    default: return io::Quoted(now().text);
  }
}

NameId ExpressionParser::Intern(const std::string& name) {
  const auto [found, added] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

ExprPtr ExpressionParser::New(Expr::Kind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = now().line;
  return expr;
}

ExprPtr ExpressionParser::Constant(Value value) const {
  ExprPtr expr = New(Expr::Kind::kConstant);
  expr->constant = std::move(value);
  return expr;
}

Result<ExprPtr> ExpressionParser::Done(ExprPtr expr) const {
  int height = 0;
  const auto see = [&](const ExprPtr& part) {
    if (part) height = std::max(height, part->height);
  };
  for (const ExprPtr& part : expr->parts) see(part);
  for (const ExprPtr& argument : expr->arguments) see(argument);
  for (const auto& argument : expr->named_arguments) see(argument.second);
  expr->height = height + 1;
  if (expr->height > kMostHeight) return Fail("an expression with too many operators in each other");
  return expr;
}

Result<ExprPtr> ExpressionParser::Join(Expr::Kind kind, ExprPtr left, ExprPtr right) {
  ExprPtr expr = New(kind);
  expr->line = left->line;
  expr->parts.push_back(std::move(left));
  expr->parts.push_back(std::move(right));
  return Done(std::move(expr));
}

Result<ExprPtr> ExpressionParser::Expression(bool condition) {
  const Level level(*this);
  if (level.TooDeep()) return Fail("expressions lie too deep in each other");
  MLA_ASSIGN_OR_RETURN(ExprPtr expr, Or());
  while (condition && SkipName("if")) {
    MLA_ASSIGN_OR_RETURN(ExprPtr test, Or());
    ExprPtr otherwise;
    if (SkipName("else")) {
      MLA_ASSIGN_OR_RETURN(otherwise, Expression());
    }
    MLA_ASSIGN_OR_RETURN(expr, Join(Expr::Kind::kCondition, std::move(expr), std::move(test)));
    expr->parts.push_back(std::move(otherwise));
    MLA_ASSIGN_OR_RETURN(expr, Done(std::move(expr)));
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::Tuple(bool condition, std::string_view end_name) {
  const int line = now().line;
  MLA_ASSIGN_OR_RETURN(ExprPtr first, Expression(condition));
  if (!IsOperator(",")) return first;
  ExprPtr tuple = New(Expr::Kind::kTuple);
  tuple->line = line;
  tuple->parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    const bool ends = now().kind == Token::Kind::kVariableEnd || now().kind == Token::Kind::kBlockEnd ||
                      IsOperator(")") || (!end_name.empty() && IsName(end_name));
    if (ends) break;
    MLA_ASSIGN_OR_RETURN(ExprPtr item, Expression(condition));
    tuple->parts.push_back(std::move(item));
  }
  return Done(std::move(tuple));
}

Result<ExprPtr> ExpressionParser::FilterChain() {
  MLA_ASSIGN_OR_RETURN(ExprPtr expr, Filter(nullptr));
  while (SkipOperator("|")) {
    MLA_ASSIGN_OR_RETURN(expr, Filter(std::move(expr)));
  }
  return expr;
}

Result<ExprPtr> ExpressionParser::Or() {
  MLA_ASSIGN_OR_RETURN(ExprPtr left, And());
  while (SkipName("or")) {
    MLA_ASSIGN_OR_RETURN(ExprPtr right, And());
    MLA_ASSIGN_OR_RETURN(left, Join(Expr::Kind::kOr, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::And() {
  MLA_ASSIGN_OR_RETURN(ExprPtr left, Not());
  while (SkipName("and")) {
    MLA_ASSIGN_OR_RETURN(ExprPtr right, Not());
    MLA_ASSIGN_OR_RETURN(left, Join(Expr::Kind::kAnd, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExpressionParser::Not() {
  const Level level(*this);
  if (level.TooDeep()) return Fail("expressions lie too deep in each other");
  if (!IsName("not")) return Compare();
  ExprPtr expr = New(Expr::Kind::kNot);
  Take();
  MLA_ASSIGN_OR_RETURN(ExprPtr inner, Not());
  expr->parts.push_back(std::move(inner));
  return Done(std::move(expr));
}

Result<ExprPtr> ExpressionParser::Compare() {
  MLA_ASSIGN_OR_RETURN(ExprPtr first, Sum());
  ExprPtr compare;
  for (;;) {
    const auto found = std::find_if(kCompareOps.begin(), kCompareOps.end(),
                                    [&](const auto& entry) { return IsOperator(entry.first); });
    CompareOp op = CompareOp::kIn;
    if (found != kCompareOps.end()) {
      op = found->second;
      Take();
    } else if (IsName("not") && ahead().kind == Token::Kind::kName && ahead().text == "in") {
      op = CompareOp::kNotIn;
      Take();
      Take();
    } else if (!SkipName("in")) {
      break;
    }
    if (!compare) {
      compare = New(Expr::Kind::kCompare);
      compare->parts.push_back(std::move(first));
    }
    MLA_ASSIGN_OR_RETURN(ExprPtr next, Sum());
    compare->comparisons.push_back(op);
    compare->parts.push_back(std::move(next));
  }
  if (!compare) return first;
  return Done(std::move(compare));
}

Result<ExprPtr> ExpressionParser::BinaryChain(Rule part, std::initializer_list<Binary> operators) {
  MLA_ASSIGN_OR_RETURN(ExprPtr left, (this->*part)());
  for (;;) {
    const auto* found =
        std::find_if(operators.begin(), operators.end(), [&](const Binary& entry) { return IsOperator(entry.text); });
    if (found == operators.end()) return left;
    Take();
    if (found->op == BinaryOp::kModulo && left->kind == Expr::Kind::kConstant && left->constant.is_text()) {
      return Fail("texts with % placeholders are not supported");
    }
    MLA_ASSIGN_OR_RETURN(ExprPtr right, (this->*part)());
    MLA_ASSIGN_OR_RETURN(left, Join(Expr::Kind::kBinary, std::move(left), std::move(right)));
    left->op = found->op;
  }
}

Result<ExprPtr> ExpressionParser::Sum() {
  return BinaryChain(&ExpressionParser::Concat, {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}});
}

Result<ExprPtr> ExpressionParser::Concat() {
  MLA_ASSIGN_OR_RETURN(ExprPtr first, Product());
  if (!IsOperator("~")) return first;
  ExprPtr concat = New(Expr::Kind::kConcat);
  concat->parts.push_back(std::move(first));
  while (SkipOperator("~")) {
    MLA_ASSIGN_OR_RETURN(ExprPtr next, Product());
    concat->parts.push_back(std::move(next));
  }
  return Done(std::move(concat));
}

Result<ExprPtr> ExpressionParser::Product() {
  return BinaryChain(
      &ExpressionParser::Power,
      {{"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}});
}

Result<ExprPtr> ExpressionParser::Power() { return BinaryChain(&ExpressionParser::Unary, {{"**", BinaryOp::kPower}}); }

Result<ExprPtr> ExpressionParser::Unary() { return UnaryOf(true); }

Result<ExprPtr> ExpressionParser::UnaryOf(bool with_filters) {
  const Level level(*this);
  if (level.TooDeep()) return Fail("expressions lie too deep in each other");
  ExprPtr expr;
  if (IsOperator("-") || IsOperator("+")) {
    expr = New(IsOperator("-") ? Expr::Kind::kNegative : Expr::Kind::kPositive);
    Take();
    MLA_ASSIGN_OR_RETURN(ExprPtr inner, UnaryOf(false));
    expr->parts.push_back(std::move(inner));
    MLA_ASSIGN_OR_RETURN(expr, Done(std::move(expr)));
  } else {
    MLA_ASSIGN_OR_RETURN(expr, Primary());
  }
  MLA_ASSIGN_OR_RETURN(expr, Postfix(std::move(expr)));
  if (!with_filters) return expr;
  return Filters(std::move(expr));
}

Result<ExprPtr> ExpressionParser::Primary() {
  switch (now().kind) {
    case Token::Kind::kName: return NameOrConstant();
    case Token::Kind::kInteger: return Constant(Value::Int(Take().integer));
    case Token::Kind::kFloat: return Constant(Value::Float(Take().number));
    case Token::Kind::kString: {
      ExprPtr expr = New(Expr::Kind::kConstant);
      std::string text;
      while (now().kind == Token::Kind::kString) text += Take().text;  // one after the other are one text
      expr->constant = Value::Text(nullptr, MarkedText::Trusted(std::move(text)));
      return expr;
    }
    default: break;
  }
  if (IsOperator("(")) return Bracketed();
  if (IsOperator("[")) return ListLiteral();
  if (IsOperator("{")) return DictLiteral();
  return Fail(fmt::format("expected an expression, found {}", Found()));
}

Result<ExprPtr> ExpressionParser::NameOrConstant() {
  const std::string name = now().text;
  ExprPtr expr = New(Expr::Kind::kConstant);
  Take();
  if (name == "true" || name == "True" || name == "false" || name == "False") {
    expr->constant = Value::Bool(name[0] == 't' || name[0] == 'T');
    return expr;
  }
  if (name == "none" || name == "None") {
    expr->constant = Value::None();
    return expr;
  }
  expr->kind = Expr::Kind::kName;
  expr->name = name;
  if (name == "loop" && loops > 0) {
    const bool dot = IsOperator(".") && ahead().kind == Token::Kind::kName;
    const bool item = IsOperator("[") && ahead().kind == Token::Kind::kString;
    if (!dot && !item) return FailAt(expr->line, "'loop' by itself is not supported: only its members are");
    Take();
    const std::string member = Take().text;
    if (item) MLA_RETURN_IF_ERROR(Expect("]"));
    return LoopMemberOf(member);
  }
  if (in_macro && name == "caller") {
    caller_named = true;
    expr->kind = Expr::Kind::kCaller;
    return expr;
  }
  if (in_macro && (name == "varargs" || name == "kwargs"))
    return FailAt(expr->line, fmt::format("'{}' of a macro is not supported", name));
  expr->id = Intern(name);
  return expr;
}

Result<ExprPtr> ExpressionParser::LoopMemberOf(std::string_view name) {
  for (const auto& [text, member] : kLoopMembers) {
    if (text != name) continue;
    ExprPtr expr = New(Expr::Kind::kLoop);
    expr->member = member;
    return expr;
  }
  return Fail(fmt::format("loop.{} is not supported", io::Printable(name, 40)));
}

Result<ExprPtr> ExpressionParser::Bracketed() {
  ExprPtr empty = New(Expr::Kind::kTuple);
  Take();
  if (SkipOperator(")")) return empty;
  MLA_ASSIGN_OR_RETURN(ExprPtr expr, Tuple());
  MLA_RETURN_IF_ERROR(Expect(")"));
  return expr;
}

Result<ExprPtr> ExpressionParser::ListLiteral() {
  ExprPtr list = New(Expr::Kind::kList);
  Take();
  while (!IsOperator("]")) {
    MLA_ASSIGN_OR_RETURN(ExprPtr item, Expression());
    list->parts.push_back(std::move(item));
    if (!SkipOperator(",")) break;
  }
  MLA_RETURN_IF_ERROR(Expect("]"));
  return Done(std::move(list));
}

Result<ExprPtr> ExpressionParser::DictLiteral() {
  ExprPtr dict = New(Expr::Kind::kDict);
  Take();
  while (!IsOperator("}")) {
    MLA_ASSIGN_OR_RETURN(ExprPtr key, Expression());
    MLA_RETURN_IF_ERROR(Expect(":"));
    MLA_ASSIGN_OR_RETURN(ExprPtr value, Expression());
    dict->parts.push_back(std::move(key));
    dict->parts.push_back(std::move(value));
    if (!SkipOperator(",")) break;
  }
  MLA_RETURN_IF_ERROR(Expect("}"));
  return Done(std::move(dict));
}

Result<ExprPtr> ExpressionParser::Filters(ExprPtr expr) {
  for (;;) {
    if (SkipOperator("|")) {
      MLA_ASSIGN_OR_RETURN(expr, Filter(std::move(expr)));
    } else if (SkipName("is")) {
      MLA_ASSIGN_OR_RETURN(expr, Test(std::move(expr)));
    } else if (IsOperator("(")) {
      MLA_ASSIGN_OR_RETURN(expr, CallOf(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExpressionParser::Filter(ExprPtr expr) {
  ExprPtr filter = New(Expr::Kind::kFilter);
  if (now().kind != Token::Kind::kName) return Fail(fmt::format("expected a filter's name, found {}", Found()));
  filter->name = Take().text;
  filter->builtin = FindFilter(filter->name);
  const bool safe = filter->name == "safe";
  if (filter->builtin == nullptr && !safe) {
    return FailAt(filter->line, fmt::format("the filter '{}' is not supported", io::Printable(filter->name, 40)));
  }
  filter->parts.push_back(std::move(expr));
  if (IsOperator("(")) MLA_RETURN_IF_ERROR(ArgumentsOf(filter.get()));
  if (safe) {
    safe_lines.push_back(filter->line);
  } else {
    MLA_RETURN_IF_ERROR(CheckArguments(*filter));
  }
  return Done(std::move(filter));
}

Result<ExprPtr> ExpressionParser::Test(ExprPtr expr) {
  const bool negated = SkipName("not");
  ExprPtr test = New(Expr::Kind::kTest);
  if (now().kind != Token::Kind::kName) return Fail(fmt::format("expected a test's name, found {}", Found()));
  test->name = Take().text;
  test->builtin = FindTest(test->name);
  if (test->builtin == nullptr) {
    return FailAt(test->line, fmt::format("the test '{}' is not supported", io::Printable(test->name, 40)));
  }
  test->parts.push_back(std::move(expr));
  const Token::Kind next = now().kind;
  const bool value = next == Token::Kind::kName || next == Token::Kind::kString || next == Token::Kind::kInteger ||
                     next == Token::Kind::kFloat || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    MLA_RETURN_IF_ERROR(ArgumentsOf(test.get()));
  } else if (value && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) return Fail("tests can't be chained with 'is'");
    MLA_ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    MLA_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    test->arguments.push_back(std::move(argument));
  }
  MLA_RETURN_IF_ERROR(CheckArguments(*test));
  if (!negated) return Done(std::move(test));
  ExprPtr inverse = New(Expr::Kind::kNot);
  MLA_ASSIGN_OR_RETURN(test, Done(std::move(test)));
  inverse->parts.push_back(std::move(test));
  return Done(std::move(inverse));
}

// Arguments that the builtin has no name for, or that lack, are told when the template is loaded; so are names of
// filters and tests in arguments.
Status ExpressionParser::CheckArguments(const Expr& call) const {
  const Builtin& builtin = *call.builtin;
  const auto fail = [&](const std::string& what) {
    return FailAt(call.line, fmt::format("'{}' {}", builtin.name, what));
  };
  if (builtin.variadic) {
    const std::size_t at = call.name == "selectattr" || call.name == "rejectattr" ? 1 : 0;
    if (call.arguments.size() <= at || call.arguments[at]->kind != Expr::Kind::kConstant) return {};
    const Value& name = call.arguments[at]->constant;
    if (!name.is_text()) return {};
    const std::string_view word = name.bytes();
    if (NamesFilter(call.name) && FindFilter(word) == nullptr)
      return fail(fmt::format("with the filter '{}' is not supported", io::Printable(word, 40)));
    if (NamesTest(call.name) && FindTest(word) == nullptr)
      return fail(fmt::format("with the test '{}' is not supported", io::Printable(word, 40)));
    return {};
  }
  const auto first_free = std::find(builtin.parameters.begin(), builtin.parameters.end(), std::string_view());
  const auto most = static_cast<std::size_t>(first_free - builtin.parameters.begin());
  if (call.arguments.size() > most) return fail(fmt::format("takes at most {} arguments here", most));
  for (const auto& named : call.named_arguments) {
    const auto* found = std::find(builtin.parameters.begin(), builtin.parameters.end(), named.first);
    if (found == builtin.parameters.end())
      return fail(fmt::format("with the argument '{}' is not supported", io::Printable(named.first, 40)));
  }
  if (call.arguments.size() + call.named_arguments.size() < builtin.required) return fail("lacks an argument");
  return {};
}

}  // namespace mla::chat
