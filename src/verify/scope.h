// What the budget allows to look at.
#ifndef MLA_VERIFY_SCOPE_H_
#define MLA_VERIFY_SCOPE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "verify/subject.h"

namespace mla::verify {

// Time that is left, and whether somebody wants an end.
class Budget {
 public:
  Budget(double seconds, std::function<bool()> cancelled)
      : begin_(Clock::now()), seconds_(seconds), cancelled_(std::move(cancelled)) {}

  double seconds() const { return seconds_; }
  double Spent() const { return Since(begin_); }
  bool Cancelled() const { return cancelled_ && cancelled_(); }
  // Whether so large a part of the whole is spent, or somebody wants an end.
  bool Past(double part) const { return Cancelled() || Spent() > part * seconds_; }

 private:
  Clock::time_point begin_;
  double seconds_;
  std::function<bool()> cancelled_;
};

struct Scope {
  std::vector<std::int32_t> ids;     // of the passes
  std::vector<std::int64_t> rows;    // of each pass, compared with the oracle
  std::vector<std::int64_t> heads;   // compared with the oracle
  std::vector<std::int64_t> layers;  // in the order in which they are taken, as far as time goes
  std::int64_t end_to_end = 0;       // tokens of the float64 runs; 0: the budget has no room for them
  double rate = 0;                   // multiply-adds a second of the oracle, all workers together
};

// Past a page of 64 and into a third chunk.
inline constexpr std::int64_t kMostTokens = 96;

// `ids`: of a text, or none: random ones are taken. At most so many tokens, and no more than the model has positions.
Scope ChooseScope(const Subject& subject, std::vector<std::int32_t> ids, const Budget& budget,
                  std::int64_t most_tokens = kMostTokens);

// "24 of 96 rows, 8 of 128 heads": what a scope leaves out of its passes; empty where nothing.
std::string Sampled(const Subject& subject, const Scope& scope, std::int64_t layers_done);

// Up to `count` of [0, n): the ends, and evenly between.
std::vector<std::int64_t> Spread(std::int64_t n, std::int64_t count);

}  // namespace mla::verify

#endif  // MLA_VERIFY_SCOPE_H_
