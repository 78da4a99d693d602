// Weights: planned bytes, every source dtype, unaligned data, optional tensors, and what each packed field holds.
#include "weights/weights.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "mla/attention.h"
#include "mla/cache.h"
#include "ops/packed.h"
#include "testing/models.h"
#include "testing/nodes.h"
#include "weights/opened.h"

namespace mla::weights {
namespace {

using testing::HalfSplitOptions;
using testing::Need;
using testing::OddOptions;
using testing::TempDir;
using testing::TinyConfigJson;
using testing::TinyOptions;
using testing::WriteTinyCheckpoint;

ModelWeights LoadAll(const Opened& opened, WeightDType keep, int threads = 1) {
  const auto pool = MakeThreadPool(threads);
  return Need(Load(opened.config, opened.checkpoint, keep, *pool, {}));
}

std::span<const std::byte> Bytes(const ModelWeights& weights) {
  return {weights.arena.data(), static_cast<std::size_t>(weights.arena.bytes())};
}

TEST(Weights, AreTheSameWhereverTheirPagesLie) {
  TinyOptions options;
  options.vocab_size = 1000;  // parts for three nodes, that begin and end within the 64 rows of a task
  options.intermediate_size = 900;
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(options), 4);
  const Opened opened = Open(dir.path());
  const ModelWeights one = LoadAll(opened, WeightDType::kBF16);
  for (const int nodes : {1, 2, 3}) {
    for (const int threads : {2, 3, 5}) {
      testing::NodesExecutor executor(threads, nodes);
      std::int64_t last = 0;
      std::int64_t all = 0;
      const ModelWeights placed = Need(Load(opened.config, opened.checkpoint, WeightDType::kBF16, executor,
                                            [&](std::int64_t done, std::int64_t total) {
                                              EXPECT_LT(last, done);
                                              last = done;
                                              all = total;
                                            }));
      EXPECT_EQ(last, all) << "every byte was read once";
      EXPECT_TRUE(std::ranges::equal(Bytes(placed), Bytes(one))) << nodes << " nodes, " << threads << " threads";
    }
  }
}

// Element (row, column) of a packed matrix, by the layout that ops/packed.h describes.
float Element(const ops::PackedMatrix& m, std::int64_t row, std::int64_t column) {
  const std::int64_t panel = row / ops::kPanel;
  const std::int64_t lane = row % ops::kPanel;
  const std::byte* data = m.data + panel * ops::PanelBytes(m.format, m.k);
  if (m.format == ops::PackedFormat::kF32) {
    float value = 0;
    std::memcpy(&value, data + (column * ops::kPanel + lane) * 4, 4);
    return value;
  }
  Bf16Bits bits = 0;
  std::memcpy(&bits, data + ((column / 2 * ops::kPanel + lane) * 2 + column % 2) * 2, 2);
  return FloatFromBf16(bits);
}

float SourceElement(const io::Tensor& tensor, std::int64_t i) {
  if (tensor.dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, tensor.data + i * 4, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, tensor.data + i * 2, 2);
  return tensor.dtype == DType::kBF16 ? FloatFromBf16(bits) : FloatFromF16(bits);
}

float Kept(float value, bool bf16) { return bf16 ? FloatFromBf16(Bf16FromFloat(value)) : value; }

class Comparison {
 public:
  Comparison(const Opened& opened, WeightDType keep) : opened_(opened), bf16_(keep == WeightDType::kBF16) {}

  // Rows [first, first + rows of the tensor) of the matrix.
  void Matrix(const ops::PackedMatrix& m, std::int64_t first, const std::string& name) {
    Placed(m, name, [first](std::int64_t row) { return first + row; });
  }
  // The matrix's row place(r) is the tensor's row r.
  template <class Place>
  void Placed(const ops::PackedMatrix& m, const std::string& name, Place place) {
    const io::Tensor& t = Fetch(name);
    ASSERT_EQ(t.shape[1], m.k) << name;
    ASSERT_LT(place(t.shape[0] - 1), m.n) << name;
    const bool bf16 = m.format == ops::PackedFormat::kBF16;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      ASSERT_EQ(Element(m, place(i / m.k), i % m.k), Kept(SourceElement(t, i), bf16)) << name << " " << i;
    }
  }
  void Vector(const float* found, const std::string& name) {
    const io::Tensor& t = Fetch(name);
    for (std::int64_t i = 0; i < t.elements(); ++i) ASSERT_EQ(found[i], SourceElement(t, i)) << name << " " << i;
  }
  void Table(const Embedding& embedding, const std::string& name) {
    const io::Tensor& t = Fetch(name);
    std::vector<float> row(static_cast<std::size_t>(t.shape[1]));
    for (std::int64_t r = 0; r < t.shape[0]; ++r) {
      embedding.Lookup(r, row.data());
      for (std::int64_t i = 0; i < t.shape[1]; ++i) {
        ASSERT_EQ(row[static_cast<std::size_t>(i)], Kept(SourceElement(t, r * t.shape[1] + i), bf16_)) << name;
      }
    }
  }
  void Mlp(const weights::Mlp& mlp, const std::string& prefix) {
    const std::int64_t width = mlp.intermediate_size;
    ASSERT_EQ(mlp.gate_up.n, (width + 15) / 16 * 32);
    Placed(mlp.gate_up, prefix + "gate_proj.weight", [](std::int64_t r) { return r / 16 * 32 + r % 16; });
    Placed(mlp.gate_up, prefix + "up_proj.weight", [](std::int64_t r) { return r / 16 * 32 + 16 + r % 16; });
    for (std::int64_t r = width; r < (width + 15) / 16 * 16; ++r) {
      for (std::int64_t k = 0; k < mlp.gate_up.k; ++k) {
        ASSERT_EQ(Element(mlp.gate_up, r / 16 * 32 + r % 16, k), 0.0F) << prefix << " past gate";
        ASSERT_EQ(Element(mlp.gate_up, r / 16 * 32 + 16 + r % 16, k), 0.0F) << prefix << " past up";
      }
    }
    Matrix(mlp.down, 0, prefix + "down_proj.weight");
  }
  void Layer(const weights::Layer& layer, const std::string& prefix) {
    Vector(layer.input_norm, prefix + "input_layernorm.weight");
    Vector(layer.post_attention_norm, prefix + "post_attention_layernorm.weight");
    Attention(layer.attention, prefix + "self_attn.");
    ASSERT_NE(layer.dense.has_value(), layer.moe.has_value());
    if (layer.dense) return Mlp(*layer.dense, prefix + "mlp.");
    ASSERT_EQ(layer.moe->router.format, ops::PackedFormat::kF32) << "a rounded router picks other experts";
    Matrix(layer.moe->router, 0, prefix + "mlp.gate.weight");
    Vector(layer.moe->bias, prefix + "mlp.gate.e_score_correction_bias");
    for (std::size_t e = 0; e < layer.moe->experts.size(); ++e) {
      Mlp(layer.moe->experts[e], prefix + "mlp.experts." + std::to_string(e) + ".");
    }
    if (layer.moe->shared) Mlp(*layer.moe->shared, prefix + "mlp.shared_experts.");
  }
  // Every tensor of the checkpoint was asked for.
  void ExpectAllSeen() const {
    for (const io::Tensor& t : opened_.checkpoint.tensors()) {
      EXPECT_TRUE(seen_.contains(t.name) || t.name.ends_with("kv_b_proj.weight")) << t.name;
    }
  }

 private:
  void Attention(const weights::Attention& a, const std::string& prefix) {
    std::int64_t q_rows = 0;
    if (opened_.config.q_lora_rank) {
      q_rows = *opened_.config.q_lora_rank;
      Matrix(a.q_a_kv_a, 0, prefix + "q_a_proj.weight");
      Vector(a.q_a_norm, prefix + "q_a_layernorm.weight");
      Matrix(a.q_b, 0, prefix + "q_b_proj.weight");
    } else {
      q_rows = Fetch(prefix + "q_proj.weight").shape[0];
      Matrix(a.q_a_kv_a, 0, prefix + "q_proj.weight");
    }
    Matrix(a.q_a_kv_a, q_rows, prefix + "kv_a_proj_with_mqa.weight");
    Vector(a.kv_a_norm, prefix + "kv_a_layernorm.weight");
    Matrix(a.o, 0, prefix + "o_proj.weight");
    ASSERT_TRUE(a.kv_b.has_value());
  }
  const io::Tensor& Fetch(const std::string& name) {
    const io::Tensor* t = opened_.checkpoint.Find(name);
    MLA_CHECK(t != nullptr);
    seen_[name] = true;
    return *t;
  }

  const Opened& opened_;
  bool bf16_;
  std::map<std::string, bool> seen_;
};

std::string LayerPrefix(std::size_t i) { return "model.layers." + std::to_string(i) + "."; }

void ExpectHolds(const Opened& opened, WeightDType keep) {
  const ModelWeights w = LoadAll(opened, keep, 2);
  Comparison c(opened, keep);
  const bool tied = opened.config.tie_word_embeddings;
  c.Table(w.embed, "model.embed_tokens.weight");
  c.Matrix(w.lm_head, 0, tied ? "model.embed_tokens.weight" : "lm_head.weight");
  c.Vector(w.norm, "model.norm.weight");
  for (std::size_t i = 0; i < w.layers.size(); ++i) c.Layer(w.layers[i], LayerPrefix(i));
  for (std::size_t i = 0; i < w.mtp.size(); ++i) {
    const std::string prefix = LayerPrefix(w.layers.size() + i);
    c.Layer(w.mtp[i].layer, prefix);
    c.Vector(w.mtp[i].enorm, prefix + "enorm.weight");
    c.Vector(w.mtp[i].hnorm, prefix + "hnorm.weight");
    c.Matrix(w.mtp[i].eh_proj, 0, prefix + "eh_proj.weight");
    c.Vector(w.mtp[i].norm, prefix + "shared_head.norm.weight");
    if (w.mtp[i].embed) c.Table(*w.mtp[i].embed, prefix + "embed_tokens.weight");
    if (w.mtp[i].head) c.Matrix(*w.mtp[i].head, 0, prefix + "shared_head.head.weight");
  }
  c.ExpectAllSeen();
}

TinyOptions MtpOptions() {
  TinyOptions o;
  o.num_nextn_predict_layers = 1;
  o.num_hidden_layers = 2;
  return o;
}

TEST(Weights, HoldWhatTheCheckpointSays) {
  for (const TinyOptions& options : {TinyOptions{}, OddOptions(), HalfSplitOptions(), MtpOptions()}) {
    for (const DType source : {DType::kF32, DType::kF16, DType::kBF16}) {
      const TempDir dir;
      WriteTinyCheckpoint(dir.path(), TinyConfigJson(options), 5, source, source == DType::kF16 ? 3 : 1);
      const Opened opened = Open(dir.path());
      for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) ExpectHolds(opened, keep);
    }
  }
}

// Bytes from the layout's rules alone: panels of 16 outputs, pieces at 64-byte borders.
std::int64_t Border(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

TEST(Weights, PlannedBytesAreAllocatedBytesAndNoMoreThanTheDataNeed) {
  for (const TinyOptions& options : {TinyOptions{}, OddOptions(), HalfSplitOptions(), MtpOptions()}) {
    const TempDir dir;
    WriteTinyCheckpoint(dir.path(), TinyConfigJson(options), 6);
    const Opened opened = Open(dir.path());
    for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
      const std::int64_t planned = PlannedBytes(opened.config, keep, &opened.checkpoint);
      EXPECT_EQ(LoadAll(opened, keep).bytes(), planned);
      // Each tensor once (kv_b_proj's w_kc twice, a tied embedding twice), padded to whole panels and borders.
      std::int64_t least = 0;
      std::int64_t most = 0;
      const std::int64_t width = keep == WeightDType::kF32 ? 4 : 2;
      for (const io::Tensor& t : opened.checkpoint.tensors()) {
        const bool vector = t.shape.size() == 1;
        least += t.elements() * (vector ? 4 : width);
        const std::int64_t rows = vector ? 1 : (t.shape[0] + 15) / 16 * 16;
        const std::int64_t columns = vector ? t.shape[0] : (t.shape[1] + 1) / 2 * 2;
        most += Border(rows * columns * 4);
        const bool twice = t.name.ends_with("kv_b_proj.weight") ||
                           (options.tie_word_embeddings && t.name == "model.embed_tokens.weight");
        if (twice) most += 2 * Border(16 * options.num_attention_heads * 64 * 64 * 4);
      }
      EXPECT_GE(planned, least);
      EXPECT_LE(planned, most + (1 << 16));
    }
  }
}

// The same tensors, with the optional ones of the MTP layer beside them.
void WriteWithOptional(const std::string& dir, const std::string& config_json, bool embed, bool head) {
  WriteTinyCheckpoint(dir, config_json, 7, DType::kF32);
  const Opened opened = Open(dir);
  const std::string prefix = LayerPrefix(static_cast<std::size_t>(opened.config.num_hidden_layers));
  std::vector<io::SafetensorsSpec> specs;
  std::vector<std::string> bytes;
  for (const io::Tensor& t : opened.checkpoint.tensors()) {
    specs.push_back({t.name, t.dtype, t.shape});
    bytes.emplace_back(reinterpret_cast<const char*>(t.data), static_cast<std::size_t>(t.bytes));
  }
  const std::vector<std::int64_t> shape = {opened.config.vocab_size, opened.config.hidden_size};
  const auto add = [&](const std::string& name, float value) {
    specs.push_back({name, DType::kF32, shape});
    const std::vector<float> values(static_cast<std::size_t>(shape[0] * shape[1]), value);
    bytes.emplace_back(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  };
  if (embed) add(prefix + "embed_tokens.weight", 0.25F);
  if (head) add(prefix + "shared_head.head.weight", 0.75F);
  auto writer = Need(io::SafetensorsWriter::Create(dir + "/other.safetensors", specs));
  for (const std::string& piece : bytes) Need(writer.Append(std::as_bytes(std::span(piece))));
  Need(writer.Finish());
  std::filesystem::rename(dir + "/other.safetensors", dir + "/model.safetensors");
}

TEST(Weights, OptionalTensorsOfTheMtpLayerAreKeptWhereTheyAre) {
  std::map<std::pair<bool, bool>, std::int64_t> planned;
  for (const bool embed : {false, true}) {
    for (const bool head : {false, true}) {
      const TempDir dir;
      WriteWithOptional(dir.path(), TinyConfigJson(MtpOptions()), embed, head);
      const Opened opened = Open(dir.path());
      const ModelWeights w = LoadAll(opened, WeightDType::kF32);
      ASSERT_EQ(w.mtp.size(), 1U);
      ASSERT_EQ(w.mtp[0].embed.has_value(), embed);
      ASSERT_EQ(w.mtp[0].head.has_value(), head);
      ExpectHolds(opened, WeightDType::kBF16);
      planned[{embed, head}] = PlannedBytes(opened.config, WeightDType::kF32, &opened.checkpoint);
      EXPECT_EQ(w.bytes(), (planned[{embed, head}]));
    }
  }
  const std::int64_t table = 96 * 64 * 4;
  EXPECT_EQ((planned[{true, false}]) - (planned[{false, false}]), table);
  EXPECT_EQ((planned[{true, true}]) - (planned[{false, false}]), 2 * table);
}

// A header of another length puts every tensor at another address: the data may start at any byte.
TEST(Weights, DataMayBeUnaligned) {
  const TempDir aligned;
  WriteTinyCheckpoint(aligned.path(), TinyConfigJson(TinyOptions{}), 8, DType::kF32);
  std::ifstream in(aligned.File("model.safetensors"), std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), {});
  for (const std::size_t shift : {1U, 2U, 3U}) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    const std::uint64_t longer = length + shift;
    std::string moved(8, '\0');
    std::memcpy(moved.data(), &longer, 8);
    moved += file.substr(8, length) + std::string(shift, ' ') + file.substr(8 + length);
    const TempDir dir;
    dir.Write("config.json", TinyConfigJson(TinyOptions{}));
    dir.Write("model.safetensors", moved);
    const Opened opened = Open(dir.path());
    ASSERT_NE(reinterpret_cast<std::uintptr_t>(opened.checkpoint.tensors()[0].data) % 4, 0U);
    for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) ExpectHolds(opened, keep);
  }
}

// w_kc and w_vc: same bits from each load, and from any dtype that holds the same numbers.
TEST(Weights, KvBIsDerivedFromTheTensorEachTime) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(OddOptions()), 9, DType::kBF16);
  const Opened opened = Open(dir.path());
  const ModelWeights a = LoadAll(opened, WeightDType::kBF16, 1);
  const ModelWeights b = LoadAll(opened, WeightDType::kBF16, 3);
  const MlaDims d = DimsOf(opened.config);
  const auto pool = MakeThreadPool(1);
  Result<LatentCache> cache = LatentCache::Create(MakeLatentLayout(d.kv_lora_rank, 0, 1, DType::kF32), 1);
  const std::vector<float> latent(static_cast<std::size_t>(d.kv_lora_rank), 0.5F);
  WriteCacheRow(cache->Layer(0), 0, latent.data(), nullptr);
  MlaAttention::Options options;
  options.dims = d;
  options.softmax_scale = 1;
  options.max_rows = 1;
  options.max_keys = 1;
  MlaAttention attention = Need(MlaAttention::Create(options));
  const std::vector<float> q(static_cast<std::size_t>(d.num_attention_heads * d.qk_nope_head_dim), 1.0F);
  const std::vector<std::int32_t> pages = {0};
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    const io::Tensor* kv_b = opened.checkpoint.Find(LayerPrefix(layer) + "self_attn.kv_b_proj.weight");
    for (const Form form : {Form::kMha, Form::kAbsorbed}) {
      std::vector<std::vector<float>> outs;
      for (const ModelWeights* w : {&a, &b}) {
        std::vector<float>& out = outs.emplace_back(static_cast<std::size_t>(d.num_attention_heads * d.v_head_dim));
        const AttentionSequence sequence{pages, 0, 1, 1, form};
        attention.Run(cache->Layer(0), *w->layers[layer].attention.kv_b, {&sequence, 1}, q.data(), out.data(), nullptr,
                      *pool);
      }
      EXPECT_EQ(outs[0], outs[1]);
      // One key: the output is its value, w_vc times the latent.
      for (std::int64_t head = 0; head < d.num_attention_heads; ++head) {
        for (std::int64_t v = 0; v < d.v_head_dim; ++v) {
          const std::int64_t row = head * (d.qk_nope_head_dim + d.v_head_dim) + d.qk_nope_head_dim + v;
          double expected = 0;
          double size = 0;
          for (std::int64_t r = 0; r < d.kv_lora_rank; ++r) {
            const double term = 0.5 * static_cast<double>(SourceElement(*kv_b, row * d.kv_lora_rank + r));
            expected += term;
            size += std::fabs(term);
          }
          // Sums of R terms in fp32, and a division: each may round by 2^-24 of the sum of magnitudes.
          const double bound = std::ldexp(size * static_cast<double>(d.kv_lora_rank + 2), -24);
          ASSERT_NEAR(outs[0][static_cast<std::size_t>(head * d.v_head_dim + v)], expected, bound) << FormName(form);
        }
      }
    }
  }
}

TEST(Weights, ProgressReachesTheTotal) {
  const TempDir dir;
  WriteTinyCheckpoint(dir.path(), TinyConfigJson(TinyOptions{}), 10);
  const Opened opened = Open(dir.path());
  std::int64_t last = 0;
  std::int64_t all = 0;
  const auto pool = MakeThreadPool(1);
  const auto loaded =
      Load(opened.config, opened.checkpoint, WeightDType::kBF16, *pool, [&](std::int64_t done, std::int64_t total) {
        EXPECT_GT(done, last);
        last = done;
        all = total;
      });
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(last, all);
  std::int64_t bytes = 0;
  for (const io::Tensor& t : opened.checkpoint.tensors()) bytes += t.bytes;
  EXPECT_EQ(all, bytes);
}

}  // namespace
}  // namespace mla::weights
