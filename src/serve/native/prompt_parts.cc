#include "serve/native/prompt_parts.h"

#include <algorithm>
#include <utility>

namespace choral::serve {
namespace {

constexpr size_t kMostParts = 1024;  // of one prompt

Status read_mixed(const std::string& place, const Json& json, PromptParts& out) {
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i].is_string()) {
      out.emplace_back(json[i].get<std::string>());
    } else {
      if (out.empty() || !std::holds_alternative<std::vector<int32_t>>(out.back())) out.emplace_back(std::vector<int32_t>());
      CHORAL_RETURN_IF_ERROR(
          read_value(fmt::format("{}[{}]", place, i), json[i], std::get<std::vector<int32_t>>(out.back()).emplace_back()));
    }
    if (out.size() > kMostParts) return too_large("'{}' changes between texts and ids more than {} times", place, kMostParts);
  }
  return {};
}

Status read_object(const std::string& place, const Json& json, PromptParts& out) {
  for (const auto& [key, value] : json.items()) {
    if (key == "prompt_string" && value.is_string()) {
      out.emplace_back(value.get<std::string>());
    } else if (key != "multimodal_data" || !(value.is_null() || (value.is_array() && value.empty()))) {
      return unsupported("'{}.{}' is not served: this server reads texts and tokens", place, shown(key));
    }
  }
  return out.empty() ? invalid_argument("'{}.prompt_string' is missing", place) : Status();
}

constexpr std::string_view kOnePrompt = "a text, a list of token ids, which may have texts between them, or a list of these";

Status read_one(const std::string& place, const Json& json, PromptParts& out) {
  if (json.is_string()) return out.emplace_back(json.get<std::string>()), Status();
  if (json.is_object()) return read_object(place, json, out);
  if (!json.is_array() || json.empty()) return wrong_type(place, kOnePrompt, json);
  return read_mixed(place, json, out);
}

bool is_one_prompt(const Json& json) {
  return !json.is_array() || std::any_of(json.begin(), json.end(), [](const Json& entry) { return entry.is_number(); });
}

}  // namespace

Status read_prompt_parts(std::string_view name, const Json& json, size_t most, std::vector<PromptParts>& out) {
  if (is_one_prompt(json)) return read_one(std::string(name), json, out.emplace_back());
  if (json.empty()) return wrong_type(name, kOnePrompt, json);
  if (json.size() > most) return too_large("'{}' has {} entries; at most {} are taken at once", name, json.size(), most);
  for (size_t i = 0; i < json.size(); ++i)
    CHORAL_RETURN_IF_ERROR(read_one(fmt::format("{}[{}]", name, i), json[i], out.emplace_back()));
  return {};
}

Status read_mixed_prompt(std::string_view name, const Json& json, PromptParts& out) {
  if (json.is_string()) return out.emplace_back(json.get<std::string>()), Status();
  if (!json.is_array()) return wrong_type(name, "a text, or a list of texts and token ids", json);
  return read_mixed(std::string(name), json, out);
}

Result<std::vector<int32_t>> tokens_of_parts(const PromptParts& parts, const Vocabulary& vocabulary, bool add_special_tokens,
                                             bool parse_special, size_t most_tokens) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (const auto* text = std::get_if<std::string>(&parts[i])) {
      CHORAL_TRY(const auto tokens, vocabulary.tokenize(*text, add_special_tokens && i == 0, most_tokens, parse_special));
      ids.insert(ids.end(), tokens.begin(), tokens.end());
    } else {
      const auto& given = std::get<std::vector<int32_t>>(parts[i]);
      ids.insert(ids.end(), given.begin(), given.end());
    }
    if (ids.size() > most_tokens) return too_large("there are more than {} tokens", most_tokens);
  }
  return ids;
}

Result<Prompt> joined_prompt(PromptParts parts, const Vocabulary& vocabulary, bool add_special_tokens, size_t most_tokens) {
  if (parts.size() == 1) return std::move(parts.front());
  CHORAL_TRY(auto ids, tokens_of_parts(parts, vocabulary, add_special_tokens, /*parse_special=*/true, most_tokens));
  return Prompt(std::move(ids));
}

}  // namespace choral::serve
