// Runs a template.
#ifndef MLA_CHAT_RENDERER_H_
#define MLA_CHAT_RENDERER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/ast.h"
#include "chat/builtins.h"
#include "mla/result.h"

namespace mla::chat {

// A variable that the template is given.
struct Variable {
  std::string_view name;
  Value value;
};

// One rendering; for one thread. The template outlives it.
class Renderer {
 public:
  Renderer(const Template& source, Environment& environment, std::span<const Variable> variables);

  // Fails, beginning with "line N: ", on what Python would fail on, on what the template refuses (raise_exception), and
  // where the heap's bounds are passed.
  Result<MarkedText> Run();

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  struct Slot {
    NameId id;
    Value value;
  };
  struct Loop {
    std::span<const Value> items;
    std::size_t at = 0;
  };
  // A call of Eval or Run inside others, while it lives.
  class Deeper {
   public:
    explicit Deeper(int* depth) : depth_(depth) { ++*depth_; }
    ~Deeper() { --*depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    // The parser bounds what lies in each other in the source; macros add to it.
    Status Check() const {
      constexpr int kMost = 1000;  // each takes some hundred bytes of the stack
      return *depth_ <= kMost ? Status() : Status(Error{"macros call each other too deep"});
    }

   private:
    int* depth_;
  };
  // Variables that a call block's body sees from where it runs, beside its own and the outermost: slots [begin, end).
  struct Seen {
    std::size_t begin;
    std::size_t end;
    const Seen* more;  // where the block lies in another's body; or null
  };
  // What `caller` is in a macro: a call block's body. It lives while the macro runs.
  struct Caller {
    const Macro& body;
    Seen seen;
    Loop* loop;  // that the block lies in, or null
  };
  // A scope of variables while it lives. A macro's sees its own and the template's outermost, not its caller's.
  class Frame;

  Result<Flow> Run(const Body& body);
  Result<Flow> Run(const Stmt& stmt);
  Result<Flow> RunFor(const Stmt& stmt);
  Result<Flow> RunIf(const Stmt& stmt);
  Result<Flow> Write(const Result<Value>& value);
  Status RunWith(const Stmt& stmt);
  Result<Value> Chosen(const Stmt& stmt);
  Result<MarkedText> Capture(const Body& body);
  Result<Value> CaptureThrough(const Stmt& stmt);
  Status Assign(const Target& target, const Value& value);
  void Set(NameId id, Value value);
  const Value* Find(NameId id);

  Result<Value> Eval(const Expr& expr);
  Result<Value> EvalHere(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalLoop(const Expr& expr);
  Result<Value> EvalList(const Expr& expr);
  Result<Value> EvalDict(const Expr& expr);
  Result<Value> EvalMember(const Expr& expr);
  Result<Value> EvalSlice(const Expr& expr);
  Result<Value> EvalConcat(const Expr& expr);
  Result<Value> EvalCompare(const Expr& expr);
  Result<Value> EvalSign(const Expr& expr);
  Result<Value> EvalBinary(const Expr& expr);
  Result<Value> EvalChoice(const Expr& expr);
  Result<Value> EvalCall(const Expr& expr, const Caller* caller = nullptr);
  Result<Value> EvalCallerCall(const Expr& expr, const Caller* caller = nullptr);
  Result<Value> EvalCallBlock(const Stmt& stmt);
  Result<Value> EvalMethodCall(const Expr& expr);
  Result<Value> EvalFilter(const Expr& expr, const Value& subject);
  // The filters of a chain that begins with nothing, over a subject.
  Result<Value> EvalChain(const Expr& expr, const Value& subject);
  Result<Arguments> EvalArguments(const Expr& call);
  // With what `caller` is in it, or null.
  Result<Value> CallMacro(const Macro& macro, const Arguments& arguments, const Caller* caller);
  Result<Value> CallCaller(const Caller& called, const Arguments& arguments, const Caller* caller);
  Result<Value> RunMacro(const Macro& macro, const Arguments& arguments);
  Status BindMacro(const Macro& macro, const Arguments& arguments);

  const Template& template_;
  Environment& environment_;
  Heap* heap_;
  std::span<const Variable> variables_;
  std::vector<const Value*> given_;  // by NameId: of variables_, or null
  std::vector<Slot> slots_;
  std::size_t frame_begin_ = 0;  // of the innermost frame
  std::size_t visible_ = 0;      // slots below, but for the outermost frame's, are a macro's caller's
  std::size_t outermost_end_ = 0;
  const Seen* seen_ = nullptr;      // in a call block's body
  const Caller* caller_ = nullptr;  // of the innermost macro
  bool outermost_ = true;
  std::vector<Loop*> loops_;
  MarkedTextBuilder* out_ = nullptr;
  int depth_ = 0;
  int line_ = 1;
};

}  // namespace mla::chat

#endif  // MLA_CHAT_RENDERER_H_
