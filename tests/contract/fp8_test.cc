// Tensors of an fp8 checkpoint held against the config: each fault names tensor, expected and found.
#include "contract/fp8.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/safetensors.h"
#include "testing/fp8_checkpoint.h"
#include "testing/models.h"

namespace mla::contract {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Need;
using testing::TempDir;
using testing::TinyConfigJson;

using Specs = std::vector<io::SafetensorsSpec>;

io::SafetensorsSpec* Find(Specs* specs, const std::string& name) {
  for (io::SafetensorsSpec& spec : *specs) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

// The report on a tiny fp8 checkpoint in blocks of 20 x 24, of zeros, whose table `change` has edited.
TensorReport Report(const std::function<void(Specs*)>& change, bool quantised = true) {
  const testing::Fp8Options blocks{20, 24, DType::kF32, false};
  const std::string json = quantised ? testing::Fp8ConfigJson(TinyConfigJson(), blocks) : TinyConfigJson();
  const ModelConfig fp8 = Need(ParseConfig(testing::Fp8ConfigJson(TinyConfigJson(), blocks), "config.json"));
  Specs specs;
  for (const TensorSpec& spec : ExpectedTensors(fp8)) {
    specs.push_back({spec.name, spec.product ? DType::kF8E4M3 : DType::kBF16, spec.shape});
    if (spec.product) specs.push_back({ScaleName(spec.name), DType::kF32, ScaleShape(*fp8.fp8, spec.shape)});
  }
  change(&specs);
  const TempDir dir;
  io::SafetensorsWriter writer = Need(io::SafetensorsWriter::Create(dir.File("model.safetensors"), specs));
  for (const io::SafetensorsSpec& spec : specs) {
    std::size_t bytes = DTypeBytes(spec.dtype);
    for (const std::int64_t dim : spec.shape) bytes *= static_cast<std::size_t>(dim);
    Need(writer.Append(std::vector<std::byte>(bytes)));
  }
  Need(writer.Finish());
  return CheckTensors(Need(ParseConfig(json, "config.json")), Need(io::Checkpoint::Open(dir.path())));
}

const std::string kQb = "model.layers.1.self_attn.q_b_proj.weight";  // [96, 48] in blocks of 20 x 24

TEST(Fp8Tensors, ShapesOfScales) {
  EXPECT_EQ(ScaleName(kQb), kQb + "_scale_inv");
  EXPECT_EQ(ProductOf(kQb + "_scale_inv"), kQb);
  EXPECT_EQ(ProductOf(kQb), std::nullopt);
  EXPECT_EQ(ScaleShape({128, 128, false}, {576, 7168}), (std::vector<std::int64_t>{5, 56}));
  EXPECT_EQ(ScaleShape({128, 128, false}, {128, 129}), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(ScaleShape({1, 1 << 24, false}, {3, 5}), (std::vector<std::int64_t>{3, 1}));
}

TEST(Fp8Tensors, EachProductMayBeWideAndScalesOfThreeTypes) {
  EXPECT_TRUE(Report([](Specs*) {}).ok());
  EXPECT_TRUE(Report([](Specs* specs) { Find(specs, ScaleName(kQb))->dtype = DType::kBF16; }).ok());
  EXPECT_TRUE(Report([](Specs* specs) { Find(specs, ScaleName(kQb))->dtype = DType::kF8E8M0; }).ok());
  EXPECT_TRUE(Report([](Specs* specs) {
                Find(specs, kQb)->dtype = DType::kBF16;
                std::erase_if(*specs, [](const auto& spec) { return spec.name == ScaleName(kQb); });
              }).ok());
}

TEST(Fp8Tensors, FaultsNameTensorExpectedAndFound) {
  const auto mismatch = [](const std::function<void(Specs*)>& change) {
    const TensorReport report = Report(change);
    EXPECT_THAT(report.missing, IsEmpty());
    EXPECT_THAT(report.extra, IsEmpty());
    EXPECT_EQ(report.mismatched.size(), 1U);
    return report.mismatched.empty() ? std::string() : report.mismatched[0];
  };
  EXPECT_EQ(mismatch([](Specs* specs) {
              std::erase_if(*specs, [](const auto& spec) { return spec.name == ScaleName(kQb); });
            }),
            kQb + "_scale_inv: expected [5, 2] of F32, BF16 or F8_E8M0, found nothing");
  EXPECT_EQ(mismatch([](Specs* specs) {
              Find(specs, ScaleName(kQb))->shape = {2, 5};
            }),
            kQb + "_scale_inv: expected [5, 2] of F32, BF16 or F8_E8M0, found [2, 5] of F32 in model.safetensors");
  EXPECT_EQ(mismatch([](Specs* specs) { Find(specs, ScaleName(kQb))->dtype = DType::kF16; }),
            kQb + "_scale_inv: expected [5, 2] of F32, BF16 or F8_E8M0, found [5, 2] of F16 in model.safetensors");
  EXPECT_EQ(mismatch([](Specs* specs) { Find(specs, kQb)->dtype = DType::kBF16; }),
            kQb + "_scale_inv: expected " + kQb + " of F8_E4M3 beside it, found [96, 48] of BF16 in model.safetensors");
  EXPECT_EQ(mismatch([](Specs* specs) { Find(specs, kQb)->dtype = DType::kF8E8M0; }),
            kQb + ": expected [96, 48] of F32, F16, BF16 or F8_E4M3, found [96, 48] of F8_E8M0 in model.safetensors");
  // Never in fp8, whatever the config says.
  for (const std::string name : {"model.norm.weight", "model.layers.1.mlp.gate.weight", "lm_head.weight",
                                 "model.layers.1.mlp.gate.e_score_correction_bias", "model.embed_tokens.weight",
                                 "model.layers.0.self_attn.kv_a_layernorm.weight"}) {
    const std::string fault = mismatch([&](Specs* specs) { Find(specs, name)->dtype = DType::kF8E4M3; });
    EXPECT_THAT(fault, HasSubstr(name + ": expected "));
    EXPECT_THAT(fault, HasSubstr("of F32, F16 or BF16, found"));
  }
}

TEST(Fp8Tensors, ScalesWithoutTheirProductOrOfNone) {
  const TensorReport gone =
      Report([](Specs* specs) { std::erase_if(*specs, [](const auto& spec) { return spec.name == kQb; }); });
  EXPECT_THAT(gone.missing, ElementsAre(kQb + ": expected [96, 48]"));
  const TensorReport stray = Report([](Specs* specs) {
    specs->push_back({"lm_head.weight_scale_inv", DType::kF32, {1, 1}});
    specs->push_back({kQb + "_scale", DType::kF32, {1}});
  });
  EXPECT_THAT(stray.extra, ElementsAre(HasSubstr("lm_head.weight_scale_inv"), HasSubstr(kQb + "_scale [1]")));
}

TEST(Fp8Tensors, NeedTheConfigsWord) {
  const TensorReport report = Report([](Specs*) {}, false);
  EXPECT_THAT(report.mismatched, ::testing::Contains(kQb + ": expected [96, 48] of F32, F16 or BF16 (the config has no "
                                                           "quantization_config), found [96, 48] of F8_E4M3 in "
                                                           "model.safetensors"));
  EXPECT_THAT(report.extra, ::testing::Contains(HasSubstr(kQb + "_scale_inv")));
}

}  // namespace
}  // namespace mla::contract
