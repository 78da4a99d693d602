// What is put to the proof: production's path as its parts, any of which may be replaced, and the checkpoint that the
// oracle reads for itself.
#ifndef MLA_VERIFY_SUBJECT_H_
#define MLA_VERIFY_SUBJECT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "contract/config.h"
#include "io/checkpoint.h"
#include "layers/parts.h"
#include "layers/transformer.h"
#include "mla/attention.h"
#include "mla/engine.h"
#include "mla/executor.h"
#include "mla/model.h"
#include "mla/result.h"
#include "weights/weights.h"

namespace mla::verify {

using AttentionFactory = std::function<Result<layers::AttendFn>(const MlaAttention::Options& options)>;
// MlaAttention::Create and its Run.
Result<layers::AttendFn> MakeAttention(const MlaAttention::Options& options);

// The kernels of one instruction set.
struct KernelSet {
  std::string name;
  const ops::OpKernels* ops = nullptr;
  bool bf16_attention = false;  // over caches in bf16
};
// Those that this machine and this build have.
std::vector<KernelSet> KernelSets();

// Where a test breaks what engines do with rows, to see it caught; nothing otherwise.
struct EngineFaults {
  std::function<void(Engine* engine)> before_step;
  std::function<void(const std::string& path)> on_file;  // that a cache was saved to, before it is read
};

// Everything referred to outlives it.
struct Subject {
  // Production's own parts.
  Subject(const contract::ModelConfig& c, const io::Checkpoint& source, const Model& m, Executor& e);
  // The same under another config.
  Subject(const Subject& other, const contract::ModelConfig& c);

  const contract::ModelConfig& config;
  const io::Checkpoint& checkpoint;      // the oracle's source
  const Model& model;                    // what the engine runs
  const weights::ModelWeights* weights;  // the model's
  WeightDType weight_dtype = WeightDType::kBF16;
  DType kv_dtype = DType::kBF16;
  std::string kernels;
  Executor& executor;
  layers::Parts parts = {};  // kernels, rope and route; `attend` and `observe` are the proofs' own
  AttentionFactory attention;
  EngineFaults faults = {};
  std::vector<KernelSet> kernel_sets;
};

// How far the kept weights of a product may be from the file's, as a part of themselves. `name` without ".weight".
double WeightUnit(const Subject& subject, const std::string& name);

// The products that the subject's kernels name: those of `kernels`, or the fastest that pass their self-test, which
// fails where none does. A table in `parts` is taken to treat its inputs as these do.
Result<const ops::OpKernels*> ChosenOps(const Subject& subject);
// Whether products round their inputs to bf16: the weights are kept so, and the kernels do.
Result<bool> Bf16Inputs(const Subject& subject);
// Whether attention is in products of bf16: the cache is kept so, and the subject's kernels have them.
Result<bool> Bf16Attention(const Subject& subject);

// Options of the subject's attention.
MlaAttention::Options AttentionOptions(const Subject& subject, std::int64_t rows, std::int64_t keys);

}  // namespace mla::verify

#endif  // MLA_VERIFY_SUBJECT_H_
