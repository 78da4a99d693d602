#include "chat/template_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "chat/parser.h"
#include "io/file.h"
#include "io/quote.h"

namespace mla::chat {
namespace {

using io::JsonValue;
namespace fs = std::filesystem;

constexpr std::size_t kMostTemplates = 64;
constexpr std::array<std::string_view, 7> kTokenNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                         "pad_token", "cls_token", "mask_token"};

// A token is a text, or an object that holds it.
std::optional<std::string> TokenText(const JsonValue& json) {
  const JsonValue* content = json.is_object() ? json.Find("content") : &json;
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return std::string(content->string());
}

Status ReadTokens(const JsonValue& config, const std::string& where, TemplateFiles* files) {
  for (const std::string_view name : kTokenNames) {
    const JsonValue* token = config.Find(name);
    if (token == nullptr || token->is_null()) continue;
    std::optional<std::string> text = TokenText(*token);
    if (!text) return Error{fmt::format("{}: {}: expected a token, found {}", where, name, token->Describe())};
    files->tokens.emplace_back(name, std::move(*text));
  }
  const JsonValue* additional = config.Find("additional_special_tokens");
  if (additional == nullptr || !additional->is_array()) return {};
  std::vector<std::string> tokens;
  for (const JsonValue& token : additional->items()) {
    if (std::optional<std::string> text = TokenText(token)) tokens.push_back(std::move(*text));
  }
  files->token_lists.emplace_back("additional_special_tokens", std::move(tokens));
  return {};
}

Status AddTemplate(TemplateSource source, TemplateFiles* files) {
  if (files->templates.size() == kMostTemplates)
    return Error{fmt::format("{}: more than {} chat templates", source.where, kMostTemplates)};
  for (const TemplateSource& other : files->templates) {
    if (other.name == source.name)
      return Error{fmt::format("{}: two chat templates are named {}", source.where, io::Quoted(source.name))};
  }
  files->templates.push_back(std::move(source));
  return {};
}

Status ReadConfigTemplates(const JsonValue& config, const std::string& where, TemplateFiles* files) {
  const JsonValue* found = config.Find("chat_template");
  if (found == nullptr || found->is_null()) return {};
  const std::string field = where + ": chat_template";
  if (found->is_string()) return AddTemplate({"default", std::string(found->string()), field}, files);
  if (!found->is_array())
    return Error{fmt::format("{}: expected a text or a list, found {}", field, found->Describe())};
  for (const JsonValue& entry : found->items()) {
    const JsonValue* name = entry.Find("name");
    const JsonValue* text = entry.Find("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string())
      return Error{fmt::format("{}: expected {{\"name\", \"template\"}}, found {}", field, entry.Describe())};
    const std::string shown = fmt::format("{} {}", field, io::Quoted(name->string()));
    MLA_RETURN_IF_ERROR(AddTemplate({std::string(name->string()), std::string(text->string()), shown}, files));
  }
  return {};
}

Status ReadTemplate(const fs::path& path, const std::string& name, TemplateFiles* files) {
  MLA_ASSIGN_OR_RETURN(std::string text, io::ReadFile(path.string(), kMostSourceBytes));
  return AddTemplate({name, std::move(text), io::Printable(path.string())}, files);
}

Status ReadFolder(const std::string& dir, TemplateFiles* files) {
  std::error_code fault;
  const fs::path main = fs::path(dir) / "chat_template.jinja";
  if (fs::exists(main, fault)) MLA_RETURN_IF_ERROR(ReadTemplate(main, "default", files));
  std::vector<fs::path> others;
  for (auto it = fs::directory_iterator(fs::path(dir) / "additional_chat_templates", fault);
       !fault && it != fs::directory_iterator(); it.increment(fault)) {
    if (it->path().extension() == ".jinja") others.push_back(it->path());
  }
  for (const fs::path& path : others) MLA_RETURN_IF_ERROR(ReadTemplate(path, path.stem().string(), files));
  return {};
}

}  // namespace

Result<TemplateFiles> ReadTemplateFiles(const std::string& dir) {
  TemplateFiles files;
  MLA_RETURN_IF_ERROR(ReadFolder(dir, &files));
  const std::string config_path = dir + "/tokenizer_config.json";
  std::error_code fault;
  if (fs::exists(config_path, fault)) {
    MLA_ASSIGN_OR_RETURN(const JsonValue config, io::ReadJsonFile(config_path));
    const std::string where = io::Printable(config_path);
    MLA_RETURN_IF_ERROR(ReadTokens(config, where, &files));
    if (files.templates.empty()) MLA_RETURN_IF_ERROR(ReadConfigTemplates(config, where, &files));
  }
  std::sort(files.templates.begin(), files.templates.end(), [](const TemplateSource& a, const TemplateSource& b) {
    return std::pair(a.name != "default", a.name) < std::pair(b.name != "default", b.name);
  });
  return files;
}

}  // namespace mla::chat
