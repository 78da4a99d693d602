// What a step costs: counted pair by pair, held to the attention library's own count, and priced.
#include "plan/work.h"

#include <cmath>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "plan/plan_testing.h"
#include "plan/report.h"

namespace mla::testing {
namespace {

using plan::PartWork;
using plan::Step;

std::int64_t PairsByCounting(std::int64_t rows, std::int64_t keys, std::int64_t window) {
  std::int64_t pairs = 0;
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t key = 0; key <= keys - rows + t; ++key) {
      pairs += window == 0 || keys - rows + t - key < window ? 1 : 0;
    }
  }
  return pairs;
}

TEST(Pairs, AreThoseThatARowSees) {
  for (std::int64_t keys = 0; keys <= 24; ++keys) {
    for (std::int64_t rows = 0; rows <= keys; ++rows) {
      for (const std::int64_t window : {0, 1, 2, 5, 23, 24, 25}) {
        ASSERT_EQ(plan::Pairs(rows, keys, window).value(), PairsByCounting(rows, keys, window))
            << rows << " " << keys << " " << window;
      }
    }
  }
  // T(S-T) + T(T+1)/2 of T = S = 2^32 - 1 is 2^31 (2^32 - 1); of 2^32 it is past 2^63.
  EXPECT_EQ(plan::Pairs((std::int64_t{1} << 32) - 1, (std::int64_t{1} << 32) - 1, 0).value(),
            (std::int64_t{1} << 31) * ((std::int64_t{1} << 32) - 1));
  EXPECT_FALSE(plan::Pairs(std::int64_t{1} << 32, std::int64_t{1} << 32, 0).fits());
}

plan::Kept Bf16() {
  plan::Kept kept;
  kept.row = Row("bf16");
  return kept;
}

std::map<std::string, PartWork> Work(const plan::Shape& shape, const Step& step, Form form) {
  std::map<std::string, PartWork> parts;
  for (const PartWork& p : Need(plan::WorkOfStep(shape, step, form, Bf16()))) parts[p.name] = p;
  return parts;
}

TEST(Work, OfAttentionIsTheLibrarysCount) {
  for (const char* name : {"deepseek-v3", "minicpm3", "glm-4.7-flash"}) {
    const plan::Shape shape = ShapeAt(LatentConfig(name));
    const plan::LayerGroup& g = shape.groups[0];
    for (const std::int64_t keys : {1, 2, 17, 4096, 32768}) {
      for (const std::int64_t rows : {std::int64_t{1}, std::min<std::int64_t>(keys, 100), keys}) {
        for (const Form form : {Form::kMha, Form::kAbsorbed}) {
          const FormWork one = WorkOf(form, g.latent, rows, keys);
          const auto parts = Work(shape, {rows, keys, 3}, form);
          EXPECT_EQ(parts.at("attention").multiply_adds, 3 * g.layers * static_cast<std::int64_t>(one.attention));
          EXPECT_EQ(parts.at(form == Form::kMha ? "expand (kv_b)" : "absorb (kv_b)").multiply_adds,
                    3 * g.layers * static_cast<std::int64_t>(one.projection));
        }
      }
    }
  }
}

TEST(Work, Bytes) {
  const auto parts = Work(ShapeAt(LatentConfig("deepseek-v3")), {2, 1000, 3}, Form::kAbsorbed);
  // Each sequence's rows read once, two of them written; weights once for all.
  EXPECT_EQ(parts.at("attention").cache_bytes, 3 * 61 * std::int64_t{1002 * 1152});
  EXPECT_EQ(parts.at("absorb (kv_b)").weight_bytes, 61 * 2 * std::int64_t{16777216});
  EXPECT_EQ(parts.at("output").weight_bytes, 61 * 2 * std::int64_t{7168 * 16384});
  // Six rows of eight experts each, of 256: E (1 - (1 - 8/256)^6).
  const double touched = 256 * (1 - std::pow(1 - 8.0 / 256, 6));
  EXPECT_NEAR(static_cast<double>(parts.at("experts").weight_bytes), 58 * touched * 3 * 7168 * 2048 * 2, 1e3);
  // A window bounds what is read: 128 - 1 older keys and the two rows.
  const auto windowed = Work(ShapeAt(OtherConfig("gpt-oss-120b")), {2, 1000, 1}, Form::kAbsorbed);
  EXPECT_EQ(windowed.at("attention (window)").cache_bytes, 18 * std::int64_t{(129 + 2) * 2048});
  EXPECT_EQ(windowed.at("attention (window)").multiply_adds, 18 * std::int64_t{2 * 128 * 64 * 128});
  EXPECT_EQ(windowed.at("attention").cache_bytes, 18 * std::int64_t{(1000 + 2) * 2048});
}

TEST(Work, ActiveParametersOfPublishedModels) {
  // DeepSeek-V3: 37B activated (report, section 4.2), the embedding's table not counted.
  const auto of = [](const plan::Shape& shape) {
    double sum = 0;
    for (const auto& [name, part] : Work(shape, {1, 1, 1}, Form::kAbsorbed)) {
      if (name != "attention" && name != "linear attention") sum += static_cast<double>(part.multiply_adds);
    }
    return sum;
  };
  EXPECT_NEAR(of(ShapeAt(LatentConfig("deepseek-v3"))), 37e9, 1e9);
  EXPECT_NEAR(of(ShapeAt(OtherConfig("qwen3-235b-a22b"))), 22e9, 1e9);
  EXPECT_NEAR(of(ShapeAt(OtherConfig("gpt-oss-120b"))), 5.1e9, 0.6e9);  // its card counts one embedding table too
  EXPECT_NEAR(of(ShapeAt(OtherConfig("llama-3-8b"))), 8.03e9 - 128256 * 4096.0, 1e6);
}

TEST(Work, ThatLeaves63BitsIsRefused) {
  const plan::Shape v3 = ShapeAt(LatentConfig("deepseek-v3"));
  EXPECT_TRUE(plan::WorkOfStep(v3, {1, 163840, 1 << 16}, Form::kAbsorbed, Bf16()).ok());
  EXPECT_FALSE(plan::WorkOfStep(v3, {163840, 163840, 1 << 16}, Form::kAbsorbed, Bf16()).ok());
}

// Of docs/mla.md, section 3.4: the exact causal T* after C cached positions, by its formula.
TEST(Crossing, BisectionFindsTheClosedFormsRoot) {
  for (const char* name : {"deepseek-v3", "minicpm3", "glm-4.7-flash"}) {
    const MlaDims dims = ShapeAt(LatentConfig(name)).groups[0].latent;
    const double a = *plan::CrossingConstant(dims);
    for (const std::int64_t cached : {1, 128, 512, 4096, 32768, 1000000}) {
      const double c = static_cast<double>(cached) + 0.5;
      const double root = std::sqrt(c * c + 2 * a * static_cast<double>(cached)) - c;
      const std::int64_t found = *plan::CausalCrossing(dims, cached);
      EXPECT_GE(static_cast<double>(found), root - 1e-6) << name << " " << cached;
      EXPECT_LE(static_cast<double>(found), root + 1 + 1e-6) << name << " " << cached;
    }
    EXPECT_EQ(plan::CausalCrossing(dims, 0), 1) << "nothing cached: expanding is never dearer";
  }
}

TEST(Crossing, ATieGoesToTheAbsorbedForm) {
  // 2R = N + V and nothing cached: both forms need the same.
  EXPECT_FALSE(plan::CausalCrossing({8, 64, 32, 64, 64}, 0));
}

TEST(Crossing, InSecondsFollowsTheRates) {
  const MlaDims dims = ShapeAt(LatentConfig("deepseek-v3")).groups[0].latent;
  plan::Rates rates;
  rates.products = rates.expand = rates.absorb = rates.mha = rates.absorbed = 7e12;
  EXPECT_EQ(plan::CausalCrossing(dims, 4096, &rates), plan::CausalCrossing(dims, 4096));
  rates.absorbed *= 2;
  EXPECT_GT(*plan::CausalCrossing(dims, 4096, &rates), *plan::CausalCrossing(dims, 4096));
  rates.absorbed *= 2;  // 3.4 times the work at four times the rate
  EXPECT_FALSE(plan::CausalCrossing(dims, 4096, &rates));
}

// A table of one shape whose seconds are the sums of its rows and cached positions.
FormTable SumsTable(const MlaDims& dims) {
  FormTable table;
  MeasuredForms m{dims, {1, 512}, {0, 8192}, {}, {}};
  for (const std::int64_t rows : m.rows) {
    for (const std::int64_t cached : m.cached) {
      m.mha_seconds.push_back(1e-3 * static_cast<double>(rows + cached + 100));
      m.absorbed_seconds.push_back(1e-3 * static_cast<double>(2 * rows + cached));
    }
  }
  table.measured.push_back(m);
  return table;
}

TEST(Crossing, InSecondsFollowsATable) {
  const MlaDims dims = ShapeAt(LatentConfig("deepseek-v3")).groups[0].latent;
  plan::Rates rates;
  rates.forms = SumsTable(dims);
  EXPECT_EQ(plan::CausalCrossing(dims, 4096, &rates), 101);  // rows + 100 < 2 rows
}

TEST(Seconds, OfAttentionAreTheTables) {
  const plan::Shape shape = ShapeAt(LatentConfig("deepseek-v3"));
  plan::Rates rates;
  rates.products = 1e30;
  rates.read_bytes = 1e30;
  rates.forms = SumsTable(shape.groups[0].latent);
  for (const Form form : {Form::kMha, Form::kAbsorbed}) {
    // The work of other parts takes no time; three sequences of 61 layers do.
    const auto parts = Need(plan::WorkOfStep(shape, {64, 1088, 3}, form, Bf16()));
    EXPECT_NEAR(plan::SecondsOf(parts, rates), 3 * 61 * (form == Form::kMha ? 1.188 : 1.152), 1e-6);
  }
}

TEST(Seconds, OfProductsFollowWhatWasMeasured) {
  plan::Rates rates;
  rates.read_bytes = 1;  // not asked
  rates.products = 1;
  rates.measured_products = {{0.5, 1e9}, {8, 16e9}, {32, 32e9}};
  plan::PartWork part;
  part.layers = 1;
  const auto rate = [&](std::int64_t multiply_adds, std::int64_t bytes) {
    part.multiply_adds = multiply_adds;
    part.weight_bytes = bytes;
    return static_cast<double>(multiply_adds) / plan::SecondsOf({part}, rates);
  };
  EXPECT_NEAR(rate(1000, 2000), 1e9, 1);                      // the first point
  EXPECT_NEAR(rate(1000, 4000), 0.5e9, 1);                    // below: the same bytes a second
  EXPECT_NEAR(rate(16000, 2000), 16e9, 10);                   // a point
  EXPECT_NEAR(rate(16000, 1000), 16e9 * std::sqrt(2.0), 10);  // the middle of an octave pair, by a power law
  EXPECT_NEAR(rate(64000, 1000), 32e9, 10);                   // beyond the last
}

plan::Report ReportAt(const std::string& path, plan::ReportOptions options) {
  options.memory.row = Row("bf16");
  return Need(plan::MakeReport(SubjectOf(path), options));
}

plan::Rates Rates(double flops, double bytes) {
  plan::Rates r;
  r.products = r.expand = r.absorb = r.mha = r.absorbed = flops / 2;
  r.read_bytes = bytes;
  return r;
}

TEST(Seconds, AreBoundByTheSlowerOfTheTwoLimits) {
  plan::ReportOptions options;
  options.context = 4096;
  options.rates = Rates(1e30, 1e9);
  const plan::Report by_bytes = ReportAt(LatentConfig("deepseek-v3"), options);
  EXPECT_NEAR(by_bytes.forms[0].seconds, static_cast<double>(by_bytes.forms[0].bytes) / 1e9, 1e-6);
  options.rates = Rates(1e9, 1e30);
  const plan::Report by_work = ReportAt(LatentConfig("deepseek-v3"), options);
  EXPECT_NEAR(by_work.forms[0].seconds, 2 * static_cast<double>(by_work.forms[0].multiply_adds) / 1e9, 1e-3);
  EXPECT_EQ(by_work.times->token, by_work.forms[0].seconds);
}

TEST(Seconds, OfAPromptAreThoseOfItsChunks) {
  plan::ReportOptions options;
  options.context = 1300;
  options.rates = Rates(1e12, 1e11);
  const plan::Report r = ReportAt(LatentConfig("deepseek-v2-lite"), options);
  double mha = 0;
  for (const auto& [rows, keys] : {std::pair<std::int64_t, std::int64_t>{512, 512}, {512, 1024}, {276, 1300}}) {
    mha += plan::SecondsOf(Need(plan::WorkOfStep(r.shape, {rows, keys, 1}, Form::kMha, Bf16())), *options.rates);
  }
  EXPECT_NEAR(r.times->prompt_mha, mha, 1e-9);
  EXPECT_EQ(r.times->first_token(), std::min(r.times->prompt_mha, r.times->prompt_absorbed));
}

TEST(Report, OptionsThatDoNotFitTheModel) {
  plan::ReportOptions options;
  options.memory.row = Row("bf16");
  const plan::Subject subject = SubjectOf(LatentConfig("moonlight"));
  options.context = 8193;
  EXPECT_EQ(plan::MakeReport(subject, options).error().message,
            "--context: expected a number from 1 to 8192, found 8193");
  options.context = 8192;
  options.rows = 9;
  options.keys = 8;
  EXPECT_FALSE(plan::MakeReport(subject, options).ok());
}

}  // namespace
}  // namespace mla::testing
