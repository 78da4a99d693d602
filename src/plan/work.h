// What a step computes and moves, part by part, in both forms; how long that takes on a machine of given rates; and
// where the forms cross.
#ifndef MLA_PLAN_WORK_H_
#define MLA_PLAN_WORK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mla/attention.h"
#include "mla/result.h"
#include "plan/exact.h"
#include "plan/ranks.h"
#include "plan/rows.h"
#include "plan/shape.h"

namespace mla::plan {

// A measured product of weights that come from memory: how many multiply-adds each byte of them met, and what the
// machine then did in a second.
struct ProductRate {
  double intensity = 0;      // multiply-adds a byte
  double multiply_adds = 0;  // a second
};

// What a machine (or one rank's share of it) does in a second. All positive but link_bytes, which may be 0: unknown.
struct Rates {
  std::string id = "flags";
  // Measured, by ascending intensity: between two points a power law, beyond the first the same bytes a second, beyond
  // the last the same multiply-adds. Where there are any, `products` and `read_bytes` don't price weights' products.
  std::vector<ProductRate> measured_products;
  // Measured seconds of latents' attention, kv_b's products included; they take the place of the next four rates.
  std::optional<FormTable> forms;
  double products = 0;    // multiply-adds of weights with rows
  double expand = 0;      // of latents to keys and values
  double absorb = 0;      // of queries and outputs through kv_b
  double mha = 0;         // of attention over keys and values by head
  double absorbed = 0;    // of attention over latents
  double read_bytes = 0;  // bytes of memory
  double link_bytes = 0;  // bytes that a rank sends
};

enum class RateKind : std::uint8_t { kProducts, kExpand, kAbsorb, kMha, kAbsorbed };
const char* RateKindName(RateKind kind);

// Names of parts that are priced apart: the router multiplies in fp32, logits are of last rows alone.
inline constexpr const char* kRouterPart = "router";
inline constexpr const char* kLogitsPart = "logits";

// One part of a step, all of its layers together. Bytes are those that must move at least: weights once, cache rows
// read once and written once. Keys and values that the MHA form expands stay in the processor's cache by pieces, and
// are not counted.
struct PartWork {
  std::string name;
  RateKind kind = RateKind::kProducts;
  std::int64_t layers = 0;
  std::int64_t multiply_adds = 0;
  std::int64_t weight_bytes = 0;
  std::int64_t cache_bytes = 0;
  // Of latents' attention: what a form table is asked for.
  struct Latent {
    MlaDims dims;
    Form form = Form::kAbsorbed;
    Step step;
  };
  std::optional<Latent> latent = {};

  std::int64_t bytes() const { return weight_bytes + cache_bytes; }
};

// How elements are kept, as far as bytes of a step go.
struct Kept {
  std::int64_t product_bytes = 2;  // of a parameter of most products
  std::int64_t wide_bytes = 2;     // of kv_b and of the logits' matrix, which fp8 leaves alone
  std::int64_t router_bytes = 4;
  RowFormat row;
  std::int64_t page_ranks = 1;  // ranks that share out the cache's pages (Ranks::dcp)
};

// Pairs of query and key: causal, T = rows new ones of S = keys; a window lets each query see so many keys at most, its
// own counted (0: all). T(S-T) + T(T+1)/2 without one. Precondition: 0 <= rows <= keys.
Exact Pairs(std::int64_t rows, std::int64_t keys, std::int64_t window);

// The parts of a step in that form; models without latents do the same in both. Biases count as one multiply-add each.
// Experts' weights are read as often as uniform routing expects: E (1 - (1 - k/E)^rows) of E. Fails where a number
// leaves 63 bits.
Result<std::vector<PartWork>> WorkOfStep(const Shape& shape, const Step& step, Form form, const Kept& kept);

// Seconds: each part at the slower of its multiply-adds' rate and its bytes', one part after another; or as measured. A
// form table times one sequence: several take so many times as long, though they share kv_b's bytes.
double SecondsOf(const std::vector<PartWork>& parts, const Rates& rates);
// Of what a rank sends; 0 where the link's rate is unknown.
double SecondsOf(const std::vector<Collective>& collectives, const Rates& rates);

// a = R(N+V) / (2R - N - V); empty where 2R <= N + V, when absorbing never loses.
std::optional<double> CrossingConstant(const MlaDims& dims);
// T* = a S / (S + a): where the forms' multiply-adds are equal without causality's discount.
double ClosedCrossing(double a, double keys);
// Fewest new tokens after `cached` ones for which expanding costs less than absorbing, counted exactly, or in
// seconds where rates are given; empty where that never comes. By bisection.
std::optional<std::int64_t> CausalCrossing(const MlaDims& dims, std::int64_t cached, const Rates* rates = nullptr);

// Noam Shazeer, "Fast Transformer Decoding" (arXiv 1911.02150), sections 2 and 3: memory accesses over arithmetic, up
// to constants, of a model of width d with h heads of d / h, for b sequences of n tokens.
double RatioOfTraining(double n, double d, double h, double b);     // 1/k + 1/(b n), k = d / h
double RatioOfDecodingMha(double n, double d, double b);            // n/d + 1/b
double RatioOfDecodingMqa(double n, double d, double h, double b);  // 1/d + n/(d h) + 1/b

}  // namespace mla::plan

#endif  // MLA_PLAN_WORK_H_
