#include "text/tokenizer_json.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "base/printable.h"
#include "text/json_fields.h"
#include "text/own_tokens.h"

namespace choral::text {
namespace {

constexpr size_t kMaxFile = size_t{256} << 20;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxTemplates = 64;

Status read_tokenizer(JsonElement root, TokenizerBuilder& builder, size_t& model_size) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(root, "the file"));
  CHORAL_TRY(const std::string_view version, fields.string_or("version", "1.0"));
  if (version != "1.0") return unsupported("version {}; Choral knows 1.0", quoted(version));
  Tokenizer::Parts& parts = builder.parts();
  if (const auto element = fields.find("normalizer")) {
    CHORAL_RETURN_IF_ERROR(read_normalizer(*element, parts.normalizer.steps));
  }
  if (const auto element = fields.find("pre_tokenizer")) {
    CHORAL_RETURN_IF_ERROR(read_pre_tokenizer(*element, parts.pre_tokenizer.steps));
  }
  CHORAL_TRY(const JsonElement model, fields.require("model"));
  CHORAL_RETURN_IF_ERROR(read_model(model, builder, model_size));
  if (fields.find("added_tokens")) {
    CHORAL_TRY(const simdjson::dom::array list, fields.array("added_tokens"));
    CHORAL_TRY(const std::vector<AddedToken> tokens, read_added_tokens(list));
    CHORAL_RETURN_IF_ERROR(builder.add_tokens(tokens, model_size));
  }
  if (const auto element = fields.find("post_processor")) {
    CHORAL_RETURN_IF_ERROR(read_post_processor(*element, parts.templates));
  }
  if (const auto element = fields.find("decoder")) {
    CHORAL_RETURN_IF_ERROR(read_decoder(*element, parts.decoder.steps));
    CHORAL_RETURN_IF_ERROR(check_decoder(parts.decoder.steps));
  } else {
    parts.decoder.joins_with_spaces = true;
  }
  return {};
}

// A token is written as a string or as {"content": …, flags}.
Result<AddedToken> read_token(JsonElement element, std::string_view key) {
  AddedToken token;
  token.normalized = false;
  std::string_view text;
  if (!element.get(text)) {
    token.content = text;
    return token;
  }
  CHORAL_TRY(const JsonFields fields, JsonFields::of(element, key));
  CHORAL_TRY(token.content, fields.string("content"));
  CHORAL_TRY(token.single_word, fields.boolean_or("single_word", false));
  CHORAL_TRY(token.lstrip, fields.boolean_or("lstrip", false));
  CHORAL_TRY(token.rstrip, fields.boolean_or("rstrip", false));
  CHORAL_TRY(token.normalized, fields.boolean_or("normalized", false));
  CHORAL_TRY(token.special, fields.boolean_or("special", false));
  return token;
}

Status read_chat_templates(JsonElement element, std::vector<NamedTemplate>& out) {
  std::string_view text;
  if (!element.get(text)) {
    out.push_back({"default", std::string(text)});
    return {};
  }
  simdjson::dom::array list;
  if (element.get(list)) return corrupt("chat_template is neither a string nor a list");
  for (const JsonElement item : list) {
    CHORAL_TRY(const JsonFields fields, JsonFields::of(item, "chat_template"));
    CHORAL_TRY(const std::string_view name, fields.string("name"));
    CHORAL_TRY(const std::string_view source, fields.string("template"));
    out.push_back({std::string(name), std::string(source)});
    if (out.size() > kMaxTemplates) return too_large("more than {} chat templates", kMaxTemplates);
  }
  if (out.size() == 1) out[0].name = "default";
  return {};
}

// transformers' Llama and Gemma tokenizers write the post-processor anew from these two flags, whatever the file has.
Status apply_bos_eos_flags(const JsonFields& fields, TokenizerBuilder& builder) {
  CHORAL_TRY(const std::string_view type, fields.string_or("tokenizer_class", ""));
  const bool rewrites = type == "LlamaTokenizer" || type == "LlamaTokenizerFast" || type == "GemmaTokenizer" ||
                        type == "GemmaTokenizerFast" || type == "CodeLlamaTokenizer" || type == "CodeLlamaTokenizerFast";
  if (!rewrites || !fields.find("add_bos_token")) return {};
  CHORAL_TRY(const bool add_bos, fields.boolean_or("add_bos_token", true));
  CHORAL_TRY(const bool add_eos, fields.boolean_or("add_eos_token", false));
  Template out(3);
  out[1].sequence = true;
  for (const auto& [wanted, role, item] :
       {std::tuple(add_bos, "bos_token", &out[0]), std::tuple(add_eos, "eos_token", &out[2])}) {
    if (!wanted) continue;
    std::string_view text;
    for (const auto& [key, token] : builder.parts().special_tokens) {
      if (key == role) text = token;
    }
    const std::optional<int32_t> id = text.empty() ? std::nullopt : builder.find(text);
    if (!id) return corrupt("the config asks to add {}, which is not there ({})", role, quoted(text, 100));
    item->ids.push_back(*id);
  }
  builder.parts().templates = {out};
  return {};
}

// {"32000": {"content": …, flags}, …}, by id; none when the config has no such list.
Result<std::vector<AddedToken>> read_added_tokens_decoder(const JsonFields& fields) {
  std::vector<AddedToken> tokens;
  if (!fields.find("added_tokens_decoder")) return tokens;
  CHORAL_TRY(const simdjson::dom::object entries, fields.object("added_tokens_decoder"));
  for (const auto [key, value] : entries) {
    const std::string name(key);
    char* end = nullptr;
    const long long id = std::strtoll(name.c_str(), &end, 10);
    if (name.empty() || *end || id < 0 || id >= kMaxVocabulary) return corrupt("added_tokens_decoder has the id {}", quoted(key));
    CHORAL_TRY(AddedToken token, read_token(value, "added_tokens_decoder"));
    token.id = static_cast<int32_t>(id);
    tokens.push_back(std::move(token));
  }
  std::stable_sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return tokens;
}

// {"<tool>": 32000, …}, as slow tokenizers save them.
Status read_added_tokens_file(JsonElement root, std::vector<AddedToken>& tokens) {
  simdjson::dom::object entries;
  if (root.get(entries)) return corrupt("the file is no object");
  for (const auto [content, value] : entries) {
    int64_t id;
    if (value.get(id) || id < 0 || id >= kMaxVocabulary) return corrupt("token {} has no id", quoted(content, 100));
    tokens.push_back({.content = std::string(content), .id = static_cast<int32_t>(id), .normalized = false});
  }
  return {};
}

}  // namespace

Result<JsonElement> parse_json(simdjson::dom::parser& parser, std::string_view json) {
  if (json.size() > kMaxFile) return too_large("{} bytes; the limit is {}", json.size(), kMaxFile);
  if (const auto error = parser.allocate(std::max<size_t>(json.size(), 64), kMaxDepth)) {
    return resource_exhausted("no memory to parse {} bytes: {}", json.size(), simdjson::error_message(error));
  }
  JsonElement root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    return corrupt("not JSON: {}", simdjson::error_message(error));
  }
  return root;
}

Result<AddedTokenList> read_added_token_list(const AddedTokenFiles& files) {
  AddedTokenList list;
  if (!files.tokenizer_config_json.empty()) {
    simdjson::dom::parser parser;
    CHORAL_TRY(const JsonElement root, parse_json(parser, files.tokenizer_config_json).while_("reading tokenizer_config.json"));
    CHORAL_TRY(const JsonFields fields, JsonFields::of(root, "tokenizer_config.json"));
    CHORAL_TRY(list.tokens, read_added_tokens_decoder(fields).while_("reading tokenizer_config.json"));
    if (const auto eos = fields.find("eos_token")) {
      CHORAL_TRY(const AddedToken token, read_token(*eos, "eos_token").while_("reading tokenizer_config.json"));
      list.eos_token = token.content;
    }
  }
  if (list.tokens.empty() && !files.tokenizer_json.empty()) {
    simdjson::dom::parser parser;
    CHORAL_TRY(const JsonElement root, parse_json(parser, files.tokenizer_json).while_("reading tokenizer.json"));
    CHORAL_TRY(const JsonFields fields, JsonFields::of(root, "tokenizer.json"));
    if (fields.find("added_tokens")) {
      CHORAL_TRY(const simdjson::dom::array added, fields.array("added_tokens"));
      CHORAL_TRY(list.tokens, read_added_tokens(added).while_("reading tokenizer.json"));
    }
  }
  if (list.tokens.empty() && !files.added_tokens_json.empty()) {
    simdjson::dom::parser parser;
    CHORAL_TRY(const JsonElement root, parse_json(parser, files.added_tokens_json).while_("reading added_tokens.json"));
    CHORAL_RETURN_IF_ERROR(read_added_tokens_file(root, list.tokens).while_("reading added_tokens.json"));
  }
  return list;
}

Status read_tokenizer_config(JsonElement root, TokenizerBuilder& builder, size_t model_size) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(root, "the file"));
  CHORAL_TRY(std::vector<AddedToken> tokens, read_added_tokens_decoder(fields));
  std::vector<AddedToken> roles;
  for (const std::string_view role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto value = fields.find(role);
    if (!value) continue;
    CHORAL_TRY(AddedToken token, read_token(*value, role));
    builder.set_special_token(role, token.content);
    roles.push_back(std::move(token));
  }
  if (fields.find("additional_special_tokens")) {
    CHORAL_TRY(const simdjson::dom::array list, fields.array("additional_special_tokens"));
    for (const JsonElement item : list) {
      CHORAL_TRY(AddedToken token, read_token(item, "additional_special_tokens"));
      roles.push_back(std::move(token));
    }
  }
  // A token with a role that no list of added tokens knows becomes a special added token; one that is known stays as it is.
  StringTable listed(tokens.size());
  for (const AddedToken& token : tokens) listed.insert_or_assign(token.content, 0);
  for (AddedToken& token : roles) {
    if (builder.is_added(token.content) || listed.find(token.content) >= 0) continue;
    token.special = true;
    tokens.push_back(token);
  }
  CHORAL_RETURN_IF_ERROR(builder.add_tokens(tokens, model_size));
  if (const auto element = fields.find("chat_template")) {
    CHORAL_RETURN_IF_ERROR(read_chat_templates(*element, builder.parts().chat_templates));
  }
  CHORAL_TRY(builder.parts().decoder.clean_up, fields.boolean_or("clean_up_tokenization_spaces", false));
  return apply_bos_eos_flags(fields, builder);
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                              std::string_view tokenizer_config_json) {
  TokenizerBuilder builder;
  size_t model_size = 0;
  {
    simdjson::dom::parser parser;
    CHORAL_TRY(const JsonElement root, parse_json(parser, tokenizer_json).while_("reading tokenizer.json"));
    CHORAL_RETURN_IF_ERROR(read_tokenizer(root, builder, model_size).while_("reading tokenizer.json"));
  }
  if (!tokenizer_config_json.empty()) {
    simdjson::dom::parser parser;
    CHORAL_TRY(const JsonElement root, parse_json(parser, tokenizer_config_json).while_("reading tokenizer_config.json"));
    CHORAL_RETURN_IF_ERROR(read_tokenizer_config(root, builder, model_size).while_("reading tokenizer_config.json"));
  }
  return builder.build().while_("reading tokenizer.json");
}

}  // namespace choral::text
