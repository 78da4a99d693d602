// Python's repr(), which is what printing a list or a mapping shows.
#ifndef MLA_CHAT_REPR_H_
#define MLA_CHAT_REPR_H_

#include "chat/value.h"

namespace mla::chat {

// All of it untrusted. Fails on what has no text that a template could mean: a macro, a namespace, a view.
Status AppendRepr(const Value& value, Heap* heap, MarkedTextBuilder* out);

}  // namespace mla::chat

#endif  // MLA_CHAT_REPR_H_
