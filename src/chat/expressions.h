// Tokens -> expressions: Jinja's grammar, with its precedence.
#ifndef MLA_CHAT_EXPRESSIONS_H_
#define MLA_CHAT_EXPRESSIONS_H_

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/ast.h"
#include "chat/lexer.h"
#include "mla/result.h"

namespace mla::chat {

// Reads expressions from a list of tokens; statements go on where it stands. Errors begin with "line N: ".
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() { return std::move(tokens_[now().kind == Token::Kind::kEnd ? at_ : at_++]); }
  bool IsOperator(std::string_view text) const;
  bool IsName(std::string_view text) const;
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  Status Expect(std::string_view op);
  Status ExpectKind(Token::Kind kind, std::string_view what);
  Error Fail(std::string_view what) const { return FailAt(now().line, what); }
  static Error FailAt(int line, std::string_view what);
  // What stands at now(), for messages.
  std::string Found() const;

  // One expression; `a if b else c` included where `condition` is true.
  Result<ExprPtr> Expression(bool condition = true);
  // One, or a tuple without brackets. The tuple ends at a tag's end, a closing bracket or the name `end_name`.
  Result<ExprPtr> Tuple(bool condition = true, std::string_view end_name = "");
  // A chain of filters over nothing, as {% filter upper | trim %} has.
  Result<ExprPtr> FilterChain();

  NameId Intern(const std::string& name);
  std::vector<std::string> TakeNames() { return std::move(names_); }

  // How many loops are open: `loop` means something inside one.
  int loops = 0;
  bool in_macro = false;      // or in a call block's body, which is one too
  bool caller_named = false;  // in it
  // Macros by name, and calls of names that are no function: each must be a macro in the end.
  std::set<std::string> macros;
  std::vector<std::pair<std::string, int>> called;
  // Lines of the filters `safe`, but of those that stand last where a value is printed: there must be none in the end.
  std::vector<int> safe_lines;

  // A level of nesting while it lives.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) { ++parser_.level_; }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    bool TooDeep() const { return parser_.level_ > 100; }

   private:
    ExpressionParser& parser_;
  };

 private:
  using Rule = Result<ExprPtr> (ExpressionParser::*)();
  struct Binary {
    std::string_view text;
    BinaryOp op;
  };

  Result<ExprPtr> Or();
  Result<ExprPtr> And();
  Result<ExprPtr> Not();
  Result<ExprPtr> Compare();
  Result<ExprPtr> Sum();
  Result<ExprPtr> Concat();
  Result<ExprPtr> Product();
  Result<ExprPtr> Power();
  Result<ExprPtr> Unary();
  Result<ExprPtr> UnaryOf(bool with_filters);
  Result<ExprPtr> Primary();
  Result<ExprPtr> NameOrConstant();
  Result<ExprPtr> Bracketed();
  Result<ExprPtr> ListLiteral();
  Result<ExprPtr> DictLiteral();
  Result<ExprPtr> Postfix(ExprPtr expr);
  Result<ExprPtr> Member(ExprPtr expr);
  Result<ExprPtr> Subscript(ExprPtr expr);
  Result<ExprPtr> CallOf(ExprPtr callee);
  Result<ExprPtr> Filters(ExprPtr expr);
  Result<ExprPtr> Filter(ExprPtr expr);
  Result<ExprPtr> Test(ExprPtr expr);
  Status ArgumentsOf(Expr* call);
  Status CheckArguments(const Expr& call) const;
  Result<ExprPtr> LoopMemberOf(std::string_view name);
  Result<ExprPtr> BinaryChain(Rule part, std::initializer_list<Binary> operators);
  Result<ExprPtr> Join(Expr::Kind kind, ExprPtr left, ExprPtr right);
  Result<ExprPtr> Done(ExprPtr expr) const;
  ExprPtr New(Expr::Kind kind) const;
  ExprPtr Constant(Value value) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, NameId, std::less<>> ids_;
};

}  // namespace mla::chat

#endif  // MLA_CHAT_EXPRESSIONS_H_
