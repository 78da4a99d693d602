// Faults in what an engine does with rows that others made, planted one at a time, and caught by level 4. What each
// comes to is planted: rows that are not those which the page list says.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conformance/data.h"
#include "engine/cache_file.h"
#include "engine/engine_impl.h"
#include "testing/temp_dir.h"
#include "verify/levels.h"
#include "verify/under_proof.h"

namespace mla::testing {
namespace {

using verify::Subject;

UnderProof& SharingFixture() {
  static UnderProof fixture(ConformanceData("deepseek_v3"), WeightDType::kBF16, DType::kBF16);
  return fixture;
}

// An engine of that model like `like`, in a mode, which has run so many ids.
Engine EngineThatRan(const Model& model, const EngineOptions& like, Mode mode, std::span<const std::int32_t> ids,
                     std::int64_t continued) {
  EngineOptions options = like;
  options.mode = mode;
  Engine engine = Need(Engine::Create(model, options, *SharingFixture().pool));
  Request request;
  request.prompt.assign(ids.begin(), ids.end());
  request.continued = continued;
  request.max_tokens = 0;
  const SequenceId id = Need(engine.Submit(request));
  while (engine.Get(id).finish == FinishReason::kNone) EXPECT_TRUE(engine.Step());
  return engine;
}

// A sequence's first page is given out again while it still holds it: to its own next tokens.
void PageFreedEarly(Subject* s) {
  s->faults.before_step = [](Engine* engine) {
    for (const auto& sequence : engine->impl().sequences) {
      if (sequence->computed < 2 * engine->options().page_tokens) continue;
      engine->impl().cache.CopyRows(sequence->pages[1], sequence->pages[0], engine->options().page_tokens);
    }
  };
}

// What a new sequence finds was computed in the other form.
void HitAcrossForms(Subject* s) {
  s->faults.before_step = [](Engine* engine) {
    Engine::Impl& impl = engine->impl();
    engine::Sequence& taker = *impl.sequences.back();
    if (taker.computed == 0 || taker.computed != taker.cached_tokens || !taker.logprobs.empty()) return;
    const Mode other = engine->options().mode == Mode::kAbsorb ? Mode::kMha : Mode::kAbsorb;
    Engine maker = EngineThatRan(impl.model, engine->options(), other, taker.ids, 0);
    const std::vector<std::int32_t>& made = maker.impl().sequences.front()->pages;
    for (std::int64_t layer = 0; layer < impl.cache.layout().layers; ++layer) {
      const CacheLayerView from = maker.impl().cache.Layer(layer);
      const CacheLayerView to = impl.cache.Layer(layer);
      for (std::int64_t p = 0; p < taker.computed; ++p) {
        const auto page = static_cast<std::size_t>(p / to.page_tokens);
        std::memcpy(to.Row(taker.pages[page] * to.page_tokens + p % to.page_tokens),
                    from.Row(made[page] * to.page_tokens + p % to.page_tokens), static_cast<std::size_t>(to.row_bytes));
      }
    }
  };
}

// The fixture with positions turned otherwise.
const Model& OtherRope() {
  static const Model model = [] {
    const TempDir dir;
    std::filesystem::copy(ConformanceData("deepseek_v3"), dir.path(), std::filesystem::copy_options::recursive);
    std::stringstream text;
    text << std::ifstream(dir.File("config.json")).rdbuf();
    std::string config = text.str();
    const std::string theta = "\"rope_theta\": 10000";
    const std::size_t at = config.find(theta);
    EXPECT_NE(at, std::string::npos);
    dir.Write("config.json", config.replace(at, theta.size(), "\"rope_theta\": 20000"));
    return LoadModel(dir.path(), WeightDType::kBF16);
  }();
  return model;
}

// A file whose rows were rotated otherwise, under a fingerprint that was not told.
void StaleRopeFingerprint(Subject* s) {
  s->faults.on_file = [](const std::string& path) {
    engine::CacheFileReader reader = Need(engine::CacheFileReader::Open(path));
    Need(reader.ReadIds());
    const engine::CacheFileContent& content = reader.content();
    EngineOptions options;
    options.kv_dtype = DType::kBF16;
    options.page_tokens = std::ssize(content.ids);
    Engine maker = EngineThatRan(OtherRope(), options, Mode::kRole, content.ids, content.output);
    const std::int64_t page = maker.impl().sequences.front()->pages[0];
    Need(engine::WriteCacheFile(path, content, [&](std::int64_t layer, std::int64_t token) {
      const CacheLayerView view = maker.impl().cache.Layer(layer);
      return std::span(view.Row(page * view.page_tokens + token), static_cast<std::size_t>(view.row_bytes));
    }));
  };
}

void ExpectCaught(const char* name, Mode mode, const std::string& check, void (*plant)(Subject*)) {
  Subject subject = SharingFixture().subject();
  if (plant != nullptr) plant(&subject);
  const verify::Budget budget(600, {});
  verify::Report report;
  Need(verify::ProveSharing(subject, verify::ChooseScope(subject, {}, budget), mode, &report));
  for (const verify::Check& c : report.checks) {
    if (plant == nullptr) {
      EXPECT_EQ(c.verdict, verify::Verdict::kPass) << c.name << " " << c.note;
      continue;
    }
    if (c.name.find(check) == std::string::npos) continue;
    EXPECT_EQ(c.verdict, verify::Verdict::kFail) << c.name;
    fmt::print("| 4 | {} | {} | {:.2e} | bits | {} |\n", name, c.name, c.error, c.where);
    return;
  }
  if (plant != nullptr) ADD_FAILURE() << "no check " << check;
}

TEST(PlantedInSharing, PageFreedEarly) {
  ExpectCaught("page freed early", Mode::kRole, "preemption", PageFreedEarly);
  ExpectCaught("page freed early", Mode::kRole, "fork", PageFreedEarly);
}
TEST(PlantedInSharing, HitAcrossForms) {
  for (const Mode mode : {Mode::kMha, Mode::kAbsorb, Mode::kRole}) {
    ExpectCaught("hit across forms", mode, "prefix hit", HitAcrossForms);
  }
}
TEST(PlantedInSharing, StaleRopeFingerprint) {
  ExpectCaught("stale rope fingerprint", Mode::kRole, "restored", StaleRopeFingerprint);
}
TEST(PlantedInSharing, NothingIsSound) {
  for (const Mode mode : {Mode::kMha, Mode::kAbsorb, Mode::kRole}) ExpectCaught("", mode, "", nullptr);
}

}  // namespace
}  // namespace mla::testing
