// The oracle: the explicit (expanded) model in float64, plain loops, nothing shared with the production path but raw
// tensors and the parsed config. Slow and easy to check against the DeepSeek-V2 and -V3 papers, equation by equation.
#ifndef MLA_REFERENCE_REFERENCE_H_
#define MLA_REFERENCE_REFERENCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "mla/result.h"

namespace mla::reference {

class ReferenceModel {
 public:
  // Widens every tensor to float64. RequireTensors has passed on (config, checkpoint); both may go afterwards.
  // `context` is the length that will be served: longrope's factors follow from it (RopeSpec), and
  // nothing else does.
  // Fails where memory for 8 bytes a parameter can't be had.
  static Result<ReferenceModel> Load(const contract::ModelConfig& config, const io::Checkpoint& checkpoint,
                                     std::int64_t context);

  ReferenceModel(ReferenceModel&&) noexcept;
  ReferenceModel& operator=(ReferenceModel&&) noexcept;
  ~ReferenceModel();

  // One sequence's past: keys and values of every head (the explicit form), in float64.
  class State {
   public:
    State(State&&) noexcept;
    State& operator=(State&&) noexcept;
    ~State();
    std::int64_t length() const;

   private:
    friend class ReferenceModel;
    struct Impl;
    explicit State(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
  };
  State NewState() const;

  // Appends ids (each in [0, vocab_size), at least one) and returns their logits, [ids.size(), vocab_size] row-major.
  // Each row's value depends on the ids up to it alone, not on how the calls cut them. Where `hidden` is given, it
  // receives the rows after the final norm, [ids.size(), hidden_size]. `stop`, where given, is asked between layers;
  // true ends the call early with an empty result, and the state must be thrown away.
  std::vector<double> Append(State& state, std::span<const std::int32_t> ids, std::vector<double>* hidden = nullptr,
                             const std::function<bool()>& stop = {}) const;

  // The first MTP layer's logits (DeepSeek-V3 report, equations 21 to 23): row i, from the normed hidden state at i and
  // the embedding of token i + 1, predicts token i + 2. `hidden` is Append's over the whole of ids.
  // Returns [ids.size() - 1, vocab_size]. Precondition: num_nextn_predict_layers >= 1.
  std::vector<double> Draft(std::span<const std::int32_t> ids, std::span<const double> hidden) const;

  const contract::ModelConfig& config() const;

 private:
  struct Impl;
  explicit ReferenceModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace mla::reference

#endif  // MLA_REFERENCE_REFERENCE_H_
