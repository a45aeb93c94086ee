#include "requests/fields.h"

#include <array>
#include <charconv>
#include <limits>

#include "lora/peft/adapter_name.h"
#include "requests/structured.h"

namespace choral::requests {
namespace {

using lora::kBaseName;

constexpr std::string_view kBoolean = R"({"type":"boolean"})";
constexpr std::string_view kString = R"({"type":"string"})";
constexpr std::string_view kInteger = R"({"type":"integer"})";
constexpr std::string_view kSeconds = R"({"type":"number","minimum":0})";
constexpr std::string_view kCount = R"({"type":"integer","minimum":0})";
constexpr std::string_view kNumber = R"({"type":"number"})";
constexpr std::string_view kPenalty = R"({"type":"number","minimum":-2,"maximum":2})";
constexpr std::string_view kShare = R"({"type":"number","minimum":0,"maximum":1})";
constexpr std::string_view kIds = R"({"type":"array","items":{"type":"integer","minimum":0}})";
constexpr std::string_view kLastTokens = R"({"type":"integer","minimum":-1})";
constexpr std::string_view kBias =
    R"({"oneOf":[{"type":"object","additionalProperties":{"type":"number","minimum":-100,"maximum":100}},)"
    R"({"type":"array","items":{"type":"array","minItems":2,"maxItems":2}}]})";
constexpr std::string_view kStrings = R"({"type":"array","items":{"type":"string"}})";
constexpr size_t kMostGiven = 128;  // as n

// -1, as llama.cpp and vLLM write it: none, also where a flag gives one. Other negative ones are seeds of 64 bits.
Status read_seed(std::string_view name, const Json& json, Request& r) {
  auto& out = r.sampling.seed;
  if (!json.is_number_integer()) return wrong_type(name, "a whole number of 64 bits, or -1 for none", json);
  out = json.get<uint64_t>();
  if (!json.is_number_unsigned() && json.get<int64_t>() == -1) out.reset();
  return {};
}

// -1, as llama.cpp writes it: as many as fit.
Status read_max_tokens(std::string_view name, const Json& json, Request& r) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, r.sampling.max_tokens));
  if (r.sampling.max_tokens == -1) r.sampling.max_tokens = kAnyNumber;
  return {};
}

// llama.cpp's own name for it; all below 0 says the same.
Status read_n_predict(std::string_view name, const Json& json, Request& r) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, r.sampling.max_tokens));
  if (r.sampling.max_tokens < 0) r.sampling.max_tokens = kAnyNumber;
  return {};
}

Status read_stop(std::string_view name, const Json& json, Request& r) {
  auto& out = r.sampling.stop;
  out.clear();
  return json.is_array() ? read_value(name, json, out) : read_value(name, json, out.emplace_back());
}

// One way to write each id, so that no id is named twice: no sign, no zero in front.
std::optional<int32_t> token_id(std::string_view key) {
  constexpr size_t kMaxDigits = 10;
  if (key.empty() || key.size() > kMaxDigits || key.front() == '-' || (key.front() == '0' && key.size() > 1)) return std::nullopt;
  int32_t id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size()) return std::nullopt;
  return id;
}

// llama.cpp's [[id or text, bias], …]; false: never.
Status read_bias_list(std::string_view name, const Json& json, SamplingParams& out) {
  for (const auto& entry : json) {
    const std::string place = fmt::format("{}[{}]", name, out.logit_bias.size() + out.logit_bias_texts.size());
    if (!entry.is_array() || entry.size() != 2)
      return wrong_type(place, "a pair of a token id or a text, and a number or false", entry);
    float bias = -std::numeric_limits<float>::infinity();
    if (entry[1] != false) CHORAL_RETURN_IF_ERROR(read_value(place + "[1]", entry[1], bias));
    if (entry[0].is_string()) {
      out.logit_bias_texts.emplace_back(entry[0].get<std::string>(), bias);
      continue;
    }
    int32_t id = 0;
    CHORAL_RETURN_IF_ERROR(read_value(place + "[0]", entry[0], id));
    out.logit_bias.emplace_back(id, bias);
  }
  return {};
}

Status read_logit_bias(std::string_view name, const Json& json, Request& r) {
  r.sampling.logit_bias_texts.clear();
  auto& out = r.sampling.logit_bias;
  out.clear();
  if (json.is_array()) return read_bias_list(name, json, r.sampling);
  if (!json.is_object()) return wrong_type(name, "an object of token ids and numbers, or a list of pairs", json);
  for (const auto& [key, value] : json.items()) {
    const auto id = token_id(key);
    if (!id)
      return invalid_argument("'{}': '{}' is not a token id; write it in digits, without zeros in front", name, shown(key));
    float bias = 0;
    CHORAL_RETURN_IF_ERROR(read_value(fmt::format("{}.{}", name, key), value, bias));
    out.emplace_back(*id, bias);
  }
  return {};
}

Status read_array_text(std::string_view name, const Json& json, std::string& out) {
  if (!json.is_array()) return wrong_type(name, "an array", json);
  out = dumped(json);
  return {};
}

Json template_kwargs(const Request& r) {
  return r.template_kwargs_json.empty() ? Json::object() : Json::parse(r.template_kwargs_json);
}

// What it says goes before what other fields say of the template's variables, wherever they stand.
Status read_template_kwargs(std::string_view name, const Json& json, Request& r) {
  if (!json.is_object()) return wrong_type(name, "an object", json);
  if (r.template_kwargs_json.empty()) return r.template_kwargs_json = dumped(json), Status();
  Json all = template_kwargs(r);
  for (const auto& [key, value] : json.items()) all[key] = value;
  r.template_kwargs_json = dumped(all);
  return {};
}

// A variable of the template that has a field of its own.
void add_template_variable(std::string_view name, const Json& value, Request& r) {
  Json all = template_kwargs(r);
  if (const std::string key(name); !all.contains(key)) all[key] = value;
  r.template_kwargs_json = dumped(all);
}

Status read_documents(std::string_view name, const Json& json, Request& r) {
  if (!json.is_array()) return wrong_type(name, R"(a list of objects such as {"title": "…", "text": "…"})", json);
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_object()) return wrong_type(fmt::format("{}[{}]", name, i), "an object", json[i]);
  }
  add_template_variable(name, json, r);
  return {};
}

// OpenAI's reasoning_effort and verbosity.
Status read_effort(std::string_view name, const Json& json, Request& r) {
  if (!json.is_string()) return wrong_type(name, "a string", json);
  add_template_variable(name, json, r);
  return {};
}

// Of one answer its ids, or of each of several.
Status read_given(std::string_view name, const Json& json, Request& r) {
  r.given.clear();
  if (!json.is_array()) return wrong_type(name, "token ids, or a list of these for each of the n answers", json);
  if (json.empty()) return {};
  if (!json.front().is_array()) return read_value(name, json, r.given.emplace_back().token_ids);
  if (json.size() > kMostGiven) return too_large("'{}' has {} lists; at most {} are taken", name, json.size(), kMostGiven);
  for (const auto& ids : json) {
    const std::string place = fmt::format("{}[{}]", name, r.given.size());
    CHORAL_RETURN_IF_ERROR(read_value(place, ids, r.given.emplace_back().token_ids));
  }
  return {};
}

Status read_truncation_side(std::string_view name, const Json& json, Request& r) {
  if (json != "left" && json != "right") return wrong_type(name, "left or right", json);
  r.truncation_side = json == "left" ? Request::TruncationSide::kLeft : Request::TruncationSide::kRight;
  return {};
}

// false: no tokens are guessed for this answer.
Status read_speculative(std::string_view name, const Json& json, Request& r) {
  bool is_on = true;
  CHORAL_RETURN_IF_ERROR(read_value(name, json, is_on));
  if (!is_on) r.most_guessed = 0;
  return {};
}

// llama.cpp's; 0 and all below say none.
Status read_most_guessed(std::string_view name, const Json& json, Request& r) {
  int32_t most = 0;
  CHORAL_RETURN_IF_ERROR(read_value(name, json, most));
  if (r.most_guessed != 0) r.most_guessed = std::max(most, 0);
  return {};
}

// OpenAI's {"type": "content", "content": a text or its parts}.
Status read_prediction(std::string_view name, const Json& json, Request& r) {
  if (!json.is_object() || json.value("type", Json()) != "content" || !json.contains("content"))
    return wrong_type(name, R"(an object such as {"type": "content", "content": "…"})", json);
  for (const auto& [key, value] : json.items()) {
    if (key != "type" && key != "content")
      return invalid_argument("'{}' has a field '{}'; there are type and content", name, shown(key));
  }
  const Json& content = json["content"];
  r.prediction.clear();
  if (!content.is_array()) return read_value(fmt::format("{}.content", name), content, r.prediction);
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}.content[{}]", name, i);
    const Json& part = content[i];
    if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text"))
      return wrong_type(place, R"(a part such as {"type": "text", "text": "…"})", part);
    std::string text;
    CHORAL_RETURN_IF_ERROR(read_value(fmt::format("{}.text", place), part["text"], text));
    r.prediction += text;
  }
  return {};
}

#define CHORAL_FIELD(name, schema, target)                                                                  \
  Field<Request> {                                                                                          \
#name, schema, [](std::string_view n, const Json& j, Request& r) { return read_value(n, j, r.target); } \
  }
constexpr std::array kPromptFields{
    CHORAL_FIELD(priority, kInteger, priority),
    CHORAL_FIELD(cache_salt, kString, cache_salt),
    CHORAL_FIELD(add_special_tokens, kBoolean, add_special_tokens),
    CHORAL_FIELD(truncate_prompt_tokens, R"({"type":"integer","minimum":-1})", truncate_prompt_tokens),
    Field<Request>{"truncation_side", R"({"type":"string","enum":["left","right"]})", read_truncation_side},
    CHORAL_FIELD(timeout_s, kSeconds, timeout_s),
    CHORAL_FIELD(queue_timeout_s, kSeconds, queue_timeout_s),
};

constexpr std::array kRequestFields{
    CHORAL_FIELD(n, R"({"type":"integer","minimum":1,"maximum":128})", sampling.n),
    CHORAL_FIELD(best_of, R"({"type":"integer","minimum":1,"maximum":128})", sampling.best_of),
    Field<Request>{"max_tokens", R"({"type":"integer","minimum":-1})", read_max_tokens},
    CHORAL_FIELD(min_tokens, kCount, sampling.min_tokens),
    CHORAL_FIELD(temperature, R"({"type":"number","minimum":0,"maximum":2})", sampling.temperature),
    CHORAL_FIELD(top_k, kInteger, sampling.top_k),
    CHORAL_FIELD(top_p, kShare, sampling.top_p),
    CHORAL_FIELD(min_p, kShare, sampling.min_p),
    CHORAL_FIELD(typical_p, kShare, sampling.typical_p),
    CHORAL_FIELD(typ_p, {}, sampling.typical_p),
    CHORAL_FIELD(top_n_sigma, R"({"type":"number","minimum":-1})", sampling.top_n_sigma),
    CHORAL_FIELD(xtc_probability, kShare, sampling.xtc_probability),
    CHORAL_FIELD(xtc_threshold, kShare, sampling.xtc_threshold),
    CHORAL_FIELD(repeat_penalty, {}, sampling.repetition_penalty),
    CHORAL_FIELD(repeat_last_n, kLastTokens, sampling.penalty_last_n),
    CHORAL_FIELD(dry_multiplier, R"({"type":"number","minimum":0})", sampling.dry_multiplier),
    CHORAL_FIELD(dry_base, R"({"type":"number","minimum":1})", sampling.dry_base),
    CHORAL_FIELD(dry_allowed_length, kCount, sampling.dry_allowed_length),
    CHORAL_FIELD(dry_penalty_last_n, kLastTokens, sampling.dry_penalty_last_n),
    CHORAL_FIELD(dry_sequence_breakers, kStrings, sampling.dry_sequence_breakers),
    CHORAL_FIELD(presence_penalty, kPenalty, sampling.presence_penalty),
    CHORAL_FIELD(frequency_penalty, kPenalty, sampling.frequency_penalty),
    CHORAL_FIELD(repetition_penalty, kNumber, sampling.repetition_penalty),
    Field<Request>{"seed", kInteger, read_seed},
    Field<Request>{"stop", R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})", read_stop},
    CHORAL_FIELD(stop_token_ids, kIds, sampling.stop_token_ids),
    CHORAL_FIELD(include_stop_str_in_output, kBoolean, sampling.include_stop_str_in_output),
    CHORAL_FIELD(ignore_eos, kBoolean, sampling.ignore_eos),
    CHORAL_FIELD(skip_special_tokens, kBoolean, sampling.skip_special_tokens),
    CHORAL_FIELD(prompt_logprobs, kCount, sampling.prompt_logprobs),
    Field<Request>{"logit_bias", kBias, read_logit_bias},
    CHORAL_FIELD(allowed_token_ids, kIds, sampling.allowed_token_ids),
    CHORAL_FIELD(bad_words, kStrings, sampling.bad_words),
    CHORAL_FIELD(logprob_token_ids, kIds, sampling.logprob_token_ids),
    Field<Request>{"continue_token_ids",
                   R"({"oneOf":[{"type":"array","items":{"type":"integer","minimum":0}},)"
                   R"({"type":"array","items":{"type":"array","items":{"type":"integer","minimum":0}},"maxItems":128}]})",
                   read_given},
    Field<Request>{"prediction",
                   R"({"type":"object","properties":{"type":{"const":"content"},"content":{"oneOf":[{"type":"string"},)"
                   R"({"type":"array","items":{"type":"object"}}]}},"required":["type","content"]})",
                   read_prediction},
    Field<Request>{"speculative", kBoolean, read_speculative},
    Field<Request>{"speculative.n_max", {}, read_most_guessed},
    Field<Request>{"response_format", R"({"type":"object","properties":{"type":{"type":"string"}},"required":["type"]})",
                   read_response_format},
    Field<Request>{"structured_outputs", R"({"type":"object"})", read_structured_outputs},
    Field<Request>{"guided_json", {}, read_guided},
    Field<Request>{"guided_regex", {}, read_guided},
    Field<Request>{"guided_choice", {}, read_guided},
    Field<Request>{"guided_grammar", {}, read_guided},
    Field<Request>{"grammar", {}, read_body_form},
    Field<Request>{"json_schema", {}, read_body_form},
    Field<Request>{"regex", {}, read_body_form},
    Field<Request>{"ebnf", {}, read_body_form},
    Field<Request>{"n_predict", {}, read_n_predict},
    CHORAL_FIELD(n_cmpl, {}, sampling.n),
};

constexpr std::array kChatFields{
    Field<Request>{"messages", R"({"type":"array","minItems":1,"items":{"type":"object"}})",
                   [](std::string_view n, const Json& j, Request& r) { return read_array_text(n, j, r.messages_json); }},
    Field<Request>{"tools", R"({"type":"array","items":{"type":"object"}})",
                   [](std::string_view n, const Json& j, Request& r) { return read_array_text(n, j, r.tools_json); }},
    Field<Request>{"documents", R"({"type":"array","items":{"type":"object"}})", read_documents},
    Field<Request>{"reasoning_effort", kString, read_effort},
    Field<Request>{"verbosity", kString, read_effort},
    Field<Request>{"chat_template_kwargs", R"({"type":"object"})", read_template_kwargs},
    CHORAL_FIELD(add_generation_prompt, kBoolean, add_generation_prompt),
    CHORAL_FIELD(continue_final_message, kBoolean, continue_final_message),
};
#undef CHORAL_FIELD

}  // namespace

std::span<const Field<Request>> prompt_fields() { return kPromptFields; }
std::span<const Field<Request>> request_fields() { return kRequestFields; }
std::span<const Field<Request>> chat_fields() { return kChatFields; }

Status read_prompt(std::string_view name, const Json& json, Request& r) {
  if (json.is_array()) return read_value(name, json, r.prompt_token_ids);
  return read_value(name, json, r.prompt);
}

Status read_adapter(const std::string& name, const Json& json, AdapterUse& out) {
  if (json.is_string()) return read_value(name, json, out.name);
  if (!json.is_object()) return wrong_type(name, R"(a name or {"name": …, "scale": …})", json);
  bool has_name = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "name") {
      CHORAL_RETURN_IF_ERROR(read_value(name + ".name", value, out.name));
      has_name = true;
    } else if (key == "scale") {
      CHORAL_RETURN_IF_ERROR(read_value(name + ".scale", value, out.scale));
    } else {
      return invalid_argument("'{}' has a field '{}'; there are name and scale", name, shown(key));
    }
  }
  return has_name ? Status() : invalid_argument("'{}' has no name", name);
}

Status read_adapters(std::string_view name, const Json& json, Request& r) {
  r.adapters.clear();
  if (json.is_string()) {
    if (json.get_ref<const std::string&>() != kBaseName) return read_value(name, json, r.adapters.emplace_back().name);
    return {};
  }
  if (!json.is_array()) return wrong_type(name, "a name or a list of names and factors", json);
  for (const auto& entry : json) {
    const std::string place = fmt::format("{}[{}]", name, r.adapters.size());
    CHORAL_RETURN_IF_ERROR(read_adapter(place, entry, r.adapters.emplace_back()));
    if (r.adapters.back().name == kBaseName)
      return invalid_argument("'{}': '{}' is the model without adapters; write \"{}\": \"{}\" or leave the field out", place,
                              kBaseName, name, kBaseName);
  }
  return {};
}

}  // namespace choral::requests
