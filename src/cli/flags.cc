#include "cli/flags.h"

#include <charconv>
#include <cmath>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace mla::cli {

FlagCheck WholeIn(std::uint64_t low, std::uint64_t high) {
  return [=](const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = fault == std::errc() && end == text.data() + text.size() && (text == "0" || text[0] != '0');
    if (whole && value >= low && value <= high) return std::string();
    return fmt::format("expected a whole number from {} to {}, found '{}'", low, high, text);
  };
}

FlagCheck NumberIn(double low, bool closed, double high) {
  return [=](const std::string& text) {
    double value = 0;
    const bool read = CLI::detail::lexical_cast(text, value);
    if (read && (closed ? value >= low : value > low) && value <= high) return std::string();
    return fmt::format("expected a number {} {} and at most {}, found '{}'", closed ? "from" : "above", low, high,
                       text);
  };
}

Result<std::int64_t> ParseSize(const std::string& text) {
  double number = 0;
  const auto [rest, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(rest, text.data() + text.size());
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  for (int i = 0; i < 4; ++i) {
    const std::string letter(1, "KMGT"[i]);
    if (unit == letter || unit == letter + "iB" || unit == letter + "i") scale = std::pow(1024.0, i + 1);
    if (unit == letter + "B") scale = std::pow(1000.0, i + 1);
  }
  if (fault != std::errc() || scale == 0 || !(number * scale >= 1) || number * scale > 1e18) {
    return Error{fmt::format("expected a size such as 8G, 512MiB or 2000000000, found '{}'", text)};
  }
  return static_cast<std::int64_t>(number * scale);
}

}  // namespace mla::cli
