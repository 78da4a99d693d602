#include "chat/parser.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "chat/expressions.h"
#include "chat/lexer.h"
#include "io/quote.h"

namespace mla::chat {
namespace {

class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  Result<Template> Run() {
    Template result;
    MLA_ASSIGN_OR_RETURN(result.body, ParseBody({}));
    // What `safe` makes is escaped and escapes when it is joined with others: only printing it is supported.
    if (!in_.safe_lines.empty()) {
      return ExpressionParser::FailAt(in_.safe_lines.front(),
                                      "the filter 'safe' is only supported last, where a value is printed");
    }
    for (const auto& [name, line] : in_.called) {
      if (FindFunction(name) != nullptr || in_.macros.count(name) > 0) continue;
      return ExpressionParser::FailAt(
          line, fmt::format("the function '{}' is not supported, and no macro has that name", io::Printable(name, 40)));
    }
    result.names = in_.TakeNames();
    return result;
  }

 private:
  // Statements up to a tag that begins with one of `ends`, which is then the next token; at the top, to the end.
  Result<Body> ParseBody(std::initializer_list<std::string_view> ends) {
    const ExpressionParser::Level level(in_);
    if (level.TooDeep()) return in_.Fail("blocks lie too deep in each other");
    const int line = in_.now().line;
    Body body;
    for (;;) {
      switch (in_.now().kind) {
        case Token::Kind::kEnd:
          if (ends.size() == 0) return body;
          return ExpressionParser::FailAt(line, fmt::format("a block without its {}", *(ends.end() - 1)));
        case Token::Kind::kData: {
          Stmt text = New(Stmt::Kind::kText);
          text.text = Value::Text(nullptr, MarkedText::Trusted(in_.Take().text));
          body.push_back(std::move(text));
          continue;
        }
        case Token::Kind::kVariableBegin: {
          MLA_ASSIGN_OR_RETURN(Stmt output, Output());
          body.push_back(std::move(output));
          continue;
        }
        default: break;
      }
      in_.Take();  // {%
      for (const std::string_view end : ends) {
        if (in_.IsName(end)) return body;
      }
      MLA_ASSIGN_OR_RETURN(Stmt statement, Statement());
      body.push_back(std::move(statement));
      MLA_RETURN_IF_ERROR(EndTag());
    }
  }

  Stmt New(Stmt::Kind kind) const {
    Stmt stmt;
    stmt.kind = kind;
    stmt.line = in_.now().line;
    return stmt;
  }

  Status EndTag() { return in_.ExpectKind(Token::Kind::kBlockEnd, "%}"); }

  Result<Stmt> Output() {
    in_.Take();
    Stmt output = New(Stmt::Kind::kOutput);
    MLA_ASSIGN_OR_RETURN(output.expr, in_.Tuple());
    // Without autoescape, printing what `safe` made prints the text.
    if (output.expr->kind == Expr::Kind::kFilter && output.expr->name == "safe") {
      ExprPtr inner = std::move(output.expr->parts[0]);
      output.expr = std::move(inner);
      in_.safe_lines.pop_back();  // the outermost filter is the last that was read
    }
    MLA_RETURN_IF_ERROR(in_.ExpectKind(Token::Kind::kVariableEnd, "}}"));
    return output;
  }

  Result<Stmt> Statement() {
    if (in_.now().kind != Token::Kind::kName)
      return in_.Fail(fmt::format("expected a tag's name, found {}", in_.Found()));
    const Token tag = in_.Take();
    if (tag.text == "if") return If();
    if (tag.text == "for") return For();
    if (tag.text == "set") return Set();
    if (tag.text == "macro") return MacroDefinition();
    if (tag.text == "call") return CallBlock();
    if (tag.text == "filter") return FilterBlock();
    if (tag.text == "with") return With();
    if (tag.text == "generation") return Generation();
    if (tag.text == "break" || tag.text == "continue") {
      if (breakable_ == 0) return ExpressionParser::FailAt(tag.line, fmt::format("'{}' outside of a loop", tag.text));
      return New(tag.text == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue);
    }
    return ExpressionParser::FailAt(tag.line,
                                    fmt::format("the tag '{}' is not supported", io::Printable(tag.text, 40)));
  }

  // The body of a block from behind its opening tag's inside; its last tag's inside is left, but for its name.
  Result<Body> Block(std::string_view end) {
    MLA_RETURN_IF_ERROR(EndTag());
    MLA_ASSIGN_OR_RETURN(Body body, ParseBody({end}));
    in_.Take();
    return body;
  }

  Result<Stmt> If() {
    Stmt stmt = New(Stmt::Kind::kIf);
    for (;;) {
      MLA_ASSIGN_OR_RETURN(ExprPtr test, in_.Tuple(false));
      stmt.exprs.push_back(std::move(test));
      MLA_RETURN_IF_ERROR(EndTag());
      MLA_ASSIGN_OR_RETURN(Body body, ParseBody({"elif", "else", "endif"}));
      stmt.bodies.push_back(std::move(body));
      if (in_.SkipName("elif")) continue;
      if (in_.SkipName("else")) {
        MLA_ASSIGN_OR_RETURN(Body otherwise, Block("endif"));
        stmt.bodies.push_back(std::move(otherwise));
        return stmt;
      }
      in_.Take();
      return stmt;
    }
  }

  // One name, or several with commas between, maybe in brackets.
  Result<Target> Names() {
    Target target;
    const bool brackets = in_.SkipOperator("(");
    for (;;) {
      if (in_.now().kind != Token::Kind::kName || in_.IsName("in")) {
        return in_.Fail(fmt::format("expected a variable's name, found {}", in_.Found()));
      }
      const std::string name = in_.Take().text;
      if (name == "loop" && in_.loops > 0) return in_.Fail("'loop' can't be assigned to inside a loop");
      if (name == "caller" && in_.in_macro) return in_.Fail("'caller' can't be assigned to inside a macro");
      target.ids.push_back(in_.Intern(name));
      if (!in_.SkipOperator(",")) break;
      target.is_tuple = true;
      if (in_.IsName("in") || in_.IsOperator(")") || in_.IsOperator("=")) break;
    }
    if (brackets) MLA_RETURN_IF_ERROR(in_.Expect(")"));
    return target;
  }

  Result<Stmt> For() {
    Stmt stmt = New(Stmt::Kind::kFor);
    MLA_ASSIGN_OR_RETURN(stmt.target, Names());
    if (!in_.SkipName("in")) return in_.Fail(fmt::format("expected 'in', found {}", in_.Found()));
    MLA_ASSIGN_OR_RETURN(stmt.expr, in_.Tuple(false, "recursive"));
    if (in_.SkipName("if")) {
      MLA_ASSIGN_OR_RETURN(stmt.condition, in_.Tuple(true, "recursive"));
    }
    if (in_.IsName("recursive")) return in_.Fail("recursive loops are not supported");
    MLA_RETURN_IF_ERROR(EndTag());
    ++in_.loops;
    ++breakable_;
    MLA_ASSIGN_OR_RETURN(stmt.body, ParseBody({"else", "endfor"}));
    --breakable_;
    --in_.loops;
    if (in_.SkipName("else")) {
      MLA_ASSIGN_OR_RETURN(Body otherwise, Block("endfor"));
      stmt.bodies.push_back(std::move(otherwise));
    } else {
      in_.Take();
    }
    return stmt;
  }

  Result<Stmt> Set() {
    Stmt stmt = New(Stmt::Kind::kSet);
    MLA_ASSIGN_OR_RETURN(stmt.target, Names());
    if (!stmt.target.is_tuple && in_.SkipOperator(".")) {
      if (in_.now().kind != Token::Kind::kName) return in_.Fail("expected a namespace's member");
      stmt.target.member = in_.Take().text;
      if (stmt.target.member[0] == '_') return in_.Fail("a namespace's members begin with no underscore");
    }
    if (in_.SkipOperator("=")) {
      MLA_ASSIGN_OR_RETURN(stmt.expr, in_.Tuple(true));
      return stmt;
    }
    stmt.kind = Stmt::Kind::kSetBlock;
    if (in_.SkipOperator("|")) {
      MLA_ASSIGN_OR_RETURN(stmt.expr, in_.FilterChain());
    }
    MLA_ASSIGN_OR_RETURN(stmt.body, InnerBlock("endset"));
    return stmt;
  }

  // A block with variables of its own, from which loops are not left.
  Result<Body> InnerBlock(std::string_view end) {
    const int breakable = std::exchange(breakable_, 0);
    ++inner_;
    MLA_ASSIGN_OR_RETURN(Body body, Block(end));
    --inner_;
    breakable_ = breakable;
    return body;
  }

  Result<Stmt> MacroDefinition() {
    Stmt stmt = New(Stmt::Kind::kMacro);
    if (in_.now().kind != Token::Kind::kName) return in_.Fail("expected a macro's name");
    if (in_.loops > 0 || inner_ > 0) return in_.Fail("a macro inside a loop or another block is not supported");
    auto macro = std::make_unique<Macro>();
    macro->name = in_.Take().text;
    macro->id = in_.Intern(macro->name);
    in_.macros.insert(macro->name);
    MLA_RETURN_IF_ERROR(Signature(macro.get()));
    MLA_RETURN_IF_ERROR(MacroBody("endmacro", macro.get()));
    in_.SkipName(macro->name);
    stmt.macro = std::move(macro);
    return stmt;
  }

  // Parameters in brackets.
  Status Signature(Macro* macro) {
    MLA_RETURN_IF_ERROR(in_.Expect("("));
    while (!in_.IsOperator(")")) {
      if (in_.now().kind != Token::Kind::kName) return in_.Fail("expected a parameter's name");
      std::string name = in_.Take().text;
      if (name == "caller") return in_.Fail("a parameter named 'caller' is not supported");
      const NameId id = in_.Intern(name);
      macro->parameters.emplace_back(std::move(name), id);
      if (in_.SkipOperator("=")) {
        MLA_ASSIGN_OR_RETURN(ExprPtr value, in_.Expression());
        macro->defaults.push_back(std::move(value));
      } else if (!macro->defaults.empty()) {
        return in_.Fail("a parameter without a default behind one that has one");
      }
      if (!in_.SkipOperator(",")) break;
    }
    return in_.Expect(")");
  }

  // A body in which `caller` is what a call block gives; a macro's names it too where a call block's inside it does.
  Status MacroBody(std::string_view end, Macro* macro) {
    const bool in_macro = std::exchange(in_.in_macro, true);
    const bool named = std::exchange(in_.caller_named, false);
    MLA_ASSIGN_OR_RETURN(macro->body, InnerBlock(end));
    macro->names_caller = in_.caller_named;
    in_.caller_named = in_.caller_named || named;
    in_.in_macro = in_macro;
    return {};
  }

  Result<Stmt> CallBlock() {
    Stmt stmt = New(Stmt::Kind::kCallBlock);
    auto body = std::make_unique<Macro>();
    body->name = "caller";
    if (in_.IsOperator("(")) MLA_RETURN_IF_ERROR(Signature(body.get()));
    MLA_ASSIGN_OR_RETURN(stmt.expr, in_.Expression());
    if (stmt.expr->kind != Expr::Kind::kCall && stmt.expr->kind != Expr::Kind::kCallerCall)
      return in_.Fail("expected a macro's call");
    MLA_RETURN_IF_ERROR(MacroBody("endcall", body.get()));
    stmt.macro = std::move(body);
    return stmt;
  }

  Result<Stmt> FilterBlock() {
    Stmt stmt = New(Stmt::Kind::kFilterBlock);
    MLA_ASSIGN_OR_RETURN(stmt.expr, in_.FilterChain());
    MLA_ASSIGN_OR_RETURN(stmt.body, InnerBlock("endfilter"));
    return stmt;
  }

  Result<Stmt> With() {
    Stmt stmt = New(Stmt::Kind::kWith);
    while (in_.now().kind != Token::Kind::kBlockEnd) {
      Target target;
      if (in_.now().kind != Token::Kind::kName) return in_.Fail("expected a variable's name");
      if (in_.IsName("caller") && in_.in_macro) return in_.Fail("'caller' can't be assigned to inside a macro");
      target.ids.push_back(in_.Intern(in_.Take().text));
      MLA_RETURN_IF_ERROR(in_.Expect("="));
      MLA_ASSIGN_OR_RETURN(ExprPtr value, in_.Expression());
      stmt.targets.push_back(std::move(target));
      stmt.exprs.push_back(std::move(value));
      if (!in_.SkipOperator(",")) break;
    }
    ++inner_;
    MLA_ASSIGN_OR_RETURN(stmt.body, Block("endwith"));
    --inner_;
    return stmt;
  }

  Result<Stmt> Generation() {
    Stmt stmt = New(Stmt::Kind::kGeneration);
    const bool named = std::exchange(in_.caller_named, false);
    MLA_ASSIGN_OR_RETURN(stmt.body, InnerBlock("endgeneration"));
    if (in_.caller_named) return in_.Fail("'caller' in a generation block is not supported");  // it has one of its own
    in_.caller_named = named;
    return stmt;
  }

  ExpressionParser in_;
  int breakable_ = 0;  // loops that `break` could leave
  int inner_ = 0;      // blocks, other than if, that have variables of their own
};

}  // namespace

Result<Template> ParseTemplate(std::string_view source) {
  if (const std::size_t valid = io::ValidUtf8Prefix(source); valid < source.size())
    return Error{fmt::format("byte {}: invalid UTF-8", valid)};
  if (source.size() > kMostSourceBytes)
    return Error{fmt::format("{} bytes; a template may have {}", source.size(), kMostSourceBytes)};
  MLA_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).Run();
}

}  // namespace mla::chat
