// The published config.json of models that people run, out of models/configs.
#ifndef MLA_BENCH_PUBLISHED_CONFIGS_H_
#define MLA_BENCH_PUBLISHED_CONFIGS_H_

#include <span>
#include <string_view>

namespace mla::bench {

struct PublishedConfig {
  std::string_view name;  // "deepseek-v3"
  std::string_view json;
};

// In alphabetical order.
std::span<const PublishedConfig> PublishedConfigs();

}  // namespace mla::bench

#endif  // MLA_BENCH_PUBLISHED_CONFIGS_H_
