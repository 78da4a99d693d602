// The explicit attention of one head over stored rows, in float64, with what fp32 may do to it in either form.
#ifndef MLA_VERIFY_ATTENTION_ORACLE_H_
#define MLA_VERIFY_ATTENTION_ORACLE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "mla/attention.h"
#include "verify/bounds.h"

namespace mla::verify {

// A head over the rows of one sequence.
struct HeadProblem {
  MlaDims dims;
  double scale = 0;      // of scores
  const Matrix* kv_b;    // [H (N+V), R], as the file has it
  ProductRule rule;      // of products with it
  const Matrix* stored;  // [S, R + P]: rows as they are read back
  std::int64_t head = 0;
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
  // Keys and values of the head, and how far a product in fp32 may be from them.
  struct Expanded {
    Matrix k;        // [S, N]
    Matrix k_error;  // [S, N]
    Matrix v;        // [S, V]
    Matrix v_error;  // [S, V]
  };
  // Weights of keys from `first` on, and what may be wrong with them.
  struct Weighted {
    std::int64_t first;
    std::vector<double> p;
    std::vector<double> ds;  // errors of the scores
    double relative;         // of exponentials and sums over keys
    double growth;           // what terms past the first make of ds
  };
  // The output latent [R], and the same with every term by its absolute value.
  struct OutputLatent {
    std::vector<double> value;
    std::vector<double> absolute;
  };
  // A number and how far fp32 may be from it.
  struct Bound {
    double value;
    double error;
  };
  Expanded Expand(const Matrix& rows) const;
  const Expanded& Of(Form form) const { return form == Form::kMha && rounded_ ? *rounded_ : exact_; }
  const double* ValueWeights(std::int64_t v) const;  // [R]
  Absorbed Absorb(const double* q) const;
  double Score(Form form, const double* q, std::int64_t key) const;
  // How far a score before scaling may be off.
  double ScoreError(Form form, const double* q, const Absorbed& absorbed, std::int64_t key) const;
  OutputLatent LatentOf(const Weighted& w) const;
  // The latent as the product with w_vc takes it, where that rounds.
  RoundedInput RoundedLatent(const Weighted& w, const OutputLatent& latent) const;
  // What the form adds to the error of a weighted value, element v.
  double ValueError(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const;
  Bound Output(Form form, const Weighted& w, const OutputLatent& latent, std::int64_t v) const;
  // The narrower of two bounds where the latent is rounded: that with each rounding followed, and that with none.
  Bound Narrower(const Bound& unrounded, const OutputLatent& latent, const RoundedInput& rounded, std::int64_t v) const;

  HeadProblem problem_;
  Expanded exact_;                   // from the rows as they are stored
  std::optional<Expanded> rounded_;  // from their latents rounded, where that is what the MHA form expands
};

}  // namespace mla::verify

#endif  // MLA_VERIFY_ATTENTION_ORACLE_H_
