#include "cli/run_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/cache_file.h"
#include "io/new_file.h"

namespace mla::cli {

Result<RunPrompt> PromptOf(const RunOptions& o, const Tokenizer* tokenizer, const ModelInfo& model) {
  if (o.load_cache.empty()) {
    MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, PromptIds(o, tokenizer, model));
    return RunPrompt{std::move(ids), 0};
  }
  // The context, and so the engine, is made for what the file has: the engine itself reads it later, and checks it all.
  MLA_ASSIGN_OR_RETURN(engine::CacheFileReader file, engine::CacheFileReader::Open(o.load_cache));
  MLA_RETURN_IF_ERROR(file.RequireAtMost(model.max_position_embeddings, std::numeric_limits<std::int64_t>::max()));
  MLA_RETURN_IF_ERROR(file.ReadIds());
  RunPrompt prompt{file.content().ids, file.content().output};
  if (!o.prompt && o.prompt_file.empty() && !o.ids) return prompt;
  MLA_ASSIGN_OR_RETURN(std::vector<std::int32_t> ids, PromptIds(o, tokenizer, model));
  const bool whole = ids.size() >= prompt.ids.size() && std::equal(prompt.ids.begin(), prompt.ids.end(), ids.begin());
  if (whole) return RunPrompt{std::move(ids), 0};
  // A text's BOS stands at the beginning of the whole.
  const bool bos = !o.ids && tokenizer->bos_id() && !ids.empty() && ids.front() == *tokenizer->bos_id();
  prompt.ids.insert(prompt.ids.end(), ids.begin() + (bos ? 1 : 0), ids.end());
  prompt.continued = 0;
  return prompt;
}

Status CanSave(const RunOptions& o) {
  if (o.save_cache.empty()) return {};
  MLA_ASSIGN_OR_RETURN(io::NewFile file, io::NewFile::Create(o.save_cache));
  file.Discard();
  return {};
}

Status LoadCacheOf(const RunOptions& o, Engine* engine, RunReport* report) {
  if (o.load_cache.empty()) return {};
  const auto begin = Clock::now();
  MLA_ASSIGN_OR_RETURN(const LoadedCache loaded, engine->LoadCache(o.load_cache));
  report->loaded_rows = loaded.rows;
  report->cache_load_seconds = Since(begin);
  return {};
}

Status SaveCacheOf(const RunOptions& o, const Request& request, SequenceId id, Engine* engine, RunReport* report) {
  if (o.save_cache.empty()) return {};
  const auto begin = Clock::now();
  const SequenceView view = engine->Get(id);
  const std::int64_t output = std::ssize(view.output()) + request.continued;
  MLA_ASSIGN_OR_RETURN(report->saved, engine->SaveCache(view.ids, output, o.save_cache));
  report->cache_save_seconds = Since(begin);
  return {};
}

}  // namespace mla::cli
