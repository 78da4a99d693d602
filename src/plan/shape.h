// What a model's attention is, whatever its family: runs of like layers, and parameters by part. Of any Hugging Face
// config.json: those that this engine runs, those whose latents it knows, and those with heads of keys and values.
#ifndef MLA_PLAN_SHAPE_H_
#define MLA_PLAN_SHAPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/config.h"
#include "mla/attention.h"
#include "mla/result.h"

namespace mla::plan {

enum class AttentionKind : std::uint8_t {
  kLatent,  // a latent row for all heads (MLA)
  kHeads,   // keys and values of kv_heads heads (MHA, GQA, MQA)
  kLinear,  // a state of fixed size, whatever the context
};

// Layers whose attention is alike.
struct LayerGroup {
  AttentionKind kind = AttentionKind::kHeads;
  std::int64_t layers = 0;
  std::int64_t heads = 0;      // query heads; of kLinear, value heads
  std::int64_t kv_heads = 0;   // kHeads: heads of keys and values; kLinear: key heads
  std::int64_t key_dim = 0;    // of a head; kLatent: qk_nope_head_dim + qk_rope_head_dim
  std::int64_t value_dim = 0;  // of a head
  std::int64_t window = 0;     // positions that a query sees at most; 0: all
  MlaDims latent;              // kLatent
  std::int64_t taps = 0;       // kLinear: taps of its convolution

  // Elements that a token adds to the cache in one layer.
  std::int64_t elements() const;
  // Query heads that share one cached head; the latent is one for all.
  std::int64_t heads_per_row() const;
};

// Parameters are counted in these.
enum class Part : std::uint8_t {
  kEmbedding,
  kQuery,
  kKeyValue,  // kv_a and kv_b; or keys and values; linear attention whole
  kOutput,
  kNorms,
  kDense,
  kRouter,
  kExperts,
  kShared,
  kHead,
  kMtp,
};
inline constexpr std::size_t kParts = 11;
const char* PartName(Part part);

struct Parameters {
  std::array<std::int64_t, kParts> of{};
  std::int64_t& operator[](Part part) { return of[static_cast<std::size_t>(part)]; }
  std::int64_t operator[](Part part) const { return of[static_cast<std::size_t>(part)]; }
  // Without the layers for multi-token prediction.
  std::int64_t total() const;
};

struct ExpertShape {
  std::int64_t experts = 0;  // 0: every layer is dense
  std::int64_t per_token = 0;
  std::int64_t width = 0;         // of one expert
  std::int64_t shared_width = 0;  // of the shared ones together
  std::int64_t layers = 0;        // that have experts
  // Of a rank that has some of the experts whole: of how many they are, how many groups of ranks send it rows, and over
  // how many ranks a group's rows are dealt.
  std::int64_t of = 0;
  std::int64_t groups = 1;
  std::int64_t dealt = 1;
};

struct Shape {
  std::string name;
  std::string model_type;
  std::string not_run;  // why this engine does not run it; empty where it does
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t vocab = 0;
  std::int64_t dense_width = 0;  // of the dense layers' MLP
  std::int64_t max_positions = 0;
  std::int64_t mtp_layers = 0;
  bool tied = false;  // the embedding is the head too
  bool fp8 = false;   // its products are in fp8 by blocks, which may stay so
  std::vector<LayerGroup> groups;
  ExpertShape experts;
  std::optional<Parameters> parameters;         // empty where only the attention is known
  std::vector<std::string> notes;               // what is assumed or left out, each a sentence
  std::optional<contract::ModelConfig> config;  // of families that the engine knows
};

// Elements a token over all layers; windowed layers counted as if they had none.
Result<std::int64_t> ElementsPerToken(const Shape& shape);

// Reads the text of a config.json; `where` opens messages. Fails, in one line, on what is missing, out of range, of
// another type or does not fit together, and on attentions that are none of the three kinds, by the name of the field
// that says so.
Result<Shape> ParseShape(std::string_view json_text, std::string_view where);

// A model of `config`.
Shape ShapeOf(const contract::ModelConfig& config);

// The same model with another attention of the same heads: "mha", "mqa", "gqa:G" (G heads of keys and values, dividing
// the query heads) or "mla". Head widths and norms stay. A model without latents becomes MLA by DeepSeek-V2's
// proportions (arXiv 2405.04434, section 2.1.4): R = 4 and P = 1/2 times the head's width. Fails on another text, and
// on groups that don't divide the heads.
Result<Shape> WithAttention(const Shape& shape, const std::string& attention);

}  // namespace mla::plan

#endif  // MLA_PLAN_SHAPE_H_
