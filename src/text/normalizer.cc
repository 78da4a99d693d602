#include "text/normalizer.h"

#include <fmt/format.h>

namespace mla::text {
namespace {

std::size_t Count(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++count;
  return count;
}

}  // namespace

Result<std::string> Normalizer::Apply(std::string_view text) const {
  std::string result(text);
  if (text.empty()) return result;
  for (const Replacement& step : steps_) {
    if (result.empty()) break;
    const std::size_t places = step.from.empty() ? 1 : Count(result, step.from);
    const std::size_t bytes = result.size() + places * step.to.size();
    if (bytes > kMaxBytes) {
      return Error{fmt::format("expected at most {} bytes after the normalizer, found up to {}", kMaxBytes, bytes)};
    }
    if (step.from.empty()) {
      result.insert(0, step.to);
    } else {
      result = Replaced(result, step);
    }
  }
  return result;
}

}  // namespace mla::text
