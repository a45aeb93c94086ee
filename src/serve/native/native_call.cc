#include "serve/native/native_call.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "serve/openai/body_reader.h"

namespace choral::serve {
namespace {

constexpr size_t kMostPrompts = 1024;  // of one body
constexpr size_t kMostInputs = 2048;   // of embeddings
constexpr size_t kMostFiles = 1024;
constexpr size_t kMostResponseFields = 64;

constexpr std::string_view kFlag = R"({"type":"boolean"})";
constexpr std::string_view kText = R"({"type":"string"})";
constexpr std::string_view kSlot = R"({"type":"integer","minimum":-1})";
constexpr std::string_view kPartsSchema =
    R"({"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"oneOf":[{"type":"string"},{"type":"integer","minimum":0},)"
    R"({"type":"array","minItems":1,"items":{"oneOf":[{"type":"string"},{"type":"integer","minimum":0}]}}]}}]})";

// As OpenAI's routes take it, lists of pairs included. Keys of an object may be texts here, and its values false.
Status read_biases(std::string_view name, const Json& json, NativeCall& call) {
  const auto* const field = requests::find_field(requests::request_fields(), name);
  if (!json.is_object()) return field->read(name, json, call.request);
  Json pairs = Json::array();
  for (const auto& [key, value] : json.items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = error == std::errc() && end == key.data() + key.size();
    Json pair = Json::array();
    pair.push_back(is_id ? Json(id) : Json(key));
    pair.push_back(value);
    pairs.push_back(std::move(pair));
  }
  return field->read(name, pairs, call.request);
}

Status read_response_fields(std::string_view name, const Json& json, NativeCall& call) {
  if (json.is_array() && json.size() > kMostResponseFields)
    return too_large("'{}' has {} entries; at most {} are taken", name, json.size(), kMostResponseFields);
  return read_value(name, json, call.response_fields);
}

Status read_files(std::string_view name, const Json& json, NativeCall& call) {
  constexpr std::string_view kWanted = R"(a list of {"filename": …, "text": …})";
  if (!json.is_array()) return wrong_type(name, kWanted, json);
  if (json.size() > kMostFiles) return too_large("'{}' has {} entries; at most {} are taken", name, json.size(), kMostFiles);
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& entry = json[i];
    const std::string place = fmt::format("{}[{}]", name, i);
    if (!entry.is_object()) return wrong_type(place, R"({"filename": …, "text": …})", entry);
    if (!entry.contains("text")) return invalid_argument("'{}.text' is missing", place);
    Gap::File& file = call.gap->files.emplace_back(Gap::File{.name = "tmp", .text = ""});
    CHORAL_RETURN_IF_ERROR(read_value(place + ".text", entry["text"], file.text));
    if (entry.contains("filename")) CHORAL_RETURN_IF_ERROR(read_value(place + ".filename", entry["filename"], file.name));
  }
  return {};
}

// What there is one of: no slots hold answers here, and what is computed is kept where it fits.
template <class T>
Status check_only(std::string_view name, const Json& json, NativeCall&) {
  T any{};
  return read_value(name, json, any);
}

Status read_n_probs(std::string_view name, const Json& json, NativeCall& call) {
  int count = 0;
  CHORAL_RETURN_IF_ERROR(read_value(name, json, count));
  if (count < 0) return invalid_argument("'{}' is {}; give 0 or more", name, count);
  call.request.sampling.logprobs = count > 0 ? std::optional(count) : std::nullopt;
  return {};
}

constexpr std::array kNativeFields{
    Field<NativeCall>{"model", kText, read_member<NativeCall, &CallHead::model>},
    Field<NativeCall>{"stream", kFlag, read_member<NativeCall, &CallHead::stream>},
    Field<NativeCall>{"lora", kLora, [](std::string_view n, const Json& j, NativeCall& c) { return read_lora(n, j, c); }},
    Field<NativeCall>{"timings_per_token", kFlag, read_member<NativeCall, &CallHead::timings>},
    Field<NativeCall>{"return_tokens", kFlag, read_member<NativeCall, &NativeCall::return_tokens>},
    Field<NativeCall>{"return_progress", kFlag, read_member<NativeCall, &CallHead::tells_progress>},
    Field<NativeCall>{"n_probs", R"({"type":"integer","minimum":0,"maximum":100})", read_n_probs},
    Field<NativeCall>{"logprobs", {}, read_n_probs},
    Field<NativeCall>{"prompt_logprobs",
                      {},
                      [](std::string_view n, const Json&, NativeCall&) {
                        return unsupported("'{}' is not served by this route; /v1/completions has it", n);
                      }},
    Field<NativeCall>{"response_fields", R"({"type":"array","items":{"type":"string"}})", read_response_fields},
    Field<NativeCall>{"logit_bias", {}, read_biases},
    Field<NativeCall>{
        "max_completion_tokens",
        {},
        [](std::string_view, const Json& j, NativeCall& c) {
          return requests::find_field(requests::request_fields(), "max_tokens")->read("max_completion_tokens", j, c.request);
        }},
    Field<NativeCall>{"id_slot", kSlot, check_only<int32_t>},
    Field<NativeCall>{"cache_prompt", kFlag, check_only<bool>},
};

constexpr std::array kPromptField{
    Field<NativeCall>{"prompt", kPartsSchema,
                      [](std::string_view n, const Json& j, NativeCall& c) {
                        c.prompts.clear();
                        return read_prompt_parts(n, j, kMostPrompts, c.prompts);
                      }},
};

// What editors bound an answer by: without it, it is longer, and they cut it themselves.
Status read_editors_bound(std::string_view name, const Json& json, NativeCall& call) {
  int64_t bound = 0;
  CHORAL_RETURN_IF_ERROR(read_value(name, json, bound));
  if (bound > 0) call.warnings.push_back(fmt::format("'{}' is not served and has no effect; 'n_predict' bounds an answer", name));
  return {};
}

// Editors name the sampler `infill`, which only llama.cpp has; other lists mean what they mean to other routes.
Status read_editors_samplers(std::string_view name, const Json& json, NativeCall& call) {
  if (json.is_array() && std::find(json.begin(), json.end(), "infill") != json.end()) {
    call.warnings.emplace_back("the sampler 'infill' is not served: 'samplers' has no effect");
    return {};
  }
  if (const auto* field = requests::find_field(requests::request_fields(), name)) return field->read(name, json, call.request);
  return requests::check_unserved(name, json);
}

constexpr std::array kGapFields{
    Field<NativeCall>{
        "input_prefix", kText,
        [](std::string_view n, const Json& j, NativeCall& c) { return read_value(n, j, std::get<std::string>(c.gap->before)); }},
    Field<NativeCall>{"input_suffix", kText,
                      [](std::string_view n, const Json& j, NativeCall& c) { return read_value(n, j, c.gap->behind); }},
    Field<NativeCall>{"prompt", kText,
                      [](std::string_view n, const Json& j, NativeCall& c) { return read_value(n, j, c.gap->begun); }},
    Field<NativeCall>{"n_indent", {}, read_editors_bound},
    Field<NativeCall>{"t_max_prompt_ms", {}, read_editors_bound},
    Field<NativeCall>{"t_max_predict_ms", {}, read_editors_bound},
    Field<NativeCall>{"samplers", {}, read_editors_samplers},
    Field<NativeCall>{"input_extra",
                      R"({"type":"array","items":{"type":"object","required":["text"],)"
                      R"("properties":{"filename":{"type":"string"},"text":{"type":"string"}}}})",
                      read_files},
};

constexpr std::array kNativeEmbeddingFields{
    Field<NativeEmbeddingCall>{"model", kText, read_member<NativeEmbeddingCall, &NativeEmbeddingCall::model>},
    Field<NativeEmbeddingCall>{"content", kPartsSchema,
                               [](std::string_view n, const Json& j, NativeEmbeddingCall& c) {
                                 c.inputs.clear();
                                 return read_prompt_parts(n, j, kMostInputs, c.inputs);
                               }},
    Field<NativeEmbeddingCall>{"input", kPartsSchema,
                               [](std::string_view n, const Json& j, NativeEmbeddingCall& c) {
                                 c.inputs.clear();
                                 return read_prompt_parts(n, j, kMostInputs, c.inputs);
                               }},
    Field<NativeEmbeddingCall>{"embd_normalize", R"({"type":"integer","minimum":0,"maximum":64})",
                               [](std::string_view n, const Json& j, NativeEmbeddingCall& c) {
                                 constexpr int kMostPower = 64;
                                 CHORAL_RETURN_IF_ERROR(read_value(n, j, c.norm));
                                 if (c.norm == -1)
                                   return unsupported("'{}' of -1 is not served: vectors have length 1 before they are given", n);
                                 if (c.norm < 0 || c.norm > kMostPower)
                                   return invalid_argument("'{}' is {}; give 0 to {}", n, c.norm, kMostPower);
                                 return Status();
                               }},
    Field<NativeEmbeddingCall>{"encoding_format", R"({"type":"string","enum":["float"]})",
                               [](std::string_view n, const Json& j, NativeEmbeddingCall&) {
                                 if (j == "float") return Status();
                                 return unsupported("'{}' is float here; /v1/embeddings has base64", n);
                               }},
    Field<NativeEmbeddingCall>{"dimensions",
                               {},
                               [](std::string_view n, const Json&, NativeEmbeddingCall&) {
                                 return unsupported("'{}' is not served: the vectors of this model cannot be cut", n);
                               }},
};

// What both kinds of bodies come to.
Status finish_reading(NativeCall& call, BodyNotes& notes) {
  auto& sampling = call.request.sampling;
  if (sampling.max_tokens == 0) {
    call.no_tokens = true;
    sampling.max_tokens = 1;
    sampling.min_tokens = 0;
    sampling.logprobs.reset();
  } else if (sampling.max_tokens == requests::kAnyNumber) {
    sampling.max_tokens = 0;  // the engine's word for it
  }
  return check_salt(call.request, notes);
}

// What a body must have.
constexpr std::array<std::string_view, 1> kPromptText{"prompt"};
constexpr std::array<std::string_view, 2> kGapTexts{"input_prefix", "input_suffix"};

template <size_t kCount>
Result<NativeCall> read_call(std::string_view body, const SamplingParams& defaults,
                             const std::array<Field<NativeCall>, kCount>& own, NativeCall call, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  for (const std::string_view name : call.gap ? std::span<const std::string_view>(kGapTexts) : kPromptText) {
    if (const auto found = json.find(std::string(name)); found == json.end() || found->is_null()) return missing(name, notes);
  }
  call.request.sampling = defaults;
  call.request.sampling.max_tokens = requests::kAnyNumber;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(own, call), table(kNativeFields, call),
                                      table(requests::prompt_fields(), call.request),
                                      table(requests::request_fields(), call.request)));
  CHORAL_RETURN_IF_ERROR(finish_reading(call, notes));
  for (auto& warning : call.warnings) notes.warnings.push_back(std::move(warning));
  return call;
}

using Fields = std::span<const Field<NativeCall>>;

}  // namespace

Result<NativeCall> read_native_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes) {
  return read_call(body, defaults, kPromptField, {}, notes);
}

Result<NativeCall> read_infill_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes) {
  NativeCall call;
  call.gap.emplace();
  CHORAL_TRY(call, read_call(body, defaults, kGapFields, std::move(call), notes));
  if (call.request.truncate_prompt_tokens != 0) {
    notes.param = "truncate_prompt_tokens";
    return invalid_argument("'truncate_prompt_tokens' would cut the marks of the gap; send less around it");
  }
  return call;
}

Result<NativeEmbeddingCall> read_native_embedding_call(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  NativeEmbeddingCall call;
  CHORAL_RETURN_IF_ERROR(
      read_members(json, notes, table(kNativeEmbeddingFields, call), table(requests::prompt_fields(), call.request)));
  CHORAL_RETURN_IF_ERROR(check_salt(call.request, notes));
  if (call.inputs.empty()) return missing("content", notes);
  return call;
}

std::string native_schema() {
  return schema_of(R"(["prompt"])", Fields(kPromptField), Fields(kNativeFields), requests::prompt_fields(),
                   requests::request_fields());
}

std::string infill_schema() {
  return schema_of(R"(["input_prefix","input_suffix"])", Fields(kGapFields), Fields(kNativeFields), requests::prompt_fields(),
                   requests::request_fields());
}

std::string native_embedding_schema() {
  return schema_of("[]", std::span<const Field<NativeEmbeddingCall>>(kNativeEmbeddingFields), requests::prompt_fields());
}

}  // namespace choral::serve
