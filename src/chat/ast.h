// A parsed template: plain data, immutable once made, shared by renderings.
#ifndef MLA_CHAT_AST_H_
#define MLA_CHAT_AST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/builtins.h"
#include "chat/value.h"

namespace mla::chat {

// A variable's number in Template::names.
using NameId = std::int32_t;

enum class BinaryOp : std::uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
enum class LoopMember : std::uint8_t {
  kIndex,
  kIndex0,
  kRevindex,
  kRevindex0,
  kFirst,
  kLast,
  kLength,
  kPrevious,
  kNext,
  kDepth,
  kDepth0,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind : std::uint8_t {
    kConstant,    // constant
    kName,        // id
    kLoop,        // member, of the innermost loop
    kList,        // parts
    kTuple,       // parts
    kDict,        // parts: key, value, key, ...
    kAttribute,   // parts[0].name
    kItem,        // parts[0][parts[1]]
    kSlice,       // parts[0][parts[1]:parts[2]:parts[3]]; null where one is not written
    kCall,        // name(arguments): a macro's, or else builtin's
    kCaller,      // whether a call block calls this macro
    kCallerCall,  // caller(arguments): the body of that block
    kMethodCall,  // parts[0].name(arguments)
    kFilter,      // parts[0] | builtin(arguments); parts[0] is null in a filter block
    kTest,        // parts[0] is builtin(arguments)
    kNot,         // parts[0]
    kNegative,
    kPositive,
    kBinary,     // parts[0] op parts[1]
    kConcat,     // parts, with ~ between
    kCompare,    // parts[0] comparisons[0] parts[1] comparisons[1] parts[2] ...
    kAnd,        // parts[0], parts[1]
    kOr,         // parts[0], parts[1]
    kCondition,  // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind = Kind::kConstant;
  int line = 0;
  int height = 1;  // of the tree below
  NameId id = 0;
  LoopMember member = LoopMember::kIndex;
  BinaryOp op = BinaryOp::kAdd;
  const Builtin* builtin = nullptr;
  Value constant;
  std::string name;
  std::vector<ExprPtr> parts;
  std::vector<CompareOp> comparisons;
  std::vector<ExprPtr> arguments;
  std::vector<std::pair<std::string, ExprPtr>> named_arguments;
};

struct Stmt;
using Body = std::vector<Stmt>;

// What is assigned to: a variable, several (the value is taken apart), or a namespace's member.
struct Target {
  std::vector<NameId> ids;
  bool is_tuple = false;
  std::string member;  // of the namespace ids[0], or ""
};

struct Stmt {
  enum class Kind : std::uint8_t {
    kText,         // text
    kOutput,       // {{ expr }}
    kFor,          // target in expr if condition: body, else bodies[0]
    kIf,           // branches: exprs and bodies, the last body without an expr where there is an else
    kSet,          // target = expr
    kSetBlock,     // target = body, through the filters of expr
    kMacro,        // macro
    kCallBlock,    // expr, a kCall or kCallerCall, for which macro is the caller
    kFilterBlock,  // body through the filters of expr
    kWith,         // targets = exprs: body
    kGeneration,   // body
    kBreak,
    kContinue,
  };
  Kind kind = Kind::kText;
  int line = 0;
  Value text;
  ExprPtr expr;
  ExprPtr condition;
  Target target;
  std::vector<Target> targets;
  std::vector<ExprPtr> exprs;
  Body body;
  std::vector<Body> bodies;
  std::unique_ptr<Macro> macro;
};

struct Macro {
  std::string name;
  NameId id = 0;
  std::vector<std::pair<std::string, NameId>> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  bool names_caller = false;
};

struct Template {
  std::vector<std::string> names;
  Body body;
};

}  // namespace mla::chat

#endif  // MLA_CHAT_AST_H_
