#include "bench/serve_load.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bench/random_fill.h"
#include "io/json.h"

namespace mla::bench {
namespace {

// The standard library's distributions differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t key) : key_(key) {}
  std::uint64_t Next() { return RandomBits(key_, counter_++); }
  // In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  // In [0, n); for the lengths here the bias of the remainder is below 2^-32.
  std::int64_t Below(std::int64_t n) { return static_cast<std::int64_t>(Next() % static_cast<std::uint64_t>(n)); }

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

std::int64_t Draw(const LengthRange& range, Lengths lengths, Random* random) {
  if (lengths == Lengths::kUniform) return range.low + random->Below(range.high - range.low + 1);
  const auto low = static_cast<double>(range.low);
  const double ratio = static_cast<double>(range.high + 1) / low;
  return std::clamp(static_cast<std::int64_t>(low * std::pow(ratio, random->Unit())), range.low, range.high);
}

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;

Result<std::int64_t> Whole(const io::JsonValue& line, std::string_view key, std::int64_t low,
                           const std::string& where) {
  const io::JsonValue* value = line.Find(key);
  if (value != nullptr && value->is_int() && value->integer() >= low && value->integer() <= kMostTokens) {
    return value->integer();
  }
  return Error{fmt::format("{}: {}: expected a whole number from {} to {}, found {}", where, key, low, kMostTokens,
                           value == nullptr ? "none" : value->Describe())};
}

Result<LoadRequest> ParseLine(std::string_view text, const std::string& where,
                              std::map<std::string, std::int64_t>* prefixes) {
  MLA_ASSIGN_OR_RETURN(const io::JsonValue line, io::ParseJson(text, where));
  if (!line.is_object()) return Error{fmt::format("{}: expected an object, found {}", where, line.Describe())};
  LoadRequest request;
  const io::JsonValue* arrival = line.Find("arrival");
  if (arrival == nullptr || !arrival->is_number() || arrival->number() < 0 || arrival->number() > 1e9) {
    return Error{fmt::format("{}: arrival: expected seconds from 0 to 1e9, found {}", where,
                             arrival == nullptr ? "none" : arrival->Describe())};
  }
  request.arrival = arrival->number();
  MLA_ASSIGN_OR_RETURN(request.prompt_tokens, Whole(line, "prompt_tokens", 1, where));
  MLA_ASSIGN_OR_RETURN(request.output_tokens, Whole(line, "output_tokens", 1, where));
  const io::JsonValue* prefix = line.Find("prefix");
  if (prefix == nullptr) return request;
  if (!prefix->is_string()) {
    return Error{fmt::format("{}: prefix: expected a name, found {}", where, prefix->Describe())};
  }
  MLA_ASSIGN_OR_RETURN(request.prefix_tokens, Whole(line, "prefix_tokens", 1, where));
  if (request.prefix_tokens > request.prompt_tokens) {
    return Error{fmt::format("{}: prefix_tokens: expected at most the {} of prompt_tokens, found {}", where,
                             request.prompt_tokens, request.prefix_tokens)};
  }
  request.prefix =
      prefixes->emplace(std::string(prefix->string()), static_cast<std::int64_t>(prefixes->size())).first->second;
  return request;
}

void Append(std::int64_t count, std::int64_t vocab, Random random, std::vector<std::int32_t>* ids) {
  for (std::int64_t i = 0; i < count; ++i) ids->push_back(static_cast<std::int32_t>(random.Below(vocab)));
}

}  // namespace

std::vector<std::int64_t> DrawLengths(std::int64_t count, const LengthRange& range, Lengths lengths,
                                      std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> drawn(static_cast<std::size_t>(count));
  for (std::int64_t& length : drawn) length = Draw(range, lengths, &random);
  return drawn;
}

std::vector<LoadRequest> MakeLoad(const LoadOptions& o) {
  Random random(o.seed);
  std::vector<LoadRequest> load(static_cast<std::size_t>(o.requests));
  double time = 0;
  for (LoadRequest& request : load) {
    request.arrival = time;
    // Gaps of a Poisson process are exponential: -ln(1 - u) / rate.
    const double gap = o.arrivals == Arrivals::kPoisson ? -std::log1p(-random.Unit()) : 1;
    if (o.rate > 0) time += gap / o.rate;
    request.prompt_tokens = Draw(o.prompt, o.lengths, &random);
    request.output_tokens = Draw(o.output, o.lengths, &random);
    const double prefixed = random.Unit();
    const std::int64_t which = random.Below(o.prefixes);
    if (o.prefix_tokens > 0 && prefixed < o.prefix_share) {
      request.prefix = which;
      request.prefix_tokens = o.prefix_tokens;
      request.prompt_tokens += o.prefix_tokens;
    }
    const double cancelled = random.Unit();
    const std::int64_t after = 1 + random.Below(request.output_tokens);
    if (cancelled < o.cancelled) request.cancel_after = after;
  }
  return load;
}

Result<std::vector<LoadRequest>> ParseTrace(const std::string& text, const std::string& where) {
  std::vector<LoadRequest> load;
  std::map<std::string, std::int64_t> prefixes;
  std::int64_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    MLA_ASSIGN_OR_RETURN(LoadRequest request, ParseLine(line, fmt::format("{}: line {}", where, number), &prefixes));
    load.push_back(request);
  }
  if (load.empty()) return Error{fmt::format("{}: expected a line a request, found none", where)};
  std::stable_sort(load.begin(), load.end(), [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
  return load;
}

std::vector<std::int32_t> PromptIds(const LoadRequest& request, std::int64_t index, std::int64_t vocab,
                                    std::uint64_t seed) {
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(request.prompt_tokens));
  // Streams of their own: seeds far apart, by the generator's own mixing.
  const auto stream = [seed](std::uint64_t kind, std::int64_t which) {
    Random mix(seed ^ (kind << 62) ^ static_cast<std::uint64_t>(which));
    return Random(mix.Next());
  };
  Append(request.prefix_tokens, vocab, stream(1, request.prefix), &ids);
  Append(request.prompt_tokens - request.prefix_tokens, vocab, stream(2, index), &ids);
  return ids;
}

}  // namespace mla::bench
