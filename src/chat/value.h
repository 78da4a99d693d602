// The values of a template: Python's, as far as JSON and templates make them. Immutable, but for namespaces.
#ifndef MLA_CHAT_VALUE_H_
#define MLA_CHAT_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/heap.h"
#include "chat/marked_text.h"
#include "mla/result.h"

namespace mla::chat {

struct Macro;      // chat/ast.h
struct Namespace;  // below
class Object;
class TextObject;
class ListObject;
class DictObject;
enum class ListFlavor : std::uint8_t;
class Value;
using Entry = std::pair<Value, Value>;

class Value {
 public:
  enum class Kind : std::uint8_t {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kList,
    kDict,
    kNamespace,
    kMacro,
    kFunction,  // one of the environment's
    kMethod,    // of a text, list or dict: it can be asked for, and only called where it is named
  };

  Value() = default;  // undefined
  static Value Undefined(Heap* heap, std::string_view name);
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(std::int64_t value);
  static Value Float(double value);
  // With a null heap the value counts nowhere, and may outlive every rendering: a template's constants.
  static Value Text(Heap* heap, MarkedText text);
  static Value List(Heap* heap, ListFlavor flavor, std::vector<Value> items);
  static Value Dict(Heap* heap, std::vector<Entry> entries);
  static Value Of(Namespace* space);
  static Value Of(const Macro* macro);
  static Value Function() { return Value(Kind::kFunction); }
  static Value Method() { return Value(Kind::kMethod); }

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  // As in Python, true and false are whole numbers too.
  bool is_whole() const { return is_int() || is_bool(); }
  bool is_number() const { return is_whole() || is_float(); }
  bool is_text() const { return kind_ == Kind::kText; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_namespace() const { return kind_ == Kind::kNamespace; }

  // Each of the kind that it names.
  std::int64_t integer() const { return content_.integer; }  // kBool: 0 or 1
  double number() const { return is_float() ? content_.number : static_cast<double>(content_.integer); }
  bool boolean() const { return content_.integer != 0; }
  const MarkedText& text() const;
  std::string_view bytes() const { return text().bytes; }
  const TextObject& text_object() const;
  const ListObject& list() const;
  const DictObject& dict() const;
  Namespace* space() const { return content_.space; }
  const Macro* macro() const { return content_.macro; }
  // Of an undefined value: what was asked for, or "".
  std::string_view undefined_name() const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer = 0;
    double number;
    Namespace* space;
    const Macro* macro;
  } content_;
  std::shared_ptr<const Object> object_;
};

class Object {
 public:
  Object(Heap* heap, std::size_t bytes);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 private:
  Heap* heap_;
  std::int64_t bytes_;
};

class TextObject : public Object {
 public:
  TextObject(Heap* heap, MarkedText text);
  const MarkedText text;
  const std::size_t characters;
  bool one_byte_each() const { return characters == text.bytes.size(); }
};

enum class ListFlavor : std::uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // of a dict: keys(), values(), items()
  kGenerator,  // what map, select and the like give: it can be gone through once, is always true, and has no length
};

class ListObject : public Object {
 public:
  ListObject(Heap* heap, ListFlavor list_flavor, std::vector<Value> list_items);
  const ListFlavor flavor;
  const std::vector<Value> items;
  const int nesting;          // levels of lists and dicts, this one counted
  mutable bool used = false;  // a generator that was gone through
};

class DictObject : public Object {
 public:
  DictObject(Heap* heap, std::vector<Entry> dict_entries);
  // In order of insertion; keys are texts, numbers, booleans or none, each once.
  const std::vector<Entry> entries;
  const int nesting;
  // The value of an equal key, or null. Linear; a caller spends steps for it.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

// The one thing that templates can change. The rendering owns it, so that a namespace may hold itself.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

// Lists and dicts inside each other, levels.
inline constexpr int kMaxNesting = 100;

// The value's kind for messages: "a text", "none", "a list".
std::string_view KindName(const Value& value);

bool IsTrue(const Value& value);
// Python's ==. Spends steps.
bool Equal(const Value& a, const Value& b, Heap* heap);
// Python's <, for numbers, texts and lists of such; fails on other pairs.
Result<bool> Less(const Value& a, const Value& b, Heap* heap);

// Python's str(): what {{ value }} prints. Numbers, true and none are untrusted; a text is itself. Fails on what has no
// text that a template could mean (a macro, a namespace, a generator).
Result<MarkedText> ToText(const Value& value, Heap* heap);
// Appends it, without a copy where it is a text.
Status AppendText(const Value& value, Heap* heap, MarkedTextBuilder* out);
// Python's repr() of a float.
std::string FloatText(double value);

// A list of what a loop goes through: a list's items, without a copy, a dict's keys, a text's characters; of undefined,
// none. Fails on what Python can't go through. A generator's items are there once.
Result<Value> Iterate(const Value& value, Heap* heap);

}  // namespace mla::chat

#endif  // MLA_CHAT_VALUE_H_
