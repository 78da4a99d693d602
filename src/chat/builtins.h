// Filters, tests, functions and methods, as tables: what a template may name.
#ifndef MLA_CHAT_BUILTINS_H_
#define MLA_CHAT_BUILTINS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/value.h"
#include "mla/result.h"

namespace mla::chat {

// What a rendering lends to them.
struct Environment {
  Heap* heap = nullptr;
  std::int64_t now = 0;                            // seconds since 1970
  std::vector<std::unique_ptr<Namespace>> spaces;  // those made so far, which live as long as the rendering
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

inline constexpr std::size_t kMostParameters = 5;

struct Call {
  Environment& environment;
  Heap* heap;            // the environment's
  const Value& subject;  // what is filtered, tested, or whose method it is
  const Arguments& all;
  // The arguments by the order of Builtin::parameters; null where one is not given. Not of variadic ones.
  std::array<const Value*, kMostParameters> args{};
};

struct Builtin {
  std::string_view name;
  Result<Value> (*run)(Call& call);
  std::array<std::string_view, kMostParameters> parameters{};
  std::size_t required = 0;
  bool variadic = false;  // it reads Call::all itself
};

// Null where there is none. Filters and tests have the subject before their arguments; functions have none.
const Builtin* FindFilter(std::string_view name);
const Builtin* FindTest(std::string_view name);
const Builtin* FindFunction(std::string_view name);
const Builtin* FindMethod(Value::Kind of, std::string_view name);

// The tables, each in a file of its own.
std::span<const Builtin> TextFilters();
std::span<const Builtin> ListFilters();
std::span<const Builtin> TextMethods();
std::span<const Builtin> ListMethods();
std::span<const Builtin> DictMethods();
std::span<const Builtin> Tests();
std::span<const Builtin> Functions();

// Whether any kind of value has a method of that name here.
bool IsMethod(std::string_view name);
// Whether Python's has one: then it is asked for before a mapping's key is.
bool IsPythonMethod(Value::Kind of, std::string_view name);

// Binds the arguments and runs. Fails, naming the builtin, on arguments that it does not take or that lack.
Result<Value> Run(const Builtin& builtin, Environment& environment, const Value& subject, const Arguments& arguments);

// For them: an argument as a whole number, a text or a truth, or what stands for it where it is not given.
Result<std::int64_t> WholeArgument(const Call& call, std::size_t index, std::int64_t otherwise);
Result<std::string_view> TextArgument(const Call& call, std::size_t index, std::string_view otherwise);
bool TrueArgument(const Call& call, std::size_t index, bool otherwise);

// value[key], then value.key, as Jinja's environment.getitem; undefined where there is neither.
Result<Value> GetItem(const Value& value, const Value& key, Heap* heap);
// value.name, then value["name"].
Result<Value> GetAttribute(const Value& value, std::string_view name, Heap* heap);
// Error of asking something of an undefined value.
Error UndefinedError(const Value& value);

}  // namespace mla::chat

#endif  // MLA_CHAT_BUILTINS_H_
