#include "serve/openai/calls.h"

#include <array>
#include <span>
#include <utility>

#include "serve/native/prompt_parts.h"
#include "serve/openai/body_reader.h"
#include "serve/openai/messages.h"
#include "serve/openai/resume_token.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxPrompts = 1024;  // of one body
constexpr size_t kMaxInputs = 2048;   // of an embeddings body, as OpenAI's
constexpr int32_t kMaxTopLogprobs = 20;
constexpr size_t kMaxSalt = 1024;

constexpr std::string_view kBoolean = R"({"type":"boolean"})";
constexpr std::string_view kString = R"({"type":"string"})";
constexpr std::string_view kBudget = R"({"type":"integer","minimum":-1})";
Status read_prompts(std::string_view name, const Json& json, size_t most, std::vector<Prompt>& out) {
  if (json.is_string()) return out.emplace_back(json.get<std::string>()), Status();
  if (!json.is_array() || json.empty()) return wrong_type(name, "a text, token ids, or a list of these that is not empty", json);
  if (json.front().is_number()) {
    std::vector<int32_t> ids;
    CHORAL_RETURN_IF_ERROR(read_value(name, json, ids));
    out.emplace_back(std::move(ids));
    return {};
  }
  if (json.size() > most) return too_large("'{}' has {} entries; at most {} are taken at once", name, json.size(), most);
  for (const auto& entry : json) {
    const std::string place = fmt::format("{}[{}]", name, out.size());
    if (entry.is_string()) {
      out.emplace_back(entry.get<std::string>());
      continue;
    }
    std::vector<int32_t> ids;
    CHORAL_RETURN_IF_ERROR(read_value(place, entry, ids));
    out.emplace_back(std::move(ids));
  }
  return {};
}

Status read_stream_options(std::string_view name, const Json& json, CallHead& head) {
  if (!json.is_object()) return wrong_type(name, "an object", json);
  for (const auto& [key, value] : json.items()) {
    const std::string place = fmt::format("{}.{}", name, key);
    if (value.is_null()) continue;
    if (key == "include_usage") CHORAL_RETURN_IF_ERROR(read_value(place, value, head.include_usage));
    if (key == "include_resume") CHORAL_RETURN_IF_ERROR(read_value(place, value, head.include_resume));
    if (key == "continuous_usage_stats") CHORAL_RETURN_IF_ERROR(read_value(place, value, head.continuous_usage));
  }
  return {};
}

// A text, or its pieces in a list.
Status read_resume(std::string_view name, const Json& json, CallHead& head) {
  if (!json.is_array()) return read_value(name, json, head.resume);
  std::vector<std::string> pieces;
  CHORAL_RETURN_IF_ERROR(read_value(name, json, pieces));
  head.resume.clear();
  for (const auto& piece : pieces) head.resume += piece;
  if (head.resume.empty()) return invalid_argument("'{}' is empty; leave it out, or send what the chunks' `resume` said", name);
  return {};
}

// The members of CallHead, for each of the bodies that begin with one.
template <class Call>
constexpr std::array kHeadFields{
    Field<Call>{"model", kString, read_member<Call, &CallHead::model>},
    Field<Call>{"stream", kBoolean, read_member<Call, &CallHead::stream>},
    Field<Call>{
        "stream_options",
        R"({"type":"object","properties":{"include_usage":{"type":"boolean"},"continuous_usage_stats":{"type":"boolean"},)"
        R"("include_resume":{"type":"boolean"}}})",
        [](std::string_view n, const Json& j, Call& c) { return read_stream_options(n, j, c); }},
    Field<Call>{"lora", kLora, [](std::string_view n, const Json& j, Call& c) { return read_lora(n, j, c); }},
    Field<Call>{"resume", R"({"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]})",
                [](std::string_view n, const Json& j, Call& c) { return read_resume(n, j, c); }},
    Field<Call>{"return_token_ids", kBoolean, read_member<Call, &CallHead::return_token_ids>},
    Field<Call>{"return_tokens_as_token_ids", kBoolean, read_member<Call, &CallHead::tokens_as_token_ids>},
    Field<Call>{"timings_per_token", kBoolean, read_member<Call, &CallHead::timings>},
    Field<Call>{"return_progress", kBoolean, read_member<Call, &CallHead::tells_progress>},
};

constexpr std::array kCompletionFields{
    Field<CompletionCall>{"prompt", kPromptsSchema,
                          [](std::string_view n, const Json& j, CompletionCall& c) {
                            c.prompts.clear();
                            return read_prompts(n, j, kMaxPrompts, c.prompts);
                          }},
    Field<CompletionCall>{"suffix", kString, read_member<CompletionCall, &CompletionCall::suffix>},
    Field<CompletionCall>{"echo", kBoolean, read_member<CompletionCall, &CompletionCall::echo>},
    Field<CompletionCall>{
        "logprobs", R"({"type":"integer","minimum":0})",
        [](std::string_view n, const Json& j, CompletionCall& c) { return read_value(n, j, c.request.sampling.logprobs); }},
    Field<CompletionCall>{
        "prompt_logprobs", R"({"type":"integer","minimum":0})",
        [](std::string_view n, const Json& j, CompletionCall& c) { return read_value(n, j, c.prompt_logprobs); }},
};

struct ChatBody : ChatCall {
  std::optional<int32_t> max_completion_tokens;
  std::optional<int32_t> top_logprobs;
};

// max_tokens and llama.cpp's n_predict: to a chat 0 says nothing.
Status read_length(std::string_view name, const Json& json, ChatBody& body) {
  if (json == 0) return invalid_argument("'{}' is 0; give at least 1", name);
  return requests::find_field(requests::request_fields(), name)->read(name, json, body.request);
}

// OpenRouter's words for what is asked of thoughts.
Status read_reasoning(std::string_view name, const Json& json, ChatBody& body) {
  if (!json.is_object())
    return wrong_type(name, R"(an object such as {"effort": "low", "max_tokens": 500, "exclude": true})", json);
  for (const auto& [key, value] : json.items()) {
    const std::string place = fmt::format("{}.{}", name, key);
    if (value.is_null()) continue;
    if (key == "effort") {
      constexpr std::string_view kEffort = "reasoning_effort";
      CHORAL_RETURN_IF_ERROR(requests::find_field(requests::chat_fields(), kEffort)->read(kEffort, value, body.request));
    } else if (key == "max_tokens") {
      CHORAL_RETURN_IF_ERROR(read_value(place, value, body.thinking_budget));
    } else if (key == "exclude") {
      bool is_hidden = false;
      CHORAL_RETURN_IF_ERROR(read_value(place, value, is_hidden));
      body.include_reasoning = !is_hidden;
    } else if (key != "enabled" || value != true) {
      return unsupported("'{}' is not served; there are effort, max_tokens and exclude", place);
    }
  }
  return {};
}

constexpr std::array kOwnChatFields{
    Field<ChatBody>{"logprobs", kBoolean, read_member<ChatBody, &ChatBody::logprobs>},
    Field<ChatBody>{"top_logprobs", R"({"type":"integer","minimum":0,"maximum":20})",
                    read_member<ChatBody, &ChatBody::top_logprobs>},
    Field<ChatBody>{"max_completion_tokens", R"({"type":"integer","minimum":-1})",
                    read_member<ChatBody, &ChatBody::max_completion_tokens>},
    Field<ChatBody>{"tool_choice", R"({"oneOf":[{"type":"string","enum":["none","auto","required"]},{"type":"object"}]})",
                    [](std::string_view n, const Json& j, ChatBody& c) {
                      if (!j.is_string() && !j.is_object()) return wrong_type(n, "none, auto, required, or an object", j);
                      c.tool_choice_json = dumped(j);
                      return Status();
                    }},
    Field<ChatBody>{"parallel_tool_calls", kBoolean, read_member<ChatBody, &ChatBody::parallel_tool_calls>},
    Field<ChatBody>{"thinking_budget", kBudget, read_member<ChatBody, &ChatBody::thinking_budget>},
    Field<ChatBody>{"thinking_token_budget", {}, read_member<ChatBody, &ChatBody::thinking_budget>},
    Field<ChatBody>{"thinking_budget_tokens", {}, read_member<ChatBody, &ChatBody::thinking_budget>},
    Field<ChatBody>{"reasoning_budget_tokens", {}, read_member<ChatBody, &ChatBody::thinking_budget>},
    Field<ChatBody>{"reasoning", R"({"type":"object"})", read_reasoning},
    Field<ChatBody>{"include_reasoning", kBoolean, read_member<ChatBody, &ChatBody::include_reasoning>},
    Field<ChatBody>{"max_tokens", {}, read_length},
    Field<ChatBody>{"n_predict", {}, read_length},
    Field<ChatBody>{"metadata", R"({"type":"object"})",
                    [](std::string_view n, const Json& j, ChatBody& c) {
                      if (!j.is_object()) return wrong_type(n, "an object", j);
                      c.metadata_json = dumped(j);
                      return Status();
                    }},
};

constexpr std::array kEmbeddingFields{
    Field<EmbeddingCall>{"model", kString, read_member<EmbeddingCall, &EmbeddingCall::model>},
    Field<EmbeddingCall>{"input", kPromptsSchema,
                         [](std::string_view n, const Json& j, EmbeddingCall& c) { return read_inputs(n, j, c); }},
    Field<EmbeddingCall>{"encoding_format", kEncodingSchema,
                         [](std::string_view n, const Json& j, EmbeddingCall& c) { return read_encoding(n, j, c); }},
    Field<EmbeddingCall>{"dimensions", kDimensionsSchema,
                         [](std::string_view n, const Json& j, EmbeddingCall& c) { return read_dimensions(n, j, c); }},
};

constexpr std::array kTokenizeFields{
    Field<TokenizeCall>{"model", kString, read_member<TokenizeCall, &TokenizeCall::model>},
    Field<TokenizeCall>{"prompt", kString,
                        [](std::string_view n, const Json& j, TokenizeCall& c) { return read_value(n, j, c.request.prompt); }},
    Field<TokenizeCall>{"add_special_tokens", kBoolean, read_member<TokenizeCall, &TokenizeCall::add_special_tokens>},
    Field<TokenizeCall>{"return_token_strs", kBoolean, read_member<TokenizeCall, &TokenizeCall::return_token_strs>},
    Field<TokenizeCall>{
        "content",
        {},
        [](std::string_view n, const Json& j, TokenizeCall& c) { return read_mixed_prompt(n, j, c.content.emplace()); }},
    Field<TokenizeCall>{"add_special", kBoolean, read_member<TokenizeCall, &TokenizeCall::add_special_tokens>},
    Field<TokenizeCall>{"parse_special", kBoolean, read_member<TokenizeCall, &TokenizeCall::parse_special>},
    Field<TokenizeCall>{"with_pieces", kBoolean, read_member<TokenizeCall, &TokenizeCall::with_pieces>},
};

constexpr std::array kDetokenizeFields{
    Field<DetokenizeCall>{"model", kString, read_member<DetokenizeCall, &DetokenizeCall::model>},
    Field<DetokenizeCall>{"tokens", R"({"type":"array","items":{"type":"integer","minimum":0}})",
                          read_member<DetokenizeCall, &DetokenizeCall::tokens>},
};

// Out of the body, so that it never stands in memory twice.
Status take_messages(Json& body, ParsedSize& size, Request& request, BodyNotes& notes) {
  const auto found = body.find("messages");
  if (found == body.end() || found->is_null()) return {};
  notes.param = "messages";
  CHORAL_TRY(request.messages_json, template_messages(std::exchange(*found, nullptr), size));
  notes.param.clear();
  return {};
}

// vLLM's body says `prompt` or `messages`, llama.cpp's `content`; what belongs to one means nothing in the other.
Status check_form_of_tokenizing(const Json& json, BodyNotes& notes) {
  constexpr std::array<std::string_view, 4> kOfPrompt{"prompt", "messages", "add_special_tokens", "return_token_strs"};
  constexpr std::array<std::string_view, 3> kOfContent{"add_special", "parse_special", "with_pieces"};
  const bool has_content = json.contains("content");
  for (const auto name : has_content ? std::span<const std::string_view>(kOfPrompt) : kOfContent) {
    if (!json.contains(std::string(name))) continue;
    notes.param = name;
    return has_content ? invalid_argument("'content' is llama.cpp's form and '{}' vLLM's; give one of them", name)
                       : invalid_argument("'{}' goes with 'content', llama.cpp's form", name);
  }
  return {};
}

// "As many as fit" as the engine has it: a prompt is then cut to leave room for one.
void drop_any_number(SamplingParams& sampling) {
  if (sampling.max_tokens == requests::kAnyNumber) sampling.max_tokens = 0;
}

// What `resume` says of the answer so far.
Status take_resume(CallHead& head) {
  if (head.resume.empty()) return {};
  if (!head.request.given.empty())
    return invalid_argument("'resume' and 'continue_token_ids' both say what was given of the answer; give one of them");
  CHORAL_TRY(ResumeToken token, read_resume_token(std::exchange(head.resume, {})));
  auto& seed = head.request.sampling.seed;
  if (seed && *seed != token.origin.seed)
    return invalid_argument("'resume': the answer began with seed {}, and 'seed' is {}; send the body that it began with",
                            token.origin.seed, *seed);
  seed = token.origin.seed;
  head.request.given = std::move(token.given);
  head.request.given_prompt = std::move(token.origin.prompt);
  head.request.given_adapters = std::move(token.origin.adapters);
  head.resume_fingerprint = std::move(token.origin.fingerprint);
  head.goes_on = true;
  return {};
}

Status check_head(CallHead& head, BodyNotes& notes) {
  notes.param = "resume";
  CHORAL_RETURN_IF_ERROR(take_resume(head));
  notes.param.clear();
  if (!head.stream && (head.include_usage || head.continuous_usage || head.include_resume)) {
    notes.param = "stream_options";
    return invalid_argument("'stream_options' is for answers that stream: set 'stream' too");
  }
  return check_salt(head.request, notes);
}

}  // namespace

Status read_inputs(std::string_view name, const Json& json, EmbeddingCall& call) {
  call.inputs.clear();
  return read_prompts(name, json, kMaxInputs, call.inputs);
}

Status read_encoding(std::string_view name, const Json& json, EmbeddingCall& call) {
  if (json != "float" && json != "base64") return wrong_type(name, "float or base64", json);
  call.base64 = json == "base64";
  return {};
}

Status read_dimensions(std::string_view name, const Json& json, EmbeddingCall& call) {
  CHORAL_RETURN_IF_ERROR(read_value(name, json, call.request.embedding_dimensions));
  return call.request.embedding_dimensions >= 1 ? Status() : wrong_type(name, "a number of at least 1", json);
}

Status read_lora(std::string_view name, const Json& json, CallHead& head) {
  head.has_lora = true;
  head.lora_ids.clear();
  if (!json.is_array()) return requests::read_adapters(name, json, head.request);
  Json named = json;
  for (auto& entry : named) {
    int32_t id = -1;
    if (entry.is_object() && entry.contains("id") && !entry.contains("name")) {
      CHORAL_RETURN_IF_ERROR(read_value(fmt::format("{}[{}].id", name, head.lora_ids.size()), entry["id"], id));
      if (id < 0) return wrong_type(name, "a list of adapters whose ids GET /lora-adapters gives", json);
      Json use = Json::object();
      use["name"] = fmt::format("#{}", id);
      if (entry.contains("scale")) use["scale"] = entry["scale"];
      entry = std::move(use);
    }
    head.lora_ids.push_back(id);
  }
  return requests::read_adapters(name, named, head.request);
}

Status check_salt(const Request& r, BodyNotes& notes) {
  if (r.cache_salt.size() <= kMaxSalt) return {};
  notes.param = "cache_salt";
  return too_large("'cache_salt' has {} bytes; at most {} are taken", r.cache_salt.size(), kMaxSalt);
}

Result<CompletionCall> read_completion_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  CompletionCall call;
  call.request.sampling = defaults;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kCompletionFields, call), table(kHeadFields<CompletionCall>, call),
                                      table(requests::prompt_fields(), call.request),
                                      table(requests::request_fields(), call.request)));
  if (call.prompts.empty()) return missing("prompt", notes);
  if (call.include_resume && call.prompts.size() > 1) {
    notes.param = "stream_options";
    return invalid_argument("'stream_options.include_resume' is for bodies of one prompt, and there are {}", call.prompts.size());
  }
  CHORAL_RETURN_IF_ERROR(check_head(call, notes));
  if (call.echo && call.request.truncate_prompt_tokens != 0) {
    notes.param = "truncate_prompt_tokens";
    return invalid_argument("'echo' gives the prompt back as it was sent, 'truncate_prompt_tokens' cuts it; give one of them");
  }
  if (!call.suffix.empty() && (call.echo || call.prompt_logprobs || call.request.truncate_prompt_tokens != 0)) {
    notes.param = "suffix";
    return invalid_argument("'suffix' makes another prompt of the text before the gap: leave out {}",
                            call.echo              ? "'echo'"
                            : call.prompt_logprobs ? "'prompt_logprobs'"
                                                   : "'truncate_prompt_tokens'");
  }
  auto& sampling = call.request.sampling;
  sampling.prompt_logprobs = call.prompt_logprobs;
  if (const int asked = call.prompt_logprobs.value_or(0); call.echo && sampling.logprobs && asked >= 0)
    sampling.prompt_logprobs = std::max(asked, *sampling.logprobs);
  if (sampling.max_tokens == 0) {
    notes.param = "max_tokens";
    if (!call.echo) return invalid_argument("'max_tokens' is 0; give at least 1, or 'echo' too for the prompt alone");
    notes.param.clear();
    if (!call.request.given.empty()) return invalid_argument("'max_tokens' is 0, and a part of the answer is given");
    call.no_tokens = true;
    sampling.max_tokens = 1;
    sampling.min_tokens = 0;
  }
  drop_any_number(sampling);
  return call;
}

Result<ChatCall> read_chat_call(std::string_view body, const SamplingParams& defaults, BodyNotes& notes) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  return read_chat(std::move(json), size, defaults, notes);
}

Result<ChatCall> read_chat(Json json, ParsedSize& size, const SamplingParams& defaults, BodyNotes& notes) {
  ChatBody call;
  CHORAL_RETURN_IF_ERROR(take_messages(json, size, call.request, notes));
  call.request.sampling = defaults;
  call.request.sampling.max_tokens = 0;  // as long as the model's length allows
  Request& r = call.request;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kOwnChatFields, call), table(kHeadFields<ChatBody>, call),
                                      table(requests::chat_fields(), r), table(requests::prompt_fields(), r),
                                      table(requests::request_fields(), r)));
  if (r.messages_json.empty()) return missing("messages", notes);
  if (const auto asked = json.find("add_generation_prompt"); r.continue_final_message && asked != json.end() && *asked == true) {
    notes.param = "continue_final_message";
    return invalid_argument(
        "'continue_final_message' goes on with the last message, 'add_generation_prompt' begins one; give one");
  }
  notes.param.clear();
  CHORAL_RETURN_IF_ERROR(check_head(call, notes));
  if (call.max_completion_tokens) {
    notes.param = "max_completion_tokens";
    const int32_t most = *call.max_completion_tokens;
    if (most < 1 && most != -1)
      return invalid_argument("'max_completion_tokens' is {}; give at least 1, or -1 for as many as fit", most);
    notes.param.clear();
    r.sampling.max_tokens = most == -1 ? 0 : most;
  }
  if (call.thinking_budget < -1) {
    notes.param = "thinking_budget";
    return invalid_argument("'thinking_budget' is {}; give a number of tokens, or -1 for no limit", call.thinking_budget);
  }
  if (call.top_logprobs) {
    notes.param = "top_logprobs";
    if (!call.logprobs) return invalid_argument("'top_logprobs' needs 'logprobs': true");
    if (*call.top_logprobs < 0 || *call.top_logprobs > kMaxTopLogprobs)
      return invalid_argument("'top_logprobs' is {}; give 0 to {}", *call.top_logprobs, kMaxTopLogprobs);
    notes.param.clear();
  }
  if (call.logprobs) r.sampling.logprobs = call.top_logprobs.value_or(0);
  drop_any_number(r.sampling);
  return ChatCall(std::move(call));
}

Result<EmbeddingCall> read_embedding_call(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  EmbeddingCall call;
  CHORAL_RETURN_IF_ERROR(
      read_members(json, notes, table(kEmbeddingFields, call), table(requests::prompt_fields(), call.request)));
  CHORAL_RETURN_IF_ERROR(check_salt(call.request, notes));
  if (call.inputs.empty()) return missing("input", notes);
  return call;
}

Result<TokenizeCall> read_tokenize_call(std::string_view body, BodyNotes& notes) {
  ParsedSize size;
  CHORAL_TRY(Json json, parse_object(body, "the body", size));
  TokenizeCall call;
  CHORAL_RETURN_IF_ERROR(check_form_of_tokenizing(json, notes));
  call.add_special_tokens = !json.contains("content");
  CHORAL_RETURN_IF_ERROR(take_messages(json, size, call.request, notes));
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kTokenizeFields, call), table(requests::chat_fields(), call.request)));
  if (call.content) return call;
  if (call.request.prompt.has_value() == !call.request.messages_json.empty())
    return invalid_argument("give 'prompt', 'messages' or 'content', one of them");
  return call;
}

Result<DetokenizeCall> read_detokenize_call(std::string_view body, BodyNotes& notes) {
  CHORAL_TRY(const Json json, parse_object(body, "the body"));
  if (!json.contains("tokens")) return missing("tokens", notes);
  DetokenizeCall call;
  CHORAL_RETURN_IF_ERROR(read_members(json, notes, table(kDetokenizeFields, call)));
  return call;
}

std::string completion_schema() {
  return schema_of(R"(["prompt"])", std::span<const Field<CompletionCall>>(kCompletionFields),
                   std::span<const Field<CompletionCall>>(kHeadFields<CompletionCall>), requests::prompt_fields(),
                   requests::request_fields());
}

std::string chat_schema() {
  return schema_of(R"(["messages"])", std::span<const Field<ChatBody>>(kOwnChatFields),
                   std::span<const Field<ChatBody>>(kHeadFields<ChatBody>), requests::chat_fields(), requests::prompt_fields(),
                   requests::request_fields());
}

std::string embedding_schema() {
  return schema_of(R"(["input"])", std::span<const Field<EmbeddingCall>>(kEmbeddingFields), requests::prompt_fields());
}

std::string tokenize_schema() {
  return schema_of("[]", std::span<const Field<TokenizeCall>>(kTokenizeFields), requests::chat_fields());
}

std::string detokenize_schema() { return schema_of(R"(["tokens"])", std::span<const Field<DetokenizeCall>>(kDetokenizeFields)); }

}  // namespace choral::serve
