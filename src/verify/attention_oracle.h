// The explicit attention of one head over stored rows, in float64, with what fp32 may do to it in either form.
#ifndef MLA_VERIFY_ATTENTION_ORACLE_H_
#define MLA_VERIFY_ATTENTION_ORACLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "mla/attention.h"
#include "verify/bounds.h"
#include "verify/key_weights.h"

namespace mla::verify {

// A head over the rows of one sequence.
struct HeadProblem {
  MlaDims dims;
  double scale = 0;      // of scores
  const Matrix* kv_b;    // [H (N+V), R], as the file has it
  ProductRule rule;      // of products with it
  const Matrix* stored;  // [S, R + P]: rows as they are read back
  std::int64_t head = 0;
  // Queries, expanded keys and values, and weights of keys are rounded to bf16; the rows are in bf16 then.
  bool bf16_attention = false;
};

struct HeadAnswer {
  std::vector<double> out;        // [V]
  std::vector<double> out_error;  // [V]
  double lse = 0;
  double lse_error = 0;
};

class AttentionOracle {
 public:
  // Expands the head's keys and values: S R (N+V) multiply-adds; twice where products round the latents.
  explicit AttentionOracle(const HeadProblem& problem);

  // softmax(scale q k) v over keys [first, first + count), count at least 1. query [N + P].
  HeadAnswer Answer(Form form, const double* query, std::int64_t first, std::int64_t count) const;

 private:
  // q w_kc [R] and the errors of its elements, and the squares of what rounded weights do to it.
  struct Absorbed {
    std::vector<double> q;
    std::vector<double> error;
    std::vector<double> absolute;
    std::vector<double> squares;
  };
  // A query as scores take it.
  struct Query {
    std::vector<double> q;  // [N + P]
    Absorbed absorbed;      // of the absorbed form
    RoundedInput latent;    // q~ rounded, where attention is in bf16
  };
  // Keys and values of the head, and how far a product in fp32 may be from them.
  struct Expanded {
    Matrix k;        // [S, N]
    Matrix k_error;  // [S, N]
    Matrix v;        // [S, V]
    Matrix v_error;  // [S, V]
    // Where they are rounded: how far, where that is not known; else 0, and their errors are 0 too.
    Matrix k_rounding;  // [S, N]
    Matrix v_rounding;  // [S, V]
  };
  // Keys from `first` on, weighed.
  struct Weighted {
    std::int64_t first;
    KeyWeights keys;
  };
  // The output latent [R], and the same with every term by its absolute value.
  struct OutputLatent {
    std::vector<double> value;
    std::vector<double> absolute;
  };
  Expanded Expand(const Matrix& rows) const;
  const Expanded& Of(Form form) const { return form == Form::kMha && rounded_ ? *rounded_ : exact_; }
  const double* ValueWeights(std::int64_t v) const;  // [R]
  Absorbed Absorb(const double* q) const;
  Query QueryOf(Form form, const double* query) const;
  // Scores before scaling.
  Bound Score(Form form, const Query& query, std::int64_t key) const;
  Bound MhaScore(const Query& query, std::int64_t key) const;
  Bound RoundedScore(const Query& query, std::int64_t key) const;
  Bound AbsorbedScore(const Query& query, std::int64_t key) const;
  OutputLatent LatentOf(const Weighted& w) const;
  // The latent as the product with w_vc takes it, where that rounds.
  RoundedInput RoundedLatent(const Weighted& w, const OutputLatent& latent) const;
  // What the form adds to the error of a weighted value, element v.
  double ValueError(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const;
  Bound Output(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const;
  // The narrower of two bounds where the latent is rounded: that with each rounding followed, and that with none.
  Bound Narrower(const Bound& unrounded, const OutputLatent& latent, const RoundedInput& rounded, std::int64_t v) const;

  HeadProblem problem_;
  Expanded exact_;  // from the rows as they are stored
  // What the MHA form takes where it is something else: from their latents rounded, or rounded after.
  std::optional<Expanded> rounded_;
};

}  // namespace mla::verify

#endif  // MLA_VERIFY_ATTENTION_ORACLE_H_
