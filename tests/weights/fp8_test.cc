// Fp8 checkpoints, loaded: the bits of the same numbers stored wide; what can't be used is refused by name.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/kv_b.h"
#include "contract/tensors.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "reference/reference.h"
#include "testing/fp8_checkpoint.h"
#include "testing/models.h"
#include "weights/opened.h"
#include "weights/weights.h"

namespace mla::weights {
namespace {

using testing::Fp8Options;
using testing::HalfSplitOptions;
using ::testing::HasSubstr;
using testing::Need;
using testing::OddOptions;
using testing::TempDir;
using testing::TinyConfigJson;
using testing::TinyOptions;
using testing::WriteFp8Checkpoint;

Result<ModelWeights> LoadKept(const Opened& opened, WeightDType keep, int threads = 2, const Progress& progress = {}) {
  const auto pool = MakeThreadPool(threads);
  return Load(opened.config, opened.checkpoint, keep, *pool, progress);
}

void ExpectSameBytes(const Buffer& a, const Buffer& b) {
  ASSERT_EQ(a.bytes(), b.bytes());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())), 0);
}

TinyOptions WithMtp() {
  TinyOptions o;
  o.num_nextn_predict_layers = 1;
  return o;
}

// Heads of 32, 32 and 28 rows against blocks of 128, 20 and 7; edges are partial wherever dims are no multiples.
TEST(Fp8Weights, HoldTheBitsOfTheSameNumbersStoredWide) {
  const Fp8Options kinds[] = {{128, 128, DType::kF32, false},
                              {20, 24, DType::kBF16, false},
                              {7, 50, DType::kF8E8M0, false},
                              {16, 9, DType::kF32, true}};
  for (const TinyOptions& options : {WithMtp(), OddOptions(), HalfSplitOptions()}) {
    for (const Fp8Options& kind : kinds) {
      SCOPED_TRACE(testing::Fp8ConfigJson(TinyConfigJson(options), kind));
      const TempDir dir;
      WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(options), 11, kind);
      const Opened fp8 = Open(dir.File("fp8"));
      const Opened wide = Open(dir.File("wide"));
      for (const WeightDType keep : {WeightDType::kF32, WeightDType::kBF16}) {
        const ModelWeights a = Need(LoadKept(fp8, keep));
        const ModelWeights b = Need(LoadKept(wide, keep));
        EXPECT_EQ(a.bytes(), PlannedBytes(fp8.config, keep, &fp8.checkpoint));
        ExpectSameBytes(a.arena, b.arena);
        for (std::size_t i = 0; i < a.layers.size(); ++i) {
          ExpectSameBytes(a.layers[i].attention.kv_b->impl().storage, b.layers[i].attention.kv_b->impl().storage);
        }
      }
    }
  }
}

// A packed matrix's elements in its kept form, as bf16: by the layouts that ops/packed.h describes.
std::vector<Bf16Bits> Elements(const ops::PackedMatrix& m) {
  std::vector<Bf16Bits> elements;
  for (std::int64_t n = 0; n < m.n; ++n) {
    const std::byte* panel = m.data + n / 16 * m.panel_bytes();
    for (std::int64_t k = 0; k < m.k; ++k) {
      const std::int64_t in_pair = n % 16 * 2 + k % 2;
      if (m.format == ops::PackedFormat::kBF16) {
        elements.push_back(0);
        std::memcpy(&elements.back(), panel + (k / 2 * 32 + in_pair) * 2, 2);
        continue;
      }
      const std::byte* block = panel + k / m.scale_block * (64 + m.scale_block * 16);
      float scale = 0;
      std::memcpy(&scale, block + n % 16 * 4, 4);
      const auto code = std::to_integer<std::uint8_t>(block[64 + k % m.scale_block / 2 * 32 + in_pair]);
      elements.push_back(Bf16FromFloat(FloatFromE4M3(code) * scale));
    }
  }
  return elements;
}

std::vector<ops::PackedMatrix> Products(const ModelWeights& w) {
  std::vector<ops::PackedMatrix> products;
  const auto add_mlp = [&](const Mlp& mlp) {
    products.push_back(mlp.gate_up);
    products.push_back(mlp.down);
  };
  const auto add = [&](const Layer& layer) {
    products.push_back(layer.attention.q_a_kv_a);
    if (layer.attention.q_b.n > 0) products.push_back(layer.attention.q_b);
    products.push_back(layer.attention.o);
    if (layer.dense) return add_mlp(*layer.dense);
    for (const Mlp& expert : layer.moe->experts) add_mlp(expert);
    if (layer.moe->shared) add_mlp(*layer.moe->shared);
  };
  for (const Layer& layer : w.layers) add(layer);
  for (const Mtp& mtp : w.mtp) {
    products.push_back(mtp.eh_proj);
    add(mtp.layer);
  }
  return products;
}

TEST(Fp8Weights, StayFp8AndAreTheSameWeights) {
  const Fp8Options kinds[] = {
      {128, 128, DType::kF32, false}, {20, 24, DType::kBF16, false}, {7, 50, DType::kF8E8M0, false}};
  for (const TinyOptions& options : {WithMtp(), OddOptions(), HalfSplitOptions()}) {
    for (const Fp8Options& kind : kinds) {
      SCOPED_TRACE(testing::Fp8ConfigJson(TinyConfigJson(options), kind));
      const TempDir dir;
      WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(options), 11, kind);
      const Opened opened = Open(dir.File("fp8"));
      const ModelWeights kept = Need(LoadKept(opened, WeightDType::kFp8));
      const ModelWeights rounded = Need(LoadKept(opened, WeightDType::kBF16));
      EXPECT_EQ(kept.bytes(), PlannedBytes(opened.config, WeightDType::kFp8, &opened.checkpoint));
      EXPECT_EQ(kept.bytes(), PlannedBytes(opened.config, WeightDType::kFp8, nullptr)) << "the config says as much";
      EXPECT_EQ(kept.lm_head.format, ops::PackedFormat::kBF16);
      EXPECT_EQ(kept.embed.dtype, WeightDType::kBF16);
      const auto a = Products(kept);
      const auto b = Products(rounded);
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].format, ops::PackedFormat::kF8) << i;
        ASSERT_EQ(Elements(a[i]), Elements(b[i])) << i;
      }
      for (std::size_t i = 0; i < kept.layers.size(); ++i) {
        if (kept.layers[i].moe) {
          EXPECT_EQ(kept.layers[i].moe->router.format, ops::PackedFormat::kF32);
        }
        ExpectSameBytes(kept.layers[i].attention.kv_b->impl().storage,
                        rounded.layers[i].attention.kv_b->impl().storage);
      }
    }
  }
}

// Blocks of an odd width have pairs of k with two scales.
TEST(Fp8Weights, OfOddBlocksAreKeptInBf16) {
  const TempDir dir;
  WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(), 11, {16, 9, DType::kF32, false});
  const Opened opened = Open(dir.File("fp8"));
  const ModelWeights kept = Need(LoadKept(opened, WeightDType::kFp8));
  ExpectSameBytes(kept.arena, Need(LoadKept(opened, WeightDType::kBF16)).arena);
}

// Replaces tensors by name with those of another checkpoint, without scales.
void Widen(const std::string& dir, const io::Checkpoint& wide, std::string_view suffix) {
  const Opened opened = Open(dir);
  std::vector<io::SafetensorsSpec> specs;
  std::vector<std::string> bytes;
  for (const io::Tensor& t : opened.checkpoint.tensors()) {
    if (t.name.ends_with(std::string(suffix) + "_scale_inv")) continue;
    const io::Tensor& from = t.name.ends_with(suffix) ? *wide.Find(t.name) : t;
    specs.push_back({from.name, from.dtype, from.shape});
    bytes.emplace_back(reinterpret_cast<const char*>(from.data), static_cast<std::size_t>(from.bytes));
  }
  auto writer = Need(io::SafetensorsWriter::Create(dir + "/other.safetensors", specs));
  for (const std::string& piece : bytes) Need(writer.Append(std::as_bytes(std::span(piece))));
  Need(writer.Finish());
  std::filesystem::rename(dir + "/other.safetensors", dir + "/model.safetensors");
}

// A matrix of which one part is wider is kept in bf16 whole, and so is it planned.
TEST(Fp8Weights, BesideWiderOnesAreKeptInBf16) {
  const TempDir dir;
  WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(), 11);
  const Opened wide = Open(dir.File("wide"));
  Widen(dir.File("fp8"), wide.checkpoint, "kv_a_proj_with_mqa.weight");
  const Opened opened = Open(dir.File("fp8"));
  const ModelWeights kept = Need(LoadKept(opened, WeightDType::kFp8));
  const ModelWeights rounded = Need(LoadKept(opened, WeightDType::kBF16));
  EXPECT_EQ(kept.bytes(), PlannedBytes(opened.config, WeightDType::kFp8, &opened.checkpoint));
  for (std::size_t i = 0; i < kept.layers.size(); ++i) {
    const ops::PackedMatrix& m = kept.layers[i].attention.q_a_kv_a;
    EXPECT_EQ(m.format, ops::PackedFormat::kBF16);
    EXPECT_EQ(Elements(m), Elements(rounded.layers[i].attention.q_a_kv_a));
    EXPECT_EQ(kept.layers[i].attention.q_b.format, ops::PackedFormat::kF8);
  }
}

// Where the scales have 8 bits or fewer, products are exact in F32 and the two models are one.
TEST(Fp8Weights, TheReferenceReadsTheSameNumbers) {
  for (const Fp8Options& kind : {Fp8Options{20, 24, DType::kBF16, false}, Fp8Options{7, 50, DType::kF8E8M0, false}}) {
    const TempDir dir;
    WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(WithMtp()), 12, kind);
    const auto ids = testing::RandomIds(9, 96, 1);
    std::vector<std::vector<double>> logits;
    for (const char* name : {"fp8", "wide"}) {
      const Opened opened = Open(dir.File(name));
      const auto model = Need(
          reference::ReferenceModel::Load(opened.config, opened.checkpoint, opened.config.max_position_embeddings));
      auto state = model.NewState();
      std::vector<double> hidden;
      logits.push_back(model.Append(state, ids, &hidden));
      const std::vector<double> draft = model.Draft(ids, hidden);
      logits.back().insert(logits.back().end(), draft.begin(), draft.end());
    }
    EXPECT_EQ(logits[0], logits[1]);
  }
}

TEST(Fp8Weights, ProgressReachesTheTotal) {
  const TempDir dir;
  WriteFp8Checkpoint(dir.File("fp8"), dir.File("wide"), TinyConfigJson(), 13);
  const Opened opened = Open(dir.File("fp8"));
  std::int64_t bytes = 0;
  for (const io::Tensor& tensor : opened.checkpoint.tensors()) bytes += tensor.bytes;
  std::int64_t last = 0;
  Need(LoadKept(opened, WeightDType::kBF16, 1, [&](std::int64_t done, std::int64_t total) {
    EXPECT_GT(done, last);
    EXPECT_EQ(total, bytes);
    last = done;
  }));
  EXPECT_EQ(last, bytes);
}

// Overwrites bytes of a tensor in the file.
class Patch {
 public:
  explicit Patch(const std::string& dir) : path_(dir + "/model.safetensors") {
    std::ifstream in(path_, std::ios::binary);
    file_.assign(std::istreambuf_iterator<char>(in), {});
    const io::Checkpoint checkpoint = Need(io::Checkpoint::Open(dir));
    first_ = checkpoint.tensors()[0].data;
    for (const io::Tensor& tensor : checkpoint.tensors()) {
      first_ = std::min(first_, tensor.data);
      tensors_.push_back(tensor);
      data_bytes_ += tensor.bytes;
    }
  }
  template <class T>
  void Write(const std::string& name, std::int64_t element, T value) const {
    const auto tensor = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
    std::string changed = file_;
    const std::int64_t begin = static_cast<std::int64_t>(file_.size()) - data_bytes_ + (tensor->data - first_);
    std::memcpy(changed.data() + begin + element * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
    std::ofstream(path_, std::ios::binary) << changed;
  }

 private:
  std::string path_;
  std::string file_;
  std::vector<io::Tensor> tensors_;
  const std::byte* first_ = nullptr;
  std::int64_t data_bytes_ = 0;
};

// The production path and the reference refuse alike.
void ExpectRefused(const std::string& dir, const std::vector<std::string>& parts) {
  const Opened opened = Open(dir);
  const auto model =
      reference::ReferenceModel::Load(opened.config, opened.checkpoint, opened.config.max_position_embeddings);
  ASSERT_FALSE(model.ok());
  for (const std::string& part : parts) EXPECT_THAT(model.error().message, HasSubstr(part));
  for (const WeightDType keep : {WeightDType::kBF16, WeightDType::kFp8}) {
    const Result<ModelWeights> weights = LoadKept(opened, keep);
    ASSERT_FALSE(weights.ok());
    for (const std::string& part : parts) EXPECT_THAT(weights.error().message, HasSubstr(part));
  }
}

TEST(Fp8Weights, ValuesThatAreNoneAreRefusedByName) {
  const TempDir dir;
  const std::string fp8 = dir.File("fp8");
  WriteFp8Checkpoint(fp8, dir.File("wide"), TinyConfigJson(), 14, {20, 24, DType::kF32, false});
  const Patch patch(fp8);
  const std::string layer = "model.layers.2.";
  // The first and the last code of a product, of a stacked one, and of kv_b_proj, which is packed apart.
  for (const auto& [name, last] : {std::pair<std::string, std::int64_t>{"self_attn.q_a_proj.weight", 48 * 64 - 1},
                                   {"self_attn.kv_a_proj_with_mqa.weight", 40 * 64 - 1},
                                   {"self_attn.kv_b_proj.weight", 128 * 32 - 1},
                                   {"mlp.experts.7.down_proj.weight", 64 * 32 - 1}}) {
    for (const std::int64_t at : {std::int64_t{0}, last}) {
      patch.Write(layer + name, at, static_cast<std::uint8_t>(at == 0 ? 0x7f : 0xff));
      ExpectRefused(fp8, {layer + name + ": expected numbers, found a NaN of F8_E4M3", "model.safetensors"});
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::string name : {"self_attn.o_proj.weight_scale_inv", "self_attn.kv_b_proj.weight_scale_inv"}) {
    for (const float bad : {-0.5F, nan, std::numeric_limits<float>::infinity()}) {
      patch.Write(layer + name, 1, bad);
      ExpectRefused(fp8, {layer + name + ": expected scales from 0", "at [0, 1]", "model.safetensors"});
    }
  }
  patch.Write(layer + "self_attn.o_proj.weight_scale_inv", 1, 0.0F);  // a block of zeros
  EXPECT_TRUE(LoadKept(Open(fp8), WeightDType::kBF16).ok());
}

TEST(Fp8Weights, ScalesOfUe8m0ArePowersOfTwo) {
  const TempDir dir;
  const std::string fp8 = dir.File("fp8");
  WriteFp8Checkpoint(fp8, dir.File("wide"), TinyConfigJson(), 15, {20, 24, DType::kF32, true});
  const Patch patch(fp8);
  EXPECT_TRUE(LoadKept(Open(fp8), WeightDType::kBF16).ok());
  patch.Write("model.layers.0.mlp.up_proj.weight_scale_inv", 2, 0.75F);
  ExpectRefused(fp8, {"model.layers.0.mlp.up_proj.weight_scale_inv: expected powers of two", "found 0.75 at [0, 2]"});
}

}  // namespace
}  // namespace mla::weights
