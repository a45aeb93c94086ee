#include "serve/ollama/ollama_call.h"

#include <array>
#include <utility>

#include "serve/openai/body_reader.h"
#include "serve/openai/engine_fields.h"

namespace choral::serve {
namespace {

// Of `options`: said in the same words in a chat.
constexpr std::array<std::string_view, 11> kSameOptions{
    "temperature",       "top_k", "top_p",      "min_p", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty",
    "frequency_penalty", "stop",  "top_n_sigma"};
// About how a model is loaded, which the server's flags say: its answer is the same.
constexpr std::array<std::string_view, 14> kOfLoading{"num_ctx",  "num_keep",   "num_batch",  "num_gpu",       "main_gpu",
                                                      "low_vram", "f16_kv",     "use_mmap",   "use_mlock",     "num_thread",
                                                      "numa",     "vocab_only", "logits_all", "embedding_only"};
// Refused where they would change the answer.
constexpr std::array<std::string_view, 2> kOther{"mirostat", "tfs_z"};
constexpr std::array<std::string_view, 2> kTuneWhatIsOff{"mirostat_tau", "mirostat_eta"};

struct OllamaField {
  std::string_view name;
  std::string_view neutral;  // a list of values that ask for nothing
  std::string_view instead;
};
constexpr std::array kRefused{
    OllamaField{"images", "[[]]", "models here read text alone"},
    OllamaField{"suffix", R"([""])", "/v1/completions and /infill fill gaps"},
    OllamaField{"template", R"([""])", "the server's own is used (--chat-template); 'raw' takes a prompt as it is"},
    OllamaField{"context", "[[]]", "send the conversation to /api/chat"},
    OllamaField{"logprobs", "[false]", "/v1/chat/completions has them"},
    OllamaField{"top_logprobs", "[0]", "/v1/chat/completions has them"},
    OllamaField{"dimensions", "[0]", "the vectors of this model cannot be cut"},
    OllamaField{"width", "[0]", "no model here makes images"},
    OllamaField{"height", "[0]", "no model here makes images"},
    OllamaField{"steps", "[0]", "no model here makes images"},
};

// Fine where the body does not ask for what the field is about. Nothing: it is none of them.
std::optional<Status> check_refused(std::string_view name, const Json& value) {
  const auto* const field = std::find_if(kRefused.begin(), kRefused.end(), [&](const auto& f) { return f.name == name; });
  if (field == kRefused.end()) return std::nullopt;
  const Json neutral = Json::parse(field->neutral);
  if (std::find(neutral.begin(), neutral.end(), value) != neutral.end()) return Status();
  return unsupported("'{}' is not served: {}", name, field->instead);
}

Status check_keep_alive(const Json& value) {
  if (value.is_string() || value.is_number()) return {};
  return wrong_type("keep_alive", "a time such as \"5m\" or a number of seconds", value);
}

// Makes a chat's body of Ollama's.
class OllamaReader {
 public:
  OllamaReader(Json& body, OllamaCall& call, BodyNotes& notes) : body_(body), call_(call), notes_(notes) {
    chat_.get_ref<Json::object_t&>().reserve(kMostMembers);  // an object that grows copies its members
    chat_["stream"] = true;                                  // which is usual there
  }

  Status read() {
    for (auto& [name, value] : body_.items()) {
      if (value.is_null()) continue;
      notes_.param = shown(name);
      CHORAL_RETURN_IF_ERROR(call_.is_chat ? read_chat_member(name, value) : read_generate_member(name, value));
    }
    notes_.param.clear();
    if (thinks_) {
      Json variables{{"enable_thinking", *thinks_}, {"thinking", *thinks_}};
      if (const auto said = chat_.find("chat_template_kwargs"); said != chat_.end() && said->is_object()) variables.update(*said);
      chat_["chat_template_kwargs"] = std::move(variables);
    }
    return {};
  }

  Json& chat() { return chat_; }
  std::string prompt, system;  // of /api/generate

 private:
  static constexpr size_t kMostMembers = 64;

  Status read_chat_member(const std::string& name, Json& value) {
    if (name == "messages") return read_messages(value);
    if (name == "tools") return chat_[name] = std::move(value), Status();
    return read_either(name, value);
  }

  Status read_generate_member(const std::string& name, Json& value) {
    if (name == "prompt") return read_value(name, value, prompt);
    if (name == "system") return read_value(name, value, system);
    if (name == "raw") return read_value(name, value, call_.is_raw);
    return read_either(name, value);
  }

  Status read_either(const std::string& name, Json& value) {
    if (name == "model" || name == "name") return read_model(name, value);
    if (name == "stream" || is_one_of(kEngineFields, name)) return chat_[name] = std::move(value), Status();
    if (name == "options") return read_options(value);
    if (name == "format") return read_format(value);
    if (name == "think") return read_think(value);
    if (name == "keep_alive") return check_keep_alive(value);
    if (auto refused = check_refused(name, value)) return *std::move(refused);
    return meet_unread(name, value, notes_, [this] {
      std::vector<std::string> names{"model", "stream", "options", "format", "think", "keep_alive"};
      for (const char* own : {"messages", "tools"}) {
        if (call_.is_chat) names.emplace_back(own);
      }
      for (const char* own : {"prompt", "system", "raw"}) {
        if (!call_.is_chat) names.emplace_back(own);
      }
      names.insert(names.end(), kEngineFields.begin(), kEngineFields.end());
      return names;
    });
  }

  Status read_model(const std::string& name, const Json& value) {
    std::string model;
    CHORAL_RETURN_IF_ERROR(read_value(name, value, model));
    chat_["model"] = without_tag(model);
    return {};
  }

  // `thinking` of earlier turns goes by another name in a chat; a call's arguments are objects already.
  Status read_messages(Json& messages) {
    if (!messages.is_array()) return wrong_type("messages", "a list of messages", messages);
    for (size_t i = 0; i < messages.size(); ++i) {
      if (!messages[i].is_object()) continue;  // is told where messages are read
      Json message = Json::object();
      for (auto& [name, value] : messages[i].items()) {
        if (name == "images" && !value.is_null() && !(value.is_array() && value.empty()))
          return unsupported("'messages[{}].images' is not served: models here read text alone", i);
        if (name == "images" || value.is_null()) continue;
        message[name == "thinking" ? "reasoning_content" : name == "tool_name" ? "name" : name] = std::move(value);
      }
      messages[i] = std::move(message);
    }
    call_.asks_nothing = messages.empty();
    chat_["messages"] = std::move(messages);
    return {};
  }

  Status read_options(Json& options) {
    if (!options.is_object()) return wrong_type("options", "an object", options);
    for (auto& [name, value] : options.items()) {
      if (value.is_null()) continue;
      notes_.param = "options." + shown(name);
      CHORAL_RETURN_IF_ERROR(read_option(name, value));
    }
    return {};
  }

  Status read_option(const std::string& name, Json& value) {
    if (is_one_of(kSameOptions, name)) return chat_[name] = std::move(value), Status();
    if (name == "seed") {  // below 0: any
      int64_t seed = 0;
      CHORAL_RETURN_IF_ERROR(read_value(name, value, seed));
      if (seed >= 0) chat_[name] = seed;
      return {};
    }
    if (name == "num_predict") {  // below 0: as many as fit
      int32_t most = 0;
      CHORAL_RETURN_IF_ERROR(read_value(name, value, most));
      chat_["max_tokens"] = most < 0 ? -1 : most;
      return {};
    }
    if (name == "penalize_newline") {
      if (value == true) return {};
      return unsupported("'options.penalize_newline' is not served; leave it out");
    }
    if (is_one_of(kOther, name)) return requests::check_unserved(name, value);
    if (is_one_of(kOfLoading, name) || is_one_of(kTuneWhatIsOff, name)) return {};
    return meet_unread(name, value, notes_, [] {
      std::vector<std::string> names{"seed", "num_predict"};
      names.insert(names.end(), kSameOptions.begin(), kSameOptions.end());
      names.insert(names.end(), kOfLoading.begin(), kOfLoading.end());
      return names;
    });
  }

  // "json", or a schema.
  Status read_format(Json& format) {
    if (format == "") return {};
    if (format == "json") {
      chat_["response_format"] = {{"type", "json_object"}};
    } else if (format.is_object()) {
      chat_["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "output"}, {"schema", std::move(format)}}}};
    } else {
      return wrong_type("format", "\"json\" or a JSON Schema", format);
    }
    return {};
  }

  Status read_think(const Json& think) {
    if (think.is_boolean()) {
      thinks_ = think.get<bool>();
      call_.shows_thoughts = *thinks_;
    } else if (think == "low" || think == "medium" || think == "high") {
      thinks_ = true;
      chat_["reasoning_effort"] = think;
    } else {
      return wrong_type("think", "true, false, low, medium or high", think);
    }
    return {};
  }

  Json& body_;
  OllamaCall& call_;
  BodyNotes& notes_;
  Json chat_ = Json::object();
  std::optional<bool> thinks_;  // absent: as the template has it
};

// A conversation of one turn, or the prompt as it is.
Status put_prompt(OllamaReader& reader, bool has_template, OllamaCall& call, BodyNotes& notes) {
  call.is_raw = call.is_raw || !has_template;
  call.asks_nothing = reader.prompt.empty();
  if (call.is_raw && !reader.system.empty()) {
    notes.param = "system";
    return invalid_argument("'system' is for a chat template, and {}",
                            has_template ? "'raw' asks for none" : "this model has none");
  }
  Json messages = Json::array();
  if (!reader.system.empty()) messages.push_back({{"role", "system"}, {"content", reader.system}});
  messages.push_back({{"role", "user"}, {"content", reader.prompt}});
  reader.chat()["messages"] = std::move(messages);
  return {};
}

constexpr std::string_view kSharedSchema =
    R"("model":{"type":"string"},"stream":{"type":"boolean"},"options":{"type":"object"},)"
    R"("format":{"oneOf":[{"type":"string"},{"type":"object"}]},"think":{"oneOf":[{"type":"boolean"},{"type":"string"}]},)"
    R"("keep_alive":{"oneOf":[{"type":"string"},{"type":"number"}]})";

}  // namespace

std::string_view without_tag(std::string_view model) {
  constexpr std::string_view kTag = ":latest";
  if (model.ends_with(kTag)) model.remove_suffix(kTag.size());
  return model;
}

Result<OllamaCall> read_ollama_chat(std::string_view body, const SamplingParams& defaults, BodyNotes& notes) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  OllamaCall call;
  OllamaReader reader(json, call, notes);
  CHORAL_RETURN_IF_ERROR(reader.read());
  if (!reader.chat().contains("model")) return missing("model", notes);
  if (!reader.chat().contains("messages")) call.asks_nothing = true;
  if (call.asks_nothing) reader.chat()["messages"] = Json::array({{{"role", "user"}, {"content", ""}}});
  CHORAL_TRY(call.chat, read_chat(std::move(reader.chat()), size, defaults, notes));
  return call;
}

Result<OllamaCall> read_ollama_generate(std::string_view body, const SamplingParams& defaults, bool has_template,
                                        BodyNotes& notes) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  OllamaCall call;
  call.is_chat = false;
  OllamaReader reader(json, call, notes);
  CHORAL_RETURN_IF_ERROR(reader.read());
  if (!reader.chat().contains("model")) return missing("model", notes);
  CHORAL_RETURN_IF_ERROR(put_prompt(reader, has_template, call, notes));
  CHORAL_TRY(call.chat, read_chat(std::move(reader.chat()), size, defaults, notes));
  if (call.is_raw) {
    call.chat.request.messages_json.clear();
    call.chat.request.prompt = std::move(reader.prompt);
  }
  return call;
}

Result<EmbeddingCall> read_ollama_embed(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(Json json, parse_object(body, "the body"));
  Json out = Json::object();
  bool is_cut = true;
  for (auto& [name, value] : json.items()) {
    if (value.is_null()) continue;
    notes.param = shown(name);
    if (name == "truncate") {
      CHORAL_RETURN_IF_ERROR(read_value(name, value, is_cut));
    } else if (name == "keep_alive") {
      CHORAL_RETURN_IF_ERROR(check_keep_alive(value));
    } else if (name == "options") {  // no sampling, and nothing of loading
      if (!value.is_object()) return wrong_type(name, "an object", value);
    } else if (name == "model") {
      std::string model;
      CHORAL_RETURN_IF_ERROR(read_value(name, value, model));
      out[name] = without_tag(model);
    } else if (auto refused = check_refused(name, value)) {
      CHORAL_RETURN_IF_ERROR(*refused);
    } else {
      out[name] = std::move(value);
    }
  }
  notes.param.clear();
  if (!out.contains("model")) return missing("model", notes);
  if (is_cut && !out.contains("truncate_prompt_tokens")) {
    out["truncate_prompt_tokens"] = -1;
    out["truncation_side"] = "right";
  }
  return read_embedding_call(dumped(out), notes);
}

Result<std::string> read_ollama_model(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  std::string model;
  for (const auto& [name, value] : json.items()) {
    if (value.is_null() || name == "verbose") continue;
    notes.param = shown(name);
    if (name == "model" || name == "name") {
      CHORAL_RETURN_IF_ERROR(read_value(name, value, model));
    } else {
      CHORAL_RETURN_IF_ERROR(meet_unread(name, value, notes, [] { return std::vector<std::string>{"model", "verbose"}; }));
    }
  }
  if (model.empty()) return missing("model", notes);
  notes.param.clear();
  return std::string(without_tag(model));
}

std::string ollama_chat_schema() {
  return fmt::format(
      R"({{"type":"object","required":["model"],"properties":{{{},"messages":{{"type":"array","items":{{"type":"object"}}}},)"
      R"("tools":{{"type":"array","items":{{"type":"object"}}}}}}}})",
      kSharedSchema);
}

std::string ollama_generate_schema() {
  return fmt::format(R"({{"type":"object","required":["model"],"properties":{{{},"prompt":{{"type":"string"}},)"
                     R"("system":{{"type":"string"}},"raw":{{"type":"boolean"}}}}}})",
                     kSharedSchema);
}

std::string ollama_embed_schema() {
  return R"({"type":"object","required":["model","input"],"properties":{"model":{"type":"string"},"input":{"oneOf":[{"type":"string"},)"
         R"({"type":"array","items":{"type":"string"}}]},"truncate":{"type":"boolean"},"options":{"type":"object"},)"
         R"("keep_alive":{"oneOf":[{"type":"string"},{"type":"number"}]}}})";
}

std::string ollama_show_schema() {
  return R"({"type":"object","required":["model"],"properties":{"model":{"type":"string"},"verbose":{"type":"boolean"}}})";
}

}  // namespace choral::serve
