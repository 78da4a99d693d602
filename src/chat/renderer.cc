#include "chat/renderer.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "io/quote.h"

namespace mla::chat {

class Renderer::Frame {
 public:
  Frame(Renderer& renderer, bool macro)
      : r_(renderer),
        begin_(r_.frame_begin_),
        visible_(r_.visible_),
        outermost_(r_.outermost_),
        seen_(r_.seen_),
        caller_(r_.caller_) {
    if (outermost_) r_.outermost_end_ = r_.slots_.size();
    r_.outermost_ = false;
    r_.frame_begin_ = r_.slots_.size();
    if (!macro) return;
    r_.visible_ = r_.frame_begin_;
    r_.seen_ = nullptr;
    r_.caller_ = nullptr;
  }
  ~Frame() {
    r_.slots_.erase(r_.slots_.begin() + static_cast<std::ptrdiff_t>(r_.frame_begin_), r_.slots_.end());
    r_.frame_begin_ = begin_;
    r_.visible_ = visible_;
    r_.outermost_ = outermost_;
    r_.seen_ = seen_;
    r_.caller_ = caller_;
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Renderer& r_;
  std::size_t begin_;
  std::size_t visible_;
  bool outermost_;
  const Seen* seen_;
  const Caller* caller_;
};

Renderer::Renderer(const Template& source, Environment& environment, std::span<const Variable> variables)
    : template_(source),
      environment_(environment),
      heap_(environment.heap),
      variables_(variables),
      given_(source.names.size(), nullptr) {
  for (std::size_t id = 0; id < given_.size(); ++id) {
    for (const Variable& variable : variables_) {
      if (variable.name == source.names[id]) given_[id] = &variable.value;
    }
  }
}

Result<MarkedText> Renderer::Run() {
  MarkedTextBuilder out(heap_);
  out_ = &out;
  const Result<Flow> flow = Run(template_.body);
  if (flow.ok() && heap_->ok()) return out.Take();
  const Error fault = flow.ok() ? heap_->Fault() : flow.error();
  return Error{fmt::format("line {}: {}", line_, fault.message)};
}

Result<Renderer::Flow> Renderer::Run(const Body& body) {
  const Deeper deeper(&depth_);
  MLA_RETURN_IF_ERROR(deeper.Check());
  for (const Stmt& stmt : body) {
    line_ = stmt.line;
    heap_->Spend(1);
    if (!heap_->ok()) return heap_->Fault();
    MLA_ASSIGN_OR_RETURN(const Flow flow, Run(stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::Run(const Stmt& stmt) {
  switch (stmt.kind) {
    case Stmt::Kind::kText: out_->Append(stmt.text.text()); break;
    case Stmt::Kind::kOutput: return Write(Eval(*stmt.expr));
    case Stmt::Kind::kFor: return RunFor(stmt);
    case Stmt::Kind::kIf: return RunIf(stmt);
    case Stmt::Kind::kSet: {
      MLA_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
      MLA_RETURN_IF_ERROR(Assign(stmt.target, value));
      break;
    }
    case Stmt::Kind::kSetBlock: {
      MLA_ASSIGN_OR_RETURN(const Value value, CaptureThrough(stmt));
      MLA_RETURN_IF_ERROR(Assign(stmt.target, value));
      break;
    }
    case Stmt::Kind::kFilterBlock: return Write(CaptureThrough(stmt));
    case Stmt::Kind::kCallBlock: return Write(EvalCallBlock(stmt));
    case Stmt::Kind::kMacro: Set(stmt.macro->id, Value::Of(stmt.macro.get())); break;
    case Stmt::Kind::kWith: {
      const Frame frame(*this, false);
      MLA_RETURN_IF_ERROR(RunWith(stmt));
      return Run(stmt.body);
    }
    case Stmt::Kind::kGeneration: {
      const Frame frame(*this, false);
      return Run(stmt.body);
    }
    case Stmt::Kind::kBreak: return Flow::kBreak;
    case Stmt::Kind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::Write(const Result<Value>& value) {
  if (!value.ok()) return value.error();
  MLA_RETURN_IF_ERROR(AppendText(*value, heap_, out_));
  return Flow::kNext;
}

Status Renderer::RunWith(const Stmt& stmt) {
  std::vector<Value> values;
  for (const ExprPtr& expr : stmt.exprs) {
    MLA_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    values.push_back(std::move(value));
  }
  for (std::size_t i = 0; i < values.size(); ++i) Set(stmt.targets[i].ids[0], std::move(values[i]));
  return {};
}

// The items that the loop's condition leaves.
Result<Value> Renderer::Chosen(const Stmt& stmt) {
  MLA_ASSIGN_OR_RETURN(const Value value, Eval(*stmt.expr));
  MLA_ASSIGN_OR_RETURN(Value items, Iterate(value, heap_));
  if (!stmt.condition) return items;
  std::vector<Value> chosen;
  for (const Value& item : items.list().items) {
    const Frame frame(*this, false);
    MLA_RETURN_IF_ERROR(Assign(stmt.target, item));
    MLA_ASSIGN_OR_RETURN(const Value keep, Eval(*stmt.condition));
    if (IsTrue(keep)) chosen.push_back(item);
  }
  return Value::List(heap_, ListFlavor::kList, std::move(chosen));
}

Result<Renderer::Flow> Renderer::RunFor(const Stmt& stmt) {
  MLA_ASSIGN_OR_RETURN(const Value chosen, Chosen(stmt));
  const std::vector<Value>& items = chosen.list().items;
  if (items.empty() && !stmt.bodies.empty()) {
    const Frame frame(*this, false);
    return Run(stmt.bodies[0]);
  }
  Loop loop{items, 0};
  loops_.push_back(&loop);
  Result<Flow> flow = Flow::kNext;
  for (; loop.at < items.size() && flow.ok() && *flow != Flow::kBreak; ++loop.at) {
    heap_->Spend(1);
    const Frame frame(*this, false);
    if (const Status assigned = Assign(stmt.target, items[loop.at]); !assigned.ok()) {
      flow = assigned.error();
    } else {
      flow = Run(stmt.body);
    }
  }
  loops_.pop_back();
  if (!flow.ok()) return flow;
  return Flow::kNext;
}

Result<Renderer::Flow> Renderer::RunIf(const Stmt& stmt) {
  for (std::size_t i = 0; i < stmt.exprs.size(); ++i) {
    MLA_ASSIGN_OR_RETURN(const Value test, Eval(*stmt.exprs[i]));
    if (IsTrue(test)) return Run(stmt.bodies[i]);
  }
  if (stmt.bodies.size() > stmt.exprs.size()) return Run(stmt.bodies.back());
  return Flow::kNext;
}

Result<MarkedText> Renderer::Capture(const Body& body) {
  MarkedTextBuilder captured(heap_);
  MarkedTextBuilder* const before = std::exchange(out_, &captured);
  const Result<Flow> flow = Run(body);
  out_ = before;
  if (!flow.ok()) return flow.error();
  return captured.Take();
}

Result<Value> Renderer::CaptureThrough(const Stmt& stmt) {
  const Frame frame(*this, false);
  MLA_ASSIGN_OR_RETURN(MarkedText text, Capture(stmt.body));
  const Value captured = Value::Text(heap_, std::move(text));
  if (!stmt.expr) return captured;
  return EvalChain(*stmt.expr, captured);
}

Status Renderer::Assign(const Target& target, const Value& value) {
  if (!target.member.empty()) {
    const Value* space = Find(target.ids[0]);
    if (space == nullptr || !space->is_namespace())
      return Error{fmt::format("only a namespace's members can be set, '{}' is none",
                               io::Printable(template_.names[static_cast<std::size_t>(target.ids[0])], 40))};
    auto& members = space->space()->members;
    heap_->Spend(static_cast<std::int64_t>(members.size()));
    const auto found =
        std::find_if(members.begin(), members.end(), [&](const auto& member) { return member.first == target.member; });
    if (found != members.end()) {
      found->second = value;
    } else {
      heap_->Take(sizeof(members[0]));  // a namespace lives as long as the rendering
      members.emplace_back(target.member, value);
    }
    return {};
  }
  if (!target.is_tuple) {
    Set(target.ids[0], value);
    return {};
  }
  MLA_ASSIGN_OR_RETURN(const Value taken_apart, Iterate(value, heap_));
  const std::vector<Value>& items = taken_apart.list().items;
  if (items.size() != target.ids.size())
    return Error{fmt::format("{} values for {} variables", items.size(), target.ids.size())};
  for (std::size_t i = 0; i < items.size(); ++i) Set(target.ids[i], items[i]);
  return {};
}

void Renderer::Set(NameId id, Value value) {
  heap_->Spend(static_cast<std::int64_t>((slots_.size() - frame_begin_) / 8));
  for (std::size_t i = frame_begin_; i < slots_.size(); ++i) {
    if (slots_[i].id != id) continue;
    slots_[i].value = std::move(value);
    return;
  }
  slots_.push_back({id, std::move(value)});
}

const Value* Renderer::Find(NameId id) {
  heap_->Spend(static_cast<std::int64_t>((slots_.size() - visible_) / 8));
  for (std::size_t i = slots_.size(); i-- > visible_;) {
    if (slots_[i].id == id) return &slots_[i].value;
  }
  for (const Seen* seen = seen_; seen != nullptr; seen = seen->more) {
    heap_->Spend(1 + static_cast<std::int64_t>((seen->end - seen->begin) / 8));
    for (std::size_t i = seen->end; i-- > seen->begin;) {
      if (slots_[i].id == id) return &slots_[i].value;
    }
  }
  if (visible_ > 0) {
    heap_->Spend(static_cast<std::int64_t>(outermost_end_ / 8));
    for (std::size_t i = std::min(outermost_end_, visible_); i-- > 0;) {
      if (slots_[i].id == id) return &slots_[i].value;
    }
  }
  return given_[static_cast<std::size_t>(id)];
}

Status Renderer::BindMacro(const Macro& macro, const Arguments& arguments) {
  if (arguments.positional.size() > macro.parameters.size())
    return Error{fmt::format("the macro '{}' takes at most {} arguments", io::Printable(macro.name, 40),
                             macro.parameters.size())};
  std::size_t bound = arguments.positional.size();
  std::vector<std::optional<Value>> values(macro.parameters.size());
  for (std::size_t i = 0; i < bound; ++i) values[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const std::string_view wanted = name;
    const auto found = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                    [&](const auto& parameter) { return parameter.first == wanted; });
    const auto index = static_cast<std::size_t>(found - macro.parameters.begin());
    if (found == macro.parameters.end() || values[index])
      return Error{fmt::format("the macro '{}' takes no argument '{}', or it is given twice",
                               io::Printable(macro.name, 40), io::Printable(name, 40))};
    values[index] = value;
  }
  const std::size_t first_default = macro.parameters.size() - macro.defaults.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i] && i >= first_default) {
      MLA_ASSIGN_OR_RETURN(values[i], Eval(*macro.defaults[i - first_default]));
    }
    Set(macro.parameters[i].second, values[i] ? *values[i] : Value::Undefined(heap_, macro.parameters[i].first));
  }
  return {};
}

Result<Value> Renderer::CallMacro(const Macro& macro, const Arguments& arguments, const Caller* caller) {
  if (caller != nullptr && !macro.names_caller)
    return Error{fmt::format("the macro '{}' has no use for a call block's body", io::Printable(macro.name, 40))};
  const Frame frame(*this, true);
  caller_ = caller;
  return RunMacro(macro, arguments);
}

Result<Value> Renderer::CallCaller(const Caller& called, const Arguments& arguments, const Caller* caller) {
  if (caller != nullptr && !called.body.names_caller) return Error{"'caller' has no use for a call block's body"};
  const Frame frame(*this, true);
  caller_ = caller;
  seen_ = &called.seen;
  loops_.push_back(called.loop);
  Result<Value> value = RunMacro(called.body, arguments);
  loops_.pop_back();
  return value;
}

Result<Value> Renderer::RunMacro(const Macro& macro, const Arguments& arguments) {
  MLA_RETURN_IF_ERROR(BindMacro(macro, arguments));
  MLA_ASSIGN_OR_RETURN(MarkedText text, Capture(macro.body));
  return Value::Text(heap_, std::move(text));
}

}  // namespace mla::chat
