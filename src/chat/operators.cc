#include "chat/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "chat/builtins.h"

namespace mla::chat {
namespace {

const char* Sign(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "+";
    case BinaryOp::kSubtract: return "-";
    case BinaryOp::kMultiply: return "*";
    case BinaryOp::kDivide: return "/";
    case BinaryOp::kFloorDivide: return "//";
    case BinaryOp::kModulo: return "%";
    case BinaryOp::kPower: return "**";
  }
  return "?";
}

Error TooLarge() { return Error{"a whole number of more than 64 bits"}; }

Result<Value> WholePower(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Error{"a negative power of zero"};
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  std::int64_t result = 1;
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  for (; exponent > 0; --exponent) {  // at most 63 rounds: then it is too large
    if (__builtin_mul_overflow(result, base, &result)) return TooLarge();
  }
  return Value::Int(result);
}

Result<Value> ApplyWhole(BinaryOp op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case BinaryOp::kSubtract: overflow = __builtin_sub_overflow(a, b, &result); break;
    case BinaryOp::kMultiply: overflow = __builtin_mul_overflow(a, b, &result); break;
    case BinaryOp::kPower: return WholePower(a, b);
    case BinaryOp::kDivide:
      if (b == 0) return Error{"division by zero"};
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
    case BinaryOp::kModulo: {
      if (b == 0) return Error{"division by zero"};
      if (b == -1) {  // the least number divided by it would overflow
        overflow = __builtin_sub_overflow(std::int64_t{0}, a, &result);
        if (op == BinaryOp::kModulo) return Value::Int(0);
        break;
      }
      // Both round towards minus infinity.
      const std::int64_t rest = a % b;
      const bool down = rest != 0 && (rest < 0) != (b < 0);
      return Value::Int(op == BinaryOp::kModulo ? (down ? rest + b : rest) : a / b - (down ? 1 : 0));
    }
  }
  if (overflow) return TooLarge();
  return Value::Int(result);
}

Result<Value> ApplyFloat(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return Value::Float(a + b);
    case BinaryOp::kSubtract: return Value::Float(a - b);
    case BinaryOp::kMultiply: return Value::Float(a * b);
    case BinaryOp::kPower: {
      const double power = std::pow(a, b);
      if (!std::isfinite(power) && std::isfinite(a) && std::isfinite(b)) return Error{"a power that is no number"};
      if (std::isnan(power)) return Error{"a power that is no number"};
      return Value::Float(power);
    }
    default: break;
  }
  if (b == 0) return Error{"division by zero"};
  if (op == BinaryOp::kDivide) return Value::Float(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == BinaryOp::kModulo) return Value::Float(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::Float(quotient - floor > 0.5 ? floor + 1 : floor);
}

bool IsSequence(const Value& value) { return value.is_list() && value.list().flavor <= ListFlavor::kTuple; }

Result<Value> Repeat(const Value& value, std::int64_t times, Heap* heap) {
  times = std::max<std::int64_t>(times, 0);
  const std::size_t size = value.is_text() ? value.bytes().size() : value.list().items.size() * sizeof(Value);
  if (size == 0) times = 0;
  if (size > 0 && (times > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(size) ||
                   !heap->Fits(static_cast<std::int64_t>(size) * times))) {
    return Error{"a repetition takes more memory than any conversation should"};
  }
  if (value.is_text()) {
    MarkedTextBuilder out(heap);
    for (std::int64_t i = 0; i < times && heap->ok(); ++i) out.Append(value.text());
    return Value::Text(heap, out.Take());
  }
  std::vector<Value> items;
  for (std::int64_t i = 0; i < times && heap->ok(); ++i) {
    heap->Spend(1 + static_cast<std::int64_t>(value.list().items.size()) / 4);
    items.insert(items.end(), value.list().items.begin(), value.list().items.end());
  }
  return Value::List(heap, value.list().flavor, std::move(items));
}

Result<Value> Sum(const Value& left, const Value& right, Heap* heap) {
  if (left.is_text()) {
    MarkedTextBuilder out(heap);
    out.Append(left.text());
    out.Append(right.text());
    return Value::Text(heap, out.Take());
  }
  std::vector<Value> items = left.list().items;
  items.insert(items.end(), right.list().items.begin(), right.list().items.end());
  return Value::List(heap, left.list().flavor, std::move(items));
}

Result<bool> Contains(const Value& container, const Value& item, Heap* heap) {
  if (container.is_text()) {
    if (!item.is_text()) return Error{fmt::format("{} can't be looked for in a text", KindName(item))};
    heap->SpendBytes(container.bytes().size());
    return container.bytes().find(item.bytes()) != std::string_view::npos;
  }
  if (container.is_dict()) {
    heap->Spend(static_cast<std::int64_t>(container.dict().entries.size()) / 4);
    if (item.is_list() || item.is_dict()) return Error{fmt::format("{} can't be a key", KindName(item))};
    return container.dict().Find(item) != nullptr;
  }
  if (!container.is_list() && !container.is_undefined())
    return Error{fmt::format("nothing can be looked for in {}", KindName(container))};
  MLA_ASSIGN_OR_RETURN(const Value items, Iterate(container, heap));
  for (const Value& other : items.list().items) {
    if (!heap->ok()) return heap->Fault();
    if (Equal(other, item, heap)) return true;
  }
  return false;
}

// Where a slice begins and ends, and how it goes: Python's slice.indices.
struct SliceRange {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};

Result<std::int64_t> SliceBound(const Value& bound, std::int64_t otherwise, std::int64_t length, bool backward) {
  if (bound.is_none()) return otherwise;
  if (!bound.is_whole()) return Error{fmt::format("a slice's bound is {}", KindName(bound))};
  std::int64_t at = bound.integer();
  if (at < 0) at = std::max<std::int64_t>(at, -length - 1) + length;
  return std::clamp<std::int64_t>(at, backward ? -1 : 0, backward ? length - 1 : length);
}

Result<SliceRange> RangeOf(const Value& begin, const Value& end, const Value& step, std::int64_t length) {
  SliceRange range;
  if (!step.is_none()) {
    if (!step.is_whole() || step.integer() == 0) return Error{"a slice's step is no whole number, or zero"};
    // A longer step than the sequence takes its first item alone, as this one does.
    range.step = std::clamp<std::int64_t>(step.integer(), -length - 1, length + 1);
  }
  const bool backward = range.step < 0;
  MLA_ASSIGN_OR_RETURN(range.begin, SliceBound(begin, backward ? length - 1 : 0, length, backward));
  MLA_ASSIGN_OR_RETURN(const std::int64_t last, SliceBound(end, backward ? -1 : length, length, backward));
  const std::int64_t span = backward ? range.begin - last : last - range.begin;
  const std::int64_t size = std::abs(range.step);
  range.count = span <= 0 ? 0 : (span + size - 1) / size;
  return range;
}

Value SliceText(const TextObject& object, const SliceRange& range, Heap* heap) {
  const MarkedText& text = object.text;
  MarkedTextBuilder out(heap);
  const auto byte_of = [&](std::int64_t character) {
    const auto index = static_cast<std::size_t>(character);
    if (object.one_byte_each()) return index;
    heap->SpendBytes(text.bytes.size());
    return ByteOfCharacter(text.bytes, index);
  };
  if (range.count > 0 && range.step == 1) {
    out.Append(text, byte_of(range.begin), byte_of(range.begin + range.count));
    return Value::Text(heap, out.Take());
  }
  for (std::int64_t i = 0; i < range.count && heap->ok(); ++i) {
    const std::size_t at = byte_of(range.begin + i * range.step);
    out.Append(text, at, at + CharacterBytes(text.bytes, at));
  }
  return Value::Text(heap, out.Take());
}

}  // namespace

Result<Value> Apply(BinaryOp op, const Value& left, const Value& right, Heap* heap) {
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  if (left.is_whole() && right.is_whole()) return ApplyWhole(op, left.integer(), right.integer());
  if (left.is_number() && right.is_number()) return ApplyFloat(op, left.number(), right.number());
  if (op == BinaryOp::kAdd) {
    if (left.is_text() && right.is_text()) return Sum(left, right, heap);
    if (IsSequence(left) && IsSequence(right) && left.list().flavor == right.list().flavor)
      return Sum(left, right, heap);
  }
  if (op == BinaryOp::kMultiply) {
    if ((left.is_text() || IsSequence(left)) && right.is_whole()) return Repeat(left, right.integer(), heap);
    if ((right.is_text() || IsSequence(right)) && left.is_whole()) return Repeat(right, left.integer(), heap);
  }
  if (op == BinaryOp::kModulo && left.is_text()) return Error{"texts with % placeholders are not supported"};
  return Error{fmt::format("{} {} {} is not possible", KindName(left), Sign(op), KindName(right))};
}

Result<bool> Holds(CompareOp op, const Value& left, const Value& right, Heap* heap) {
  switch (op) {
    case CompareOp::kEqual: return Equal(left, right, heap);
    case CompareOp::kNotEqual: return !Equal(left, right, heap);
    case CompareOp::kIn: return Contains(right, left, heap);
    case CompareOp::kNotIn: {
      MLA_ASSIGN_OR_RETURN(const bool contains, Contains(right, left, heap));
      return !contains;
    }
    default: break;
  }
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  if (op == CompareOp::kLess) return Less(left, right, heap);
  if (op == CompareOp::kGreater) return Less(right, left, heap);
  MLA_ASSIGN_OR_RETURN(const bool less,
                       op == CompareOp::kLessEqual ? Less(left, right, heap) : Less(right, left, heap));
  return less || Equal(left, right, heap);
}

Result<Value> Slice(const Value& value, const Value& begin, const Value& end, const Value& step, Heap* heap) {
  if (value.is_undefined()) return UndefinedError(value);
  const bool list = value.is_list() && value.list().flavor <= ListFlavor::kRange;
  if (!value.is_text() && !list) return Error{fmt::format("{} has no slices", KindName(value))};
  const auto length = static_cast<std::int64_t>(list ? value.list().items.size() : value.text_object().characters);
  MLA_ASSIGN_OR_RETURN(const SliceRange range, RangeOf(begin, end, step, length));
  if (!list) return SliceText(value.text_object(), range, heap);
  std::vector<Value> items;
  for (std::int64_t i = 0; i < range.count; ++i) {
    items.push_back(value.list().items[static_cast<std::size_t>(range.begin + i * range.step)]);
  }
  return Value::List(heap, value.list().flavor, std::move(items));
}

Status AddEntry(Value key, Value value, Heap* heap, std::vector<Entry>* entries) {
  if (!key.is_text() && !key.is_number() && !key.is_none())
    return Error{fmt::format("{} can't be a mapping's key", KindName(key))};
  heap->Spend(static_cast<std::int64_t>(entries->size()) / 2);
  for (Entry& entry : *entries) {
    if (!Equal(entry.first, key, heap)) continue;
    entry.second = std::move(value);
    return {};
  }
  entries->emplace_back(std::move(key), std::move(value));
  return {};
}

}  // namespace mla::chat
