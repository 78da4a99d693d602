#include "server/stop_strings.h"

#include <algorithm>
#include <utility>

namespace mla::server {

std::size_t PartialSuffix(std::string_view text, std::string_view marker) {
  for (std::size_t n = std::min(text.size(), marker.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == marker.substr(0, n)) return n;
  }
  return 0;
}

std::string StopStrings::Push(std::string_view piece) {
  if (stopped_) return "";
  if (stops_.empty()) return std::string(piece);
  held_ += piece;
  std::size_t first = std::string::npos;
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    keep = std::max(keep, PartialSuffix(held_, stop));
  }
  stopped_ = first != std::string::npos;
  std::string shown = held_.substr(0, stopped_ ? first : held_.size() - keep);
  held_.erase(0, stopped_ ? held_.size() : shown.size());
  return shown;
}

std::string StopStrings::Finish() { return std::exchange(held_, ""); }

}  // namespace mla::server
