// The explicit attention of one head over stored rows, in float64, with what fp32 may do to it in either form.
#ifndef MLA_VERIFY_ATTENTION_ORACLE_H_
#define MLA_VERIFY_ATTENTION_ORACLE_H_

#include <cstdint>
#include <vector>

#include "mla/attention.h"
#include "verify/bounds.h"

namespace mla::verify {

// A head over the rows of one sequence.
struct HeadProblem {
  MlaDims dims;
  double scale = 0;        // of scores
  const Matrix* kv_b;      // [H (N+V), R], as the file has it
  double weight_unit = 0;  // of the kept kv_b
  const Matrix* stored;    // [S, R + P]: rows as they are read back
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
  // Expands the head's keys and values: S R (N+V) multiply-adds.
  explicit AttentionOracle(const HeadProblem& problem);

  // softmax(scale q k) v over keys [first, first + count), count at least 1. q [N + P].
  HeadAnswer Answer(Form form, const double* q, std::int64_t first, std::int64_t count) const;

 private:
  // q w_kc [R] and the errors of its elements, and the squares of what rounded weights do to it.
  struct Absorbed {
    std::vector<double> q;
    std::vector<double> error;
    std::vector<double> absolute;
    std::vector<double> squares;
  };
  Absorbed Absorb(const double* q) const;
  double Score(const double* q, std::int64_t key) const;
  // How far a score before scaling may be off.
  double ScoreError(Form form, const double* q, const Absorbed& absorbed, std::int64_t key) const;
  // What the form adds to the error of values that are weighted by `p`, element v.
  double ValueError(Form form, const std::vector<double>& p, std::int64_t first, double relative,
                    const std::vector<double>& latent, const std::vector<double>& latent_absolute,
                    std::int64_t v) const;

  HeadProblem problem_;
  Matrix k_;        // [S, N]
  Matrix k_error_;  // [S, N]
  Matrix v_;        // [S, V]
  Matrix v_error_;  // [S, V]
};

}  // namespace mla::verify

#endif  // MLA_VERIFY_ATTENTION_ORACLE_H_
