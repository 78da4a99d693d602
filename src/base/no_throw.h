// Turns the standard library's "no memory" exceptions into errors, where our API begins.
#ifndef MLA_BASE_NO_THROW_H_
#define MLA_BASE_NO_THROW_H_

#include <new>
#include <stdexcept>
#include <string>

#include "mla/result.h"

namespace mla {

// f(), which returns a Result or Status; an error that names `what` where memory ran out.
template <class F>
auto WithoutThrow(const char* what, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return Error{std::string(what) + ": out of memory"};
  } catch (const std::length_error&) {
    return Error{std::string(what) + ": more memory than can be addressed"};
  }
}

}  // namespace mla

#endif  // MLA_BASE_NO_THROW_H_
