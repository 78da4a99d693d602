#include "cli/text_input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "text/prompt.h"

namespace mla::cli {
namespace {

constexpr std::size_t kMostTextBytes = std::size_t{64} << 20;

Result<std::string> ReadAll(std::FILE* in, const std::string& name, std::string_view what) {
  std::string text;
  char block[1 << 16];
  for (;;) {
    const std::size_t got = std::fread(block, 1, sizeof(block), in);
    text.append(block, got);
    if (text.size() > kMostTextBytes)
      return Error{fmt::format("{}: a {} of more than {} bytes", name, what, kMostTextBytes)};
    if (got == sizeof(block)) continue;
    if (std::ferror(in) != 0) return Error{fmt::format("{}: {}", name, std::strerror(errno))};
    return text;
  }
}

}  // namespace

Result<std::string> ReadStdin(std::string_view what) {
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs(fmt::format("mla: reading the {} from the terminal; end it with Ctrl-D\n", what).c_str(), stderr);
  }
  return ReadAll(stdin, "stdin", what);
}

Result<std::string> ReadTextFile(const std::string& path, std::string_view what) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return Error{fmt::format("{}: {}", path, std::strerror(errno))};
  return ReadAll(file.get(), path, what);
}

Result<std::vector<std::int32_t>> EncodeText(const std::string& text, bool special, const Tokenizer& tokenizer,
                                             const ModelInfo& model) {
  const auto added = special ? Tokenizer::AddedTokens::kParse : Tokenizer::AddedTokens::kAsText;
  return mla::text::EncodePrompt(tokenizer, text, added, true, model.bos_id, model.vocab_size);
}

}  // namespace mla::cli
