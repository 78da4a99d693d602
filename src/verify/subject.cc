#include "verify/subject.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "attention/choose.h"
#include "attention/kernels.h"
#include "base/cpu_info.h"
#include "model/model.h"
#include "verify/bounds.h"

namespace mla::verify {

Result<layers::AttendFn> MakeAttention(const MlaAttention::Options& options) {
  MLA_ASSIGN_OR_RETURN(MlaAttention made, MlaAttention::Create(options));
  auto attention = std::make_shared<MlaAttention>(std::move(made));
  return layers::AttendFn(
      [attention](const CacheLayerView& cache, const KvBWeights& weights, std::span<const AttentionSequence> sequences,
                  const float* q, float* out, float* lse,
                  Executor& executor) { attention->Run(cache, weights, sequences, q, out, lse, executor); });
}

std::vector<KernelSet> KernelSets() {
  std::vector<KernelSet> sets;
  for (const attention::KernelSet& set : attention::MachineKernels(DetectCpu())) {
    sets.push_back({IsaName(set.isa), set.ops, set.attention->bf16 != nullptr});
  }
  std::reverse(sets.begin(), sets.end());  // slowest first, as reports list them
  return sets;
}

Subject::Subject(const contract::ModelConfig& c, const io::Checkpoint& source, const Model& m, Executor& e)
    : config(c),
      checkpoint(source),
      model(m),
      weights(&m.impl().weights),
      executor(e),
      attention(MakeAttention),
      kernel_sets(KernelSets()) {}

Subject::Subject(const Subject& other, const contract::ModelConfig& c)
    : config(c),
      checkpoint(other.checkpoint),
      model(other.model),
      weights(other.weights),
      weight_dtype(other.weight_dtype),
      kv_dtype(other.kv_dtype),
      kernels(other.kernels),
      executor(other.executor),
      parts(other.parts),
      attention(other.attention),
      kernel_sets(other.kernel_sets) {}

double WeightUnit(const Subject& subject, const std::string& name) {
  const io::Tensor* tensor = subject.checkpoint.Find(name + ".weight");
  MLA_CHECK(tensor != nullptr);
  // A product of fp8 and its scale is rounded to fp32 first.
  const double widened = tensor->dtype == DType::kF8E4M3 ? kU : 0;
  if (subject.weight_dtype == WeightDType::kF32) return widened;
  return tensor->dtype == DType::kBF16 ? 0 : kUBf16 + widened;
}

namespace {

Result<attention::KernelSet> Chosen(const Subject& subject) {
  const CpuInfo cpu = DetectCpu();
  if (const Result<Isa> known = SelectIsa(cpu, subject.kernels); !known.ok()) return known.error();
  MLA_ASSIGN_OR_RETURN(const attention::KernelChoice choice,
                       attention::ChooseKernels(attention::MachineKernels(cpu), subject.kernels));
  return choice.kernels;
}

}  // namespace

Result<const ops::OpKernels*> ChosenOps(const Subject& subject) {
  MLA_ASSIGN_OR_RETURN(const attention::KernelSet kernels, Chosen(subject));
  return kernels.ops;
}

Result<bool> Bf16Inputs(const Subject& subject) {
  if (subject.weight_dtype == WeightDType::kF32) return false;
  MLA_ASSIGN_OR_RETURN(const ops::OpKernels* kernels, ChosenOps(subject));
  return kernels->bf16_inputs;
}

Result<bool> Bf16Attention(const Subject& subject) {
  if (subject.kv_dtype != DType::kBF16) return false;
  MLA_ASSIGN_OR_RETURN(const attention::KernelSet kernels, Chosen(subject));
  return kernels.attention->bf16 != nullptr;
}

MlaAttention::Options AttentionOptions(const Subject& subject, std::int64_t rows, std::int64_t keys) {
  layers::StepLimits limits;
  limits.max_rows = rows;
  limits.max_keys = keys;
  limits.workers = subject.executor.workers();
  return layers::AttentionOptions(subject.config, limits, subject.kernels);
}

}  // namespace mla::verify
