// Checks of our own invariants. A failed check is a bug of ours, never reachable from a file, a flag or a request: it
// prints place, condition and both values, and aborts.
#ifndef MLA_BASE_CHECK_H_
#define MLA_BASE_CHECK_H_

#include <sstream>
#include <string>

namespace mla::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& detail);

template <class A, class B>
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* condition, const A& a, const B& b) {
  std::ostringstream out;
  out << a << " vs " << b;
  CheckFailed(file, line, condition, out.str());
}

}  // namespace mla::internal

#define MLA_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::mla::internal::CheckFailed(__FILE__, __LINE__, #condition, ""))
#define MLA_CHECK_OP_(a, b, op)                                                                                 \
  do {                                                                                                          \
    const auto& mla_a = (a);                                                                                    \
    const auto& mla_b = (b);                                                                                    \
    if (!(mla_a op mla_b)) ::mla::internal::CheckOpFailed(__FILE__, __LINE__, #a " " #op " " #b, mla_a, mla_b); \
  } while (false)
#define MLA_CHECK_EQ(a, b) MLA_CHECK_OP_(a, b, ==)
#define MLA_CHECK_LE(a, b) MLA_CHECK_OP_(a, b, <=)
#define MLA_CHECK_LT(a, b) MLA_CHECK_OP_(a, b, <)
#define MLA_CHECK_GE(a, b) MLA_CHECK_OP_(a, b, >=)

// Checks on hot paths: on in dev, sanitizer and fuzz builds.
#ifdef MLA_ENABLE_DCHECKS
#define MLA_DCHECK(condition) MLA_CHECK(condition)
#define MLA_DCHECK_LT(a, b) MLA_CHECK_LT(a, b)
#define MLA_DCHECK_EQ(a, b) MLA_CHECK_EQ(a, b)
#else
#define MLA_DCHECK(condition) static_cast<void>(0)
#define MLA_DCHECK_LT(a, b) static_cast<void>(0)
#define MLA_DCHECK_EQ(a, b) static_cast<void>(0)
#endif

#endif  // MLA_BASE_CHECK_H_
