// Each fault that engines have shipped is planted in one part of an otherwise sound path, and is caught by the level
// that should catch it. The ratios of docs/verify.md are printed here.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance/data.h"
#include "ops/gemm.h"
#include "verify/levels.h"
#include "verify/under_proof.h"

namespace mla::testing {
namespace {

using layers::AttendFn;
using verify::Subject;
using Sequences = std::vector<AttentionSequence>;

// deepseek_v3's fixture has every part: q_lora, groups, a shared expert, and two mscales that differ.
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kNope = 16;
constexpr std::int64_t kRope = 8;
constexpr std::int64_t kValue = 12;
constexpr std::int64_t kRank = 32;

UnderProof& Fixture() {
  static UnderProof fixture(ConformanceData("deepseek_v3"), WeightDType::kBF16, DType::kBF16);
  return fixture;
}

// The subject's attention with its arguments changed on the way in.
void ChangeCall(Subject* s, std::function<void(CacheLayerView*, Sequences*, const KvBWeights**)> change) {
  s->attention = [change = std::move(change)](const MlaAttention::Options& options) -> Result<AttendFn> {
    MLA_ASSIGN_OR_RETURN(const AttendFn attend, verify::MakeAttention(options));
    return AttendFn([attend, change](const CacheLayerView& cache, const KvBWeights& weights,
                                     std::span<const AttentionSequence> sequences, const float* q, float* out,
                                     float* lse, Executor& executor) {
      CacheLayerView view = cache;
      Sequences changed(sequences.begin(), sequences.end());
      const KvBWeights* used = &weights;
      change(&view, &changed, &used);
      attend(view, *used, changed, q, out, lse, executor);
    });
  };
}

// The subject's attention with its results changed on the way out: out [rows, H, V], lse [rows, H] or null.
void ChangeResult(Subject* s, std::function<void(std::int64_t rows, float* out, float* lse)> change) {
  s->attention = [change = std::move(change)](const MlaAttention::Options& options) -> Result<AttendFn> {
    MLA_ASSIGN_OR_RETURN(const AttendFn attend, verify::MakeAttention(options));
    return AttendFn([attend, change](const CacheLayerView& cache, const KvBWeights& weights,
                                     std::span<const AttentionSequence> sequences, const float* q, float* out,
                                     float* lse, Executor& executor) {
      attend(cache, weights, sequences, q, out, lse, executor);
      std::int64_t rows = 0;
      for (const AttentionSequence& sequence : sequences) rows += sequence.rows;
      change(rows, out, lse);
    });
  };
}

void WrongSoftmaxScale(Subject* s) {
  s->attention = [](MlaAttention::Options options) {
    options.softmax_scale = 1 / std::sqrt(static_cast<double>(kNope + kRope));  // yarn's mscale left out
    return verify::MakeAttention(options);
  };
}

void UseRope(Subject* s, const std::function<void(RopeSpec&)>& change) {
  RopeSpec spec = s->config.rope;
  change(spec);
  s->parts.rope = std::make_shared<const RopeTable>(Need(RopeTable::Create(spec, s->config.max_position_embeddings)));
}
void OtherRopeLayout(Subject* s) {
  UseRope(s, [](RopeSpec& r) { r.layout = RopeLayout::kHalfSplit; });
}
void MissingMscaleRatio(Subject* s) {
  UseRope(s, [](RopeSpec& r) { r.mscale = r.mscale_all_dim; });
}

// The norm of the latent is the one in place over R channels; k_pe lies behind them.
bool IsLatentNorm(const float* x, const float* y, std::int64_t n) { return x == y && n == kRank; }
void NormThatSkipsLatents(const float* x, const float* weight, float eps, float* y, std::int64_t n) {
  if (!IsLatentNorm(x, y, n)) ops::kOpsPortable.rms_norm(x, weight, eps, y, n);
}
void NormThatTakesRopeToo(const float* x, const float* weight, float eps, float* y, std::int64_t n) {
  ops::kOpsPortable.rms_norm(x, weight, eps, y, n);
  if (!IsLatentNorm(x, y, n)) return;
  const std::vector<float> ones(kRope, 1.0F);
  ops::kOpsPortable.rms_norm(x + n, ones.data(), eps, y + n, kRope);
}
void UseNorm(Subject* s, void (*norm)(const float*, const float*, float, float*, std::int64_t)) {
  static std::map<void*, ops::OpKernels> tables;
  ops::OpKernels& table = tables[reinterpret_cast<void*>(norm)];
  table = *Need(verify::ChosenOps(*s));
  table.rms_norm = norm;
  s->parts.kernels = &table;
}
void LatentNormSkipped(Subject* s) { UseNorm(s, NormThatSkipsLatents); }
void KeyRopeNormed(Subject* s) { UseNorm(s, NormThatTakesRopeToo); }

// kv_b_proj [H (N+V), R] of a layer, as floats.
std::vector<float> KvB(std::int64_t layer) {
  const UnderProof& fixture = Fixture();
  const io::Tensor* tensor =
      fixture.opened.checkpoint.Find(fmt::format("model.layers.{}.self_attn.kv_b_proj.weight", layer));
  std::vector<float> values(static_cast<std::size_t>(kHeads * (kNope + kValue) * kRank));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Bf16Bits bits = 0;
    std::memcpy(&bits, tensor->data + 2 * i, 2);
    values[i] = FloatFromBf16(bits);
  }
  return values;
}

// Every layer's kv_b_proj, spoilt, in place of the layer's own; for the absorbed form alone.
void UseKvB(Subject* s, const std::function<std::vector<float>(std::int64_t layer)>& spoilt) {
  const UnderProof& fixture = Fixture();
  auto packed = std::make_shared<std::map<const KvBWeights*, KvBWeights>>();
  for (std::int64_t layer = 0; layer < s->config.num_hidden_layers; ++layer) {
    const std::vector<float> values = spoilt(layer);
    packed->emplace(
        &*fixture.weights.layers[static_cast<std::size_t>(layer)].attention.kv_b,
        Need(KvBWeights::Pack(weights::DimsOf(s->config), DType::kF32,
                              reinterpret_cast<const std::byte*>(values.data()), WeightDType::kBF16, *fixture.pool)));
  }
  ChangeCall(s, [packed](CacheLayerView*, Sequences* sequences, const KvBWeights** used) {
    const auto found = packed->find(*used);
    if (found != packed->end() && sequences->front().form == Form::kAbsorbed) *used = &found->second;
  });
}
void TransposedKc(Subject* s) {
  UseKvB(s, [](std::int64_t layer) {
    const std::vector<float> right = KvB(layer);
    std::vector<float> wrong = right;
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const std::int64_t head = h * (kNope + kValue) * kRank;
      for (std::int64_t i = 0; i < kNope * kRank; ++i) {
        // [N, R] as [R, N] would lie.
        wrong[static_cast<std::size_t>(head + i)] =
            right[static_cast<std::size_t>(head + i % kNope * kRank + i / kNope)];
      }
    }
    return wrong;
  });
}
void StaleVc(Subject* s) {
  UseKvB(s, [](std::int64_t layer) {
    std::vector<float> wrong = KvB(layer);
    const std::vector<float> other = KvB((layer + 1) % 3);
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const auto begin = static_cast<std::ptrdiff_t>((h * (kNope + kValue) + kNope) * kRank);
      std::copy_n(other.begin() + begin, kValue * kRank, wrong.begin() + begin);
    }
    return wrong;
  });
}

void SwappedPage(Subject* s) {
  auto tables = std::make_shared<std::vector<std::vector<std::int32_t>>>();
  ChangeCall(s, [tables](CacheLayerView* view, Sequences* sequences, const KvBWeights**) {
    tables->clear();
    tables->reserve(sequences->size());
    for (AttentionSequence& sequence : *sequences) {
      std::vector<std::int32_t>& table = tables->emplace_back(sequence.pages.begin(), sequence.pages.end());
      if (sequence.keys >= 2 * view->page_tokens) std::swap(table[0], table[1]);
      sequence.pages = table;
    }
  });
}

void ChunkBorder(Subject* s) {
  ChangeCall(s, [](CacheLayerView*, Sequences* sequences, const KvBWeights**) {
    // A chunk after another: its first row takes its own position for the number of its keys.
    for (AttentionSequence& sequence : *sequences) sequence.keys -= sequence.keys > sequence.rows ? 1 : 0;
  });
}

// A copy of a layer's rows that the attention reads instead.
struct RowsCopy {
  std::vector<std::byte> bytes;
  void Of(CacheLayerView* view, DType dtype) {
    const std::int64_t slots = view->pages * view->page_tokens;
    CacheLayerView copy = *view;
    copy.dtype = dtype;
    if (dtype == DType::kF32 && view->dtype == DType::kBF16) {
      copy.row_bytes = (kRank + kRope) * 4;
      copy.rope_offset = kRank * 4;
    }
    bytes.assign(static_cast<std::size_t>(slots * copy.row_bytes), std::byte{0xff});
    copy.data = bytes.data();
    std::vector<float> row(kRank + kRope);
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      ReadCacheRow(*view, slot, row.data(), row.data() + kRank);
      WriteCacheRow(copy, slot, row.data(), row.data() + kRank);
    }
    *view = copy;
  }
};

void PageBorder(Subject* s) {
  auto rows = std::make_shared<RowsCopy>();
  ChangeCall(s, [rows](CacheLayerView* view, Sequences* sequences, const KvBWeights**) {
    rows->Of(view, view->dtype);
    for (const AttentionSequence& sequence : *sequences) {
      // The first key of the second page is read from the last slot of the first.
      if (sequence.keys <= view->page_tokens) continue;
      const std::int64_t last = sequence.pages[0] * view->page_tokens + view->page_tokens - 1;
      std::memcpy(view->Row(sequence.pages[1] * view->page_tokens), view->Row(last),
                  static_cast<std::size_t>(view->row_bytes));
    }
  });
}

// The step's own keys as they were before rounding: off from the stored ones by less than half a unit of bf16.
void UnroundedKeys(Subject* s) {
  auto rows = std::make_shared<RowsCopy>();
  ChangeCall(s, [rows](CacheLayerView* view, Sequences* sequences, const KvBWeights**) {
    rows->Of(view, DType::kF32);
    std::vector<float> row(kRank + kRope);
    for (const AttentionSequence& sequence : *sequences) {
      for (std::int64_t p = sequence.keys - sequence.rows; p < sequence.keys; ++p) {
        const std::int64_t page = sequence.pages[static_cast<std::size_t>(p / view->page_tokens)];
        const std::int64_t slot = page * view->page_tokens + p % view->page_tokens;
        ReadCacheRow(*view, slot, row.data(), row.data() + kRank);
        for (std::size_t i = 0; i < row.size(); ++i) row[i] *= i % 2 == 0 ? 1 + 0x1p-10F : 1 - 0x1p-10F;
        WriteCacheRow(*view, slot, row.data(), row.data() + kRank);
      }
    }
  });
}

// The best experts of the groups that lose.
void InvertedGroupMask(Subject* s) {
  s->parts.route = [](const layers::RouteCall& call) {
    ops::RouterSpec spec = call.spec;
    std::vector<std::int32_t> kept(static_cast<std::size_t>(spec.experts));
    std::vector<float> ignored(kept.size());
    spec.top_k = spec.topk_group * (spec.experts / spec.groups);
    ops::RouteToken(spec, call.logits, call.bias, call.scratch, kept.data(), ignored.data());
    std::vector<float> bias(call.bias, call.bias + spec.experts);
    for (std::int64_t i = 0; i < spec.top_k; ++i)
      bias[static_cast<std::size_t>(kept[static_cast<std::size_t>(i)])] = -9;
    ops::RouteToken(call.spec, call.logits, bias.data(), call.scratch, call.index, call.weight);
  };
}

// The shared experts' last product doubled (exactly, in bf16): what adding them twice gives.
struct SharedTwice {
  SharedTwice() { Multiply(2); }
  ~SharedTwice() { Multiply(0.5F); }
  static void Multiply(float factor) {
    for (weights::Layer& layer : Fixture().weights.layers) {
      if (!layer.moe) continue;
      auto* bits = reinterpret_cast<Bf16Bits*>(layer.moe->shared->down.data);
      for (std::int64_t i = 0; i < layer.moe->shared->down.bytes() / 2; ++i) {
        bits[i] = Bf16FromFloat(FloatFromBf16(bits[i]) * factor);
      }
    }
  }
};

void DroppedHead(Subject* s) {
  ChangeResult(s, [](std::int64_t rows, float* out, float*) {
    for (std::int64_t row = 0; row < rows; ++row) std::fill_n(out + ((row + 1) * kHeads - 1) * kValue, kValue, 0.0F);
  });
}
void LseInBase2(Subject* s) {
  ChangeResult(s, [](std::int64_t rows, float*, float* lse) {
    for (std::int64_t i = 0; lse != nullptr && i < rows * kHeads; ++i) lse[i] /= std::log(2.0F);
  });
}

// A product that leaves out its last input.
void ShortGemm(const ops::GemmBlock& block) {
  ops::kOpsPortable.gemm_f32(block);
  for (std::int64_t row = block.row_begin; row < block.row_end; ++row) {
    for (std::int64_t n = block.panel_begin * ops::kPanel; n < std::min(block.panel_end * ops::kPanel, block.n); ++n) {
      const float* panel = static_cast<const float*>(block.panels) + n / ops::kPanel * block.k * ops::kPanel;
      block.y[row * block.ldy + n] -=
          block.x[row * block.ldx + block.k - 1] * panel[(block.k - 1) * ops::kPanel + n % ops::kPanel];
    }
  }
}
void ShortProduct(Subject* s) {
  static ops::OpKernels table = ops::kOpsPortable;
  table.gemm_f32 = ShortGemm;
  s->kernel_sets = {{"portable", &table}};
}

// Products that cut their inputs to bf16 instead of rounding to the nearest, whatever the table did before.
template <const ops::OpKernels& kBase>
void CuttingGemm(const ops::GemmBlock& block) {
  std::vector<float> x(static_cast<std::size_t>(block.row_end * block.k));
  for (std::int64_t row = block.row_begin; row < block.row_end; ++row) {
    const float* from = block.x + (block.x_rows != nullptr ? block.x_rows[row] : row) * block.ldx;
    for (std::int64_t i = 0; i < block.k; ++i) {
      x[static_cast<std::size_t>(row * block.k + i)] =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(from[i]) & 0xffff0000U);
    }
  }
  ops::GemmBlock cut = block;
  cut.x = x.data();
  cut.ldx = block.k;
  cut.x_rows = nullptr;
  kBase.gemm_bf16(cut);
}
void CutInputs(Subject* s) {
  static ops::OpKernels table = ops::kOpsPortable;
  table.bf16_inputs = true;
  table.gemm_bf16 = CuttingGemm<ops::kOpsPortable>;
  s->kernel_sets = {{"portable", &table}};
}
void InputsLeftInF32(Subject* s) {
  static ops::OpKernels table = ops::kOpsPortable;
  table.bf16_inputs = true;
  s->kernel_sets = {{"portable", &table}};
}

void AttentionLeftInF32(Subject* s) { s->kernel_sets = {{"portable", &ops::kOpsPortable, true}}; }

verify::Report ReportOf(const Subject& subject, int level) {
  const verify::Budget budget(600, {});
  verify::Report report;
  const verify::Scope scope = verify::ChooseScope(subject, {}, budget);
  switch (level) {
    case 1:
    case 2:
    case 3: Need(verify::ProveLayers(subject, scope, budget, &report)); break;
    case 4: Need(verify::ProveCache(subject, scope, &report)); break;
    case 5: Need(verify::ProveKernels(subject, budget, &report)); break;
    default:
      Need(verify::ProveLayers(subject, scope, budget, &report));
      Need(verify::ProveEndToEnd(subject, scope, budget, &report));
  }
  return report;
}

struct Fault {
  std::string name;
  int level;
  std::string check;  // the beginning of its name
  std::function<void(Subject*)> plant;
};

std::vector<Fault> Faults() {
  return {
      {"SoftmaxScale", 2, "scores, absorbed", WrongSoftmaxScale},
      {"RopeLayout", 3, "q_pe at far", OtherRopeLayout},
      {"MscaleRatio", 3, "k_pe at far", MissingMscaleRatio},
      {"KeyRopeNormed", 1, "k_pe", KeyRopeNormed},
      {"LatentNormSkipped", 1, "latent", LatentNormSkipped},
      {"TransposedKc", 2, "scores, absorbed", TransposedKc},
      {"StaleVc", 2, "values, absorbed", StaleVc},
      {"SwappedPage", 4, "absorbed: pages of 16", SwappedPage},
      {"ChunkBorder", 3, "attention across", ChunkBorder},
      {"ChunkBorderEndToEnd", 6, "logits, absorbed in chunks", ChunkBorder},
      {"PageBorder", 4, "absorbed: pages of 64", PageBorder},
      {"UnroundedKeys", 2, "attention, absorbed", UnroundedKeys},
      {"InvertedGroupMask", 6, "choice of experts", InvertedGroupMask},
      {"DroppedHead", 5, "portable: attention, absorbed", DroppedHead},
      {"DroppedKey", 5, "portable: attention, mha", ChunkBorder},
      {"LseInBase2", 5, "portable: log-sum-exp, absorbed", LseInBase2},
      {"ShortProduct", 5, "portable: products", ShortProduct},
      {"CutInputs", 5, "portable: products", CutInputs},
      {"InputsLeftInF32", 5, "portable: products", InputsLeftInF32},
      {"AttentionLeftInF32", 5, "portable: attention, absorbed", AttentionLeftInF32},
      {"MhaLeftInF32", 5, "portable: attention, mha", AttentionLeftInF32},
      {"SoftmaxScaleEndToEnd", 6, "logits, absorbed", WrongSoftmaxScale},
  };
}

// The planted level fails, in the check that is meant; which it does by how much is printed.
void ExpectCaught(const Subject& subject, const std::string& name, int level, const std::string& check) {
  const verify::Report report = ReportOf(subject, level);
  EXPECT_EQ(report.OfLevel(level), verify::Verdict::kFail);
  bool met = false;
  for (const verify::Check& c : report.checks) {
    if (c.level != level || c.name.rfind(check, 0) != 0) continue;
    EXPECT_TRUE(met || c.verdict == verify::Verdict::kFail) << c.name;
    if (!met)
      fmt::print("| {} | {} | {} | {:.2e} | {:.2e} | {:.3g} |\n", level, name, c.name, c.error, c.bound, c.ratio);
    met = true;
  }
  EXPECT_TRUE(met) << "no check " << check;
}

class PlantedFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PlantedFault, IsCaught) {
  const Fault& fault = GetParam();
  Subject subject = Fixture().subject();
  fault.plant(&subject);
  ExpectCaught(subject, fault.name, fault.level, fault.check);
}

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFault, ::testing::ValuesIn(Faults()),
                         [](const auto& test) { return test.param.name; });

TEST(PlantedInWeights, SharedExpertTwice) {
  const SharedTwice fault;
  ExpectCaught(Fixture().subject(), "SharedExpertTwice", 6, "feed-forward");
}

// Of a machine whose kernels round inputs to bf16: products of the layers that cut them are found, where production's
// own input is known and behind an activation.
TEST(PlantedInProducts, CutInputs) {
  Subject subject = Fixture().subject();
  const ops::OpKernels* chosen = Need(verify::ChosenOps(subject));
  if (!chosen->bf16_inputs) GTEST_SKIP() << "products take their inputs in fp32 here";
  ops::OpKernels table = *chosen;
  table.gemm_bf16 = CuttingGemm<ops::kOpsPortable>;
  table.pack_x = nullptr;
  subject.parts.kernels = &table;
  ExpectCaught(subject, "CutInputs", 1, "q latent");
  ExpectCaught(subject, "CutInputs", 6, "o_proj");
  ExpectCaught(subject, "CutInputs", 6, "feed-forward");
}

// The same subject without a fault passes them all, and so none of the above fails for another reason.
TEST(PlantedFault, NonePasses) {
  for (const int level : {1, 4, 5, 6}) {
    for (const verify::Check& c : ReportOf(Fixture().subject(), level).checks) {
      EXPECT_NE(c.verdict, verify::Verdict::kFail) << c.name << " " << c.ratio << " at " << c.where;
    }
  }
}

}  // namespace
}  // namespace mla::testing
