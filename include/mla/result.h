// Errors that the outside world can cause, as values.
//
// A function that reads a file, a flag or a request returns Result<T>: a value, or an Error whose message says where it
// happened, what was expected and what was found, in one line. Broken invariants of our own are checks (base/check.h),
// never errors, and can't be reached from input.
#ifndef MLA_RESULT_H_
#define MLA_RESULT_H_

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace mla {

// One line for a person: where, what was expected, what was found.
struct Error {
  std::string message;
};

// A T or an Error. Reading value() of an error, or error() of a value, throws std::bad_variant_access: a bug of the
// caller, which must test ok() first.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return error_.value(); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace mla

#define MLA_RESULT_JOIN_(a, b) a##b
#define MLA_RESULT_NAME_(a, b) MLA_RESULT_JOIN_(a, b)

// MLA_ASSIGN_OR_RETURN(auto x, F()): x = value of F(), or return its error from this function.
#define MLA_ASSIGN_OR_RETURN(lhs, expr) MLA_ASSIGN_OR_RETURN_IMPL_(MLA_RESULT_NAME_(mla_result_, __LINE__), lhs, expr)
#define MLA_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                               \
  if (!tmp.ok()) return tmp.error();               \
  lhs = std::move(tmp).value()

// MLA_RETURN_IF_ERROR(F()): return F()'s error, if it has one, from this function.
#define MLA_RETURN_IF_ERROR(expr)                     \
  do {                                                \
    if (auto mla_status = (expr); !mla_status.ok()) { \
      return mla_status.error();                      \
    }                                                 \
  } while (false)

#endif  // MLA_RESULT_H_
