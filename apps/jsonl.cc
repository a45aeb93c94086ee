#include "jsonl.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "adapter_flags.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "indexed_map.h"

namespace choral::apps {
namespace {

using Json = nlohmann::basic_json<IndexedMap>;  // tools go to templates in the order they were written

constexpr int kMaxDepth = 64;
constexpr int64_t kMaxKeys = 1 << 20;    // a hundred bytes each once read
constexpr int64_t kMaxValues = 1 << 22;  // prompts of token ids
constexpr size_t kMaxUnknown = 16;       // fields that are warned about
constexpr size_t kShown = 64;            // bytes of a line in a message

std::string shown(std::string_view text) {
  return text.size() <= kShown ? std::string(text) : std::string(text.substr(0, kShown)) + "…";
}

// From `mark` on; all of it where there is none.
std::string_view from(std::string_view mark, std::string_view text) {
  const size_t at = text.find(mark);
  return at == text.npos ? text : text.substr(at);
}

// Deep nesting and floods of values are refused before the parser sees them.
Status check_shape(std::string_view text) {
  int depth = 0;
  int64_t keys = 0, values = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      ++values;
      if (++depth > kMaxDepth) return too_large("JSON nested deeper than {} levels", kMaxDepth);
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++values;
    } else if (c == ':') {
      ++keys;
    }
  }
  if (keys > kMaxKeys) return too_large("JSON with {} keys; at most {} are read from a line", keys, kMaxKeys);
  if (values > kMaxValues) return too_large("JSON with {} values; at most {} are read from a line", values, kMaxValues);
  return {};
}

Result<Json> parse_object(std::string_view text) {
  CHORAL_RETURN_IF_ERROR(check_shape(text));
  try {
    Json json = Json::parse(text);
    if (!json.is_object())
      return invalid_argument("a request is a JSON object, e.g. {{\"prompt\": \"Hello\"}}; this is {}", json.type_name());
    return json;
  } catch (const Json::out_of_range& e) {  // "[json.exception.out_of_range.406] number overflow parsing '1e400'"
    return invalid_argument("a number of the line is beyond what a double holds: {}", shown(from("'", e.what())));
  } catch (const Json::exception& e) {  // "[json.exception.parse_error.101] parse error at line 1, column 5: …"
    const std::string_view reason = from("column ", e.what());
    constexpr size_t kReason = 200;  // it quotes what was read last
    return corrupt("not JSON: {}{}", reason.substr(0, kReason), reason.size() > kReason ? "…" : "");
  }
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Status wrong_type(std::string_view name, std::string_view wanted, const Json& got) {
  const std::string text = dumped(got);
  return invalid_argument("'{}' must be {}, not {}", name, wanted, shown(text));
}

// --- one reader a type of field ---

Status read(std::string_view name, const Json& json, bool& out) {
  if (!json.is_boolean()) return wrong_type(name, "true or false", json);
  out = json.get<bool>();
  return {};
}

Status read(std::string_view name, const Json& json, int32_t& out) {
  const auto wrong = [&] { return wrong_type(name, "a whole number of at most 32 bits", json); };
  if (!json.is_number_integer()) return wrong();
  constexpr int64_t kLow = std::numeric_limits<int32_t>::min(), kHigh = std::numeric_limits<int32_t>::max();
  if (json.is_number_unsigned() ? json.get<uint64_t>() > static_cast<uint64_t>(kHigh) : json.get<int64_t>() < kLow)
    return wrong();
  out = json.get<int32_t>();
  return {};
}

Status read(std::string_view name, const Json& json, float& out) {
  if (!json.is_number()) return wrong_type(name, "a number", json);
  out = json.get<float>();
  if (!std::isfinite(out)) return wrong_type(name, "a number that a float holds", json);
  return {};
}

Status read(std::string_view name, const Json& json, std::string& out) {
  if (!json.is_string()) return wrong_type(name, "a string", json);
  out = json.get<std::string>();
  return {};
}

template <class T>
Status read(std::string_view name, const Json& json, std::optional<T>& out) {
  T value{};
  CHORAL_RETURN_IF_ERROR(read(name, json, value));
  out = std::move(value);
  return {};
}

template <class T>
Status read(std::string_view name, const Json& json, std::vector<T>& out) {
  if (!json.is_array()) return wrong_type(name, "an array", json);
  out.clear();
  for (const auto& entry : json) {
    const std::string place = fmt::format("{}[{}]", name, out.size());
    CHORAL_RETURN_IF_ERROR(read(place, entry, out.emplace_back()));
  }
  return {};
}

// -1, as llama.cpp writes it: none, also where a flag gives one.
Status read_seed(std::string_view name, const Json& json, std::optional<uint64_t>& out) {
  if (json.is_number_unsigned()) return out = json.get<uint64_t>(), Status();
  if (!json.is_number_integer() || json.get<int64_t>() != -1)
    return wrong_type(name, "a whole number from 0 to 2^64-1, or -1 for none", json);
  out.reset();
  return {};
}

Status read_stop(std::string_view name, const Json& json, std::vector<std::string>& out) {
  if (json.is_array()) return read(name, json, out);
  return read(name, json, out.emplace_back());
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

Status read_logit_bias(std::string_view name, const Json& json, std::vector<std::pair<int32_t, float>>& out) {
  if (!json.is_object()) return wrong_type(name, "an object of token ids and numbers", json);
  out.clear();
  for (const auto& [key, value] : json.items()) {
    const auto id = token_id(key);
    if (!id)
      return invalid_argument("'{}': '{}' is not a token id; write it in digits, without zeros in front", name, shown(key));
    float bias = 0;
    CHORAL_RETURN_IF_ERROR(read(fmt::format("{}.{}", name, key), value, bias));
    out.emplace_back(*id, bias);
  }
  return {};
}

// Kept as JSON for the chat template.
Status read_json(std::string_view name, const Json& json, bool is_array, std::string& out) {
  if (is_array ? !json.is_array() : !json.is_object()) return wrong_type(name, is_array ? "an array" : "an object", json);
  out = dumped(json);
  return {};
}

Status read_prompt(std::string_view name, const Json& json, Request& r) {
  if (json.is_array()) return read(name, json, r.prompt_token_ids);
  return read(name, json, r.prompt);
}

// "name", {"name": …, "scale": …}.
Status read_adapter(const std::string& name, const Json& json, AdapterUse& out) {
  if (json.is_string()) return read(name, json, out.name);
  if (!json.is_object()) return wrong_type(name, R"(a name or {"name": …, "scale": …})", json);
  bool has_name = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "name") {
      CHORAL_RETURN_IF_ERROR(read(name + ".name", value, out.name));
      has_name = true;
    } else if (key == "scale") {
      CHORAL_RETURN_IF_ERROR(read(name + ".scale", value, out.scale));
    } else {
      return invalid_argument("'{}' has a field '{}'; there are name and scale", name, shown(key));
    }
  }
  return has_name ? Status() : invalid_argument("'{}' has no name", name);
}

// A name, or a list of adapters that act together.
Status read_lora(std::string_view name, const Json& json, Request& r) {
  r.adapters.clear();
  if (json.is_string()) {
    if (json.get_ref<const std::string&>() != kBaseName) return read(name, json, r.adapters.emplace_back().name);
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

struct Field {
  std::string_view name;
  Status (*read)(std::string_view name, const Json& json, Request& request);
};

#define CHORAL_FIELD(name, target)                                                            \
  Field {                                                                                     \
#name, [](std::string_view n, const Json& j, Request& r) { return read(n, j, r.target); } \
  }
constexpr std::array kFields{
    Field{"prompt", read_prompt},
    CHORAL_FIELD(prompt_token_ids, prompt_token_ids),
    Field{"messages", [](std::string_view n, const Json& j, Request& r) { return read_json(n, j, true, r.messages_json); }},
    Field{"tools", [](std::string_view n, const Json& j, Request& r) { return read_json(n, j, true, r.tools_json); }},
    Field{"chat_template_kwargs",
          [](std::string_view n, const Json& j, Request& r) { return read_json(n, j, false, r.template_kwargs_json); }},
    CHORAL_FIELD(add_generation_prompt, add_generation_prompt),
    CHORAL_FIELD(add_special_tokens, add_special_tokens),
    CHORAL_FIELD(priority, priority),
    CHORAL_FIELD(cache_salt, cache_salt),
    CHORAL_FIELD(n, sampling.n),
    CHORAL_FIELD(max_tokens, sampling.max_tokens),
    CHORAL_FIELD(min_tokens, sampling.min_tokens),
    CHORAL_FIELD(temperature, sampling.temperature),
    CHORAL_FIELD(top_k, sampling.top_k),
    CHORAL_FIELD(top_p, sampling.top_p),
    CHORAL_FIELD(min_p, sampling.min_p),
    CHORAL_FIELD(presence_penalty, sampling.presence_penalty),
    CHORAL_FIELD(frequency_penalty, sampling.frequency_penalty),
    CHORAL_FIELD(repetition_penalty, sampling.repetition_penalty),
    Field{"seed", [](std::string_view n, const Json& j, Request& r) { return read_seed(n, j, r.sampling.seed); }},
    Field{"stop", [](std::string_view n, const Json& j,
                     Request& r) { return r.sampling.stop.clear(), read_stop(n, j, r.sampling.stop); }},
    CHORAL_FIELD(stop_token_ids, sampling.stop_token_ids),
    CHORAL_FIELD(include_stop_str_in_output, sampling.include_stop_str_in_output),
    CHORAL_FIELD(ignore_eos, sampling.ignore_eos),
    CHORAL_FIELD(skip_special_tokens, sampling.skip_special_tokens),
    CHORAL_FIELD(logprobs, sampling.logprobs),
    CHORAL_FIELD(prompt_logprobs, sampling.prompt_logprobs),
    Field{"logit_bias",
          [](std::string_view n, const Json& j, Request& r) { return read_logit_bias(n, j, r.sampling.logit_bias); }},
    CHORAL_FIELD(allowed_token_ids, sampling.allowed_token_ids),
    CHORAL_FIELD(bad_words, sampling.bad_words),
    Field{"lora", read_lora},
};
#undef CHORAL_FIELD

}  // namespace

bool LineReader::next(std::string& line) {
  line.clear();
  too_long_ = false;
  int c = 0;
  while ((c = std::getc(file_)) != EOF && c != '\n') {
    if (line.size() < kMaxBytes) {
      line.push_back(static_cast<char>(c));
    } else {
      too_long_ = true;
    }
  }
  if (c == EOF && line.empty()) return false;
  ++number_;
  return true;
}

void LineReader::skip_rest() {
  int c = 0;
  while ((c = std::getc(file_)) != EOF && c != '\n') {
  }
  ++number_;
}

RequestLineReader::RequestLineReader(SamplingParams defaults, std::function<void(const std::string&)> warn)
    : defaults_(std::move(defaults)), warn_(std::move(warn)) {}

void RequestLineReader::warn_of_unknown(const std::string& name) {
  if (warned_.size() > kMaxUnknown || !warned_.insert(shown(name)).second) return;
  if (warned_.size() > kMaxUnknown) return warn_("there are more fields that are not known; they have no effect either");
  std::vector<std::string> names;
  for (const Field& f : kFields) names.emplace_back(f.name);
  const std::string nearest = nearest_name(name, names);
  warn_(fmt::format("the field '{}' is not known and has no effect{}", shown(name),
                    nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest)));
}

Status RequestLineReader::read(std::string_view line, RequestLine& out) {
  out.request.sampling = defaults_;
  out.echo = {};
  CHORAL_TRY(const Json json, parse_object(line));
  if (const auto id = json.find("id"); id != json.end()) {
    if (!id->is_string() && !id->is_number_integer() && !id->is_null())
      return wrong_type("id", "a string or a whole number", *id);
    out.echo.id_json = dumped(*id);
    if (!id->is_null()) out.request.id = id->is_string() ? id->get<std::string>() : out.echo.id_json;
  }
  if (const auto lora = json.find("lora"); lora != json.end()) out.echo.lora_json = dumped(*lora);
  for (const auto& [name, value] : json.items()) {
    const auto* field = std::find_if(kFields.begin(), kFields.end(), [&name = name](const Field& f) { return f.name == name; });
    if (field != kFields.end()) {
      if (!value.is_null()) CHORAL_RETURN_IF_ERROR(field->read(name, value, out.request));
    } else if (name != "id") {
      warn_of_unknown(name);
    }
  }
  return {};
}

}  // namespace choral::apps
