// Python's operators over values.
#ifndef MLA_CHAT_OPERATORS_H_
#define MLA_CHAT_OPERATORS_H_

#include <vector>

#include "chat/ast.h"
#include "chat/value.h"
#include "mla/result.h"

namespace mla::chat {

// Fails where Python does (a text and a number, division by zero), on whole numbers beyond 64 bits, and on undefined
// values.
Result<Value> Apply(BinaryOp op, const Value& left, const Value& right, Heap* heap);
Result<bool> Holds(CompareOp op, const Value& left, const Value& right, Heap* heap);

// value[begin:end:step], of a text (by characters), list or tuple; bounds are whole numbers or none.
Result<Value> Slice(const Value& value, const Value& begin, const Value& end, const Value& step, Heap* heap);

// Adds to the entries of a mapping, or replaces the value of an equal key. Fails on keys that have no hash in Python.
Status AddEntry(Value key, Value value, Heap* heap, std::vector<Entry>* entries);

}  // namespace mla::chat

#endif  // MLA_CHAT_OPERATORS_H_
