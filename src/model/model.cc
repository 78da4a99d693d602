#include "model/model.h"

#include <array>
#include <filesystem>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "contract/tensors.h"

namespace mla {

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

const ModelInfo& Model::info() const { return impl_->info; }
std::uint64_t Model::fingerprint() const { return impl_->fingerprint; }
std::int64_t Model::weight_bytes() const { return impl_->weights.bytes(); }

Result<Model> Model::Load(const std::string& dir, const LoadOptions& options, Executor& executor) {
  MLA_ASSIGN_OR_RETURN(const model::Opened opened, model::Open(dir));
  return model::LoadOpened(opened, options, executor);
}

namespace model {
namespace {

SamplingParams DefaultSampling(const contract::GenerationConfig& g) {
  SamplingParams s;
  // Hugging Face applies a published penalty to greedy search too.
  s.repetition_penalty = g.repetition_penalty.value_or(1.0);
  if (!g.do_sample) return s;
  s.temperature = g.temperature.value_or(1.0);
  s.top_k = g.top_k.value_or(0);
  s.top_p = g.top_p.value_or(1.0);
  s.min_p = g.min_p.value_or(0.0);
  return s;
}

ModelInfo InfoOf(const contract::ModelConfig& c, const contract::GenerationConfig& g) {
  ModelInfo info;
  info.model_type = c.model_type;
  info.dims = weights::DimsOf(c);
  info.vocab_size = c.vocab_size;
  info.hidden_size = c.hidden_size;
  info.layers = c.num_hidden_layers;
  info.max_position_embeddings = c.max_position_embeddings;
  const auto bos = g.bos_token_id ? g.bos_token_id : c.bos_token_id;
  if (bos) info.bos_id = static_cast<std::int32_t>(*bos);
  for (const std::int64_t id : g.eos_token_ids.empty() ? c.eos_token_ids : g.eos_token_ids) {
    info.eos_ids.push_back(static_cast<std::int32_t>(id));
  }
  info.sampling = DefaultSampling(g);
  return info;
}

}  // namespace

Result<Opened> Open(const std::string& dir) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(dir, ignored)) {
    return Error{fmt::format("{}: expected a folder with config.json and safetensors files", dir)};
  }
  MLA_ASSIGN_OR_RETURN(const contract::ConfigFile file, contract::ReadConfigFile(dir));
  MLA_ASSIGN_OR_RETURN(contract::ModelConfig config, contract::ParseConfig(file.text, file.where));
  MLA_ASSIGN_OR_RETURN(contract::GenerationConfig generation, contract::LoadGenerationConfig(dir, config.vocab_size));
  MLA_ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::Open(dir));
  MLA_RETURN_IF_ERROR(contract::RequireTensors(config, checkpoint));
  ModelInfo info = InfoOf(config, generation);
  return Opened{std::move(config), std::move(checkpoint), std::move(info), HashOf(std::as_bytes(std::span(file.text)))};
}

std::int64_t PlannedWeightBytes(const Opened& opened, WeightDType keep) {
  return weights::PlannedBytes(opened.config, keep, &opened.checkpoint);
}

Result<Model> LoadOpened(const Opened& opened, const LoadOptions& options, Executor& executor) {
  const std::int64_t planned = PlannedWeightBytes(opened, options.weights);
  if (options.memory > 0 && planned > options.memory) {
    return Error{fmt::format("weights: {} bytes are needed, and {} are allowed", planned, options.memory)};
  }
  auto impl = std::make_unique<Model::Impl>();
  impl->config = opened.config;
  impl->info = opened.info;
  MLA_ASSIGN_OR_RETURN(impl->weights, weights::Load(opened.config, opened.checkpoint, options.weights, executor,
                                                    options.progress, options.huge_pages));
  impl->kept = options.weights;
  const std::array<std::uint64_t, 2> parts = {opened.config_hash, impl->weights.fingerprint};
  impl->fingerprint = HashOf(std::as_bytes(std::span(parts)));
  return Model(std::move(impl));
}

}  // namespace model
}  // namespace mla
