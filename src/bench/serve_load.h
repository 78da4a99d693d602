// What clients ask of an engine over time: drawn from distributions, or read from a trace.
#ifndef MLA_BENCH_SERVE_LOAD_H_
#define MLA_BENCH_SERVE_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "mla/result.h"

namespace mla::bench {

enum class Arrivals : std::uint8_t { kPoisson, kEven };
enum class Lengths : std::uint8_t { kUniform, kLogUniform };  // the second: each doubling is as likely as the next

struct LengthRange {
  std::int64_t low = 1;
  std::int64_t high = 1;  // itself included
};

// So many lengths. The same on every machine for the same arguments.
std::vector<std::int64_t> DrawLengths(std::int64_t count, const LengthRange& range, Lengths lengths,
                                      std::uint64_t seed);

struct LoadOptions {
  std::int64_t requests = 64;
  double rate = 0;  // requests a second; 0: all at once
  Arrivals arrivals = Arrivals::kPoisson;
  LengthRange prompt = {64, 64};
  LengthRange output = {64, 64};
  Lengths lengths = Lengths::kUniform;
  // A share of the requests begin with one of `prefixes` prefixes of so many tokens, before a prompt as above.
  std::int64_t prefix_tokens = 0;
  double prefix_share = 1;
  std::int64_t prefixes = 1;
  double cancelled = 0;  // share that is cancelled when a part of its output, drawn evenly, has come (or all of it)
  std::uint64_t seed = 0;
};

struct LoadRequest {
  double arrival = 0;              // seconds after the beginning
  std::int64_t prefix = -1;        // which; -1: none
  std::int64_t prefix_tokens = 0;  // of the prompt's beginning
  std::int64_t prompt_tokens = 1;  // in all
  std::int64_t output_tokens = 1;
  std::int64_t cancel_after = -1;  // tokens of output; -1: never
};

// By arrival. The same on every machine for the same options.
std::vector<LoadRequest> MakeLoad(const LoadOptions& options);

// JSON lines: {"arrival": seconds, "prompt_tokens": n, "output_tokens": m} with, where requests share a prefix,
// "prefix": a name and "prefix_tokens": k <= n. Sorted by arrival. `text` is the file's, `where` its name. Fails,
// naming the line, on what is none of this, and where there is no line.
Result<std::vector<LoadRequest>> ParseTrace(const std::string& text, const std::string& where);

// The ids of request `index`'s prompt, below `vocab`: those of a prefix depend on it and the place alone, the others on
// the request too. Random, so that what repeats is what the load says.
std::vector<std::int32_t> PromptIds(const LoadRequest& request, std::int64_t index, std::int64_t vocab,
                                    std::uint64_t seed);

}  // namespace mla::bench

#endif  // MLA_BENCH_SERVE_LOAD_H_
