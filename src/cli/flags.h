// Checks of flags, and sizes as people write them.
#ifndef MLA_CLI_FLAGS_H_
#define MLA_CLI_FLAGS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "mla/result.h"

namespace mla::cli {

// What CLI11 asks of a check: "" where the text is right, else what is wrong with it.
using FlagCheck = std::function<std::string(const std::string& text)>;

// A whole decimal number in [low, high]: CLI11 itself would read 010 as octal and wrap -1.
FlagCheck WholeIn(std::uint64_t low, std::uint64_t high);

// A number from low (itself allowed only where `closed`) to high; NaN is none.
FlagCheck NumberIn(double low, bool closed, double high);

// "512", "8G", "1.5GiB", "64MiB" -> bytes.
Result<std::int64_t> ParseSize(const std::string& text);

// A check out of a parser's verdict: its message, or nothing where the text is right.
template <class Parse>
FlagCheck Checked(Parse parse) {
  return [parse](const std::string& text) {
    const auto parsed = parse(text);
    return parsed.ok() ? std::string() : parsed.error().message;
  };
}

}  // namespace mla::cli

#endif  // MLA_CLI_FLAGS_H_
