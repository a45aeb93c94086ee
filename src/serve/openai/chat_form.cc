// /v1/chat/completions: chat.completion objects and chunks.
#include <utility>

#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/logprobs_json.h"
#include "serve/openai/long_json.h"
#include "serve/tools/tool_call_id.h"

namespace choral::serve {
namespace {

class ChatForm : public AnswerForm {
 public:
  ChatForm(AnswerHead head, const ChatCall& call, PromptTokens prompts, ToolPlan tools, TokenText token_text)
      : head_(std::move(head)),
        metadata_(call.metadata_json.empty() ? Json() : Json::parse(call.metadata_json)),
        include_usage_(call.include_usage),
        continuous_usage_(call.continuous_usage),
        token_ids_(call.return_token_ids),
        logprobs_(call.logprobs),
        beside_(tokens_beside(call.request.sampling)),
        prompt_logprobs_(call.request.sampling.prompt_logprobs),
        prompts_(std::move(prompts)),
        names_{std::move(token_text), call.tokens_as_token_ids},
        tools_(std::move(tools)),
        choices_(static_cast<size_t>(call.request.sampling.n)) {
    if (!tools_.reads_calls()) return;
    for (auto& choice : choices_) choice.calls.emplace(parser(ToolCallParser::Announce::kEarly));
  }

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const RequestOutput& output = outputs.front();
    LongObject answer(head("chat.completion"));
    if (!metadata_.is_null()) answer.add("metadata", metadata_);
    answer.add("choices",
               LongList{output.completions.size(), [this, &output](size_t i) { return choice(output.completions[i]); }});
    answer.add("usage", usage_json(usage_of(outputs)));
    if (prompt_logprobs_) answer.add("prompt_logprobs", long_prompt_logprobs(output.prompt_logprobs, *prompt_logprobs_, names_));
    if (token_ids_) answer.add("prompt_token_ids", Json(output.prompt_token_ids));
    return long_text(std::move(answer));
  }

  std::string piece(size_t, const StreamEvent& event, const Usage& so_far) override {
    std::string text;
    Choice& state = choices_[static_cast<size_t>(event.index)];
    if (!std::exchange(state.begun, true)) text = first_chunk(event, so_far);
    Json choice = delta(event.index, news(state, event));
    if (logprobs_ && !event.logprobs.empty()) choice["logprobs"] = logprobs(event.logprobs);
    choice["finish_reason"] = finish_reason(event.finish_reason, state.calls && state.calls->calls() > 0);
    if (event.finish_reason != FinishReason::kNone) choice["stop_reason"] = stop_reason_json(event.stop_reason);
    if (token_ids_) choice["token_ids"] = event.token_ids;
    // A token whose text is held back says nothing yet.
    const bool is_silent = choice["delta"].empty() && event.finish_reason == FinishReason::kNone && !token_ids_ && !logprobs_;
    if (is_silent) return text;
    Json json = chunk(std::move(choice), continuous(so_far));
    if (event.finish_reason != FinishReason::kNone) add_adapters(adapters(), json);
    return text + sse(json);
  }

  std::string end(const Usage& total) override {
    std::string text;
    if (include_usage_) text = sse(chunk(nullptr, usage_json(total)));
    return text + sse_data("[DONE]");
  }

 private:
  Json logprobs(const std::vector<PositionLogprobs>& positions) const { return chat_logprobs(positions, beside_, names_); }

  LongJson choice(const Completion& completion) {
    Json message{{"role", "assistant"}, {"content", completion.text}, {"refusal", nullptr}};
    bool has_calls = false;
    if (tools_.reads_calls()) {
      const ParsedAnswer parsed =
          parse_tool_calls(parser(ToolCallParser::Announce::kWhole), completion.text, end_of(completion.finish_reason));
      has_calls = !parsed.calls.empty();
      message["content"] = has_calls && parsed.content.empty() ? Json(nullptr) : Json(parsed.content);
      for (const auto& call : parsed.calls) message["tool_calls"].push_back(call_json(call.id, call.name, call.arguments));
    }
    LongObject json(Json{{"index", completion.index}, {"message", std::move(message)}});
    json.add("logprobs", logprobs_ ? long_chat_logprobs(completion.logprobs, beside_, names_) : Json(nullptr));
    json.add("finish_reason", finish_reason(completion.finish_reason, has_calls));
    json.add("stop_reason", stop_reason_json(completion.stop_reason));
    if (token_ids_) json.add("token_ids", Json(completion.token_ids));
    return json;
  }

  // A completion on its way.
  struct Choice {
    bool begun = false;
    std::optional<ToolCallParser> calls;
  };

  ToolCallParser parser(ToolCallParser::Announce announce) {
    return make_tool_call_parser(tools_, announce, [this] { return make_tool_call_id(tools_.format); });
  }

  static Json call_json(const std::string& id, const std::string& name, const std::string& arguments) {
    return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  }

  static Json finish_reason(FinishReason reason, bool has_calls) {
    if (has_calls && reason == FinishReason::kStop) return "tool_calls";
    return finish_reason_json(reason);
  }

  // What a chunk adds to the message.
  static Json news(Choice& choice, const StreamEvent& event) {
    Json json = Json::object();
    AnswerDelta found;
    if (choice.calls) {
      choice.calls->push(event.text, found);
      if (event.finish_reason != FinishReason::kNone) choice.calls->finish(end_of(event.finish_reason), found);
    } else {
      found.content = event.text;
    }
    if (!found.content.empty()) json["content"] = found.content;
    for (const auto& call : found.calls) {
      Json entry{{"index", call.index}};
      if (!call.id.empty()) {
        entry.update(call_json(call.id, call.name, call.arguments));
      } else {
        entry["function"] = {{"arguments", call.arguments}};
      }
      json["tool_calls"].push_back(std::move(entry));
    }
    return json;
  }

  static Json delta(int index, Json what) {
    return {{"index", index}, {"delta", std::move(what)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }

  Json head(std::string_view object) const {
    Json json = head_json(head_, object);
    json["service_tier"] = kServiceTier;
    return json;
  }

  Json continuous(const Usage& so_far) const { return continuous_usage_ ? usage_json(so_far) : Json(nullptr); }

  // Says who speaks, before the first token; and of the prompt what was asked for, once.
  std::string first_chunk(const StreamEvent& event, Usage so_far) {
    so_far.completion_tokens -= std::ssize(event.token_ids);
    Json json = chunk(delta(event.index, {{"role", "assistant"}, {"content", ""}}), continuous(so_far));
    for (const auto& prompt : std::exchange(prompts_, {})) json["prompt_token_ids"] = prompt;
    if (prompt_logprobs_ && event.index == 0)
      json["prompt_logprobs"] = prompt_logprobs_json(event.prompt_logprobs, *prompt_logprobs_, names_);
    return sse(json);
  }

  // `choice` null: the chunk that carries the usage alone.
  Json chunk(Json choice, Json usage) const {
    Json json = head("chat.completion.chunk");
    Json& choices = json["choices"] = Json::array();
    if (!choice.is_null()) choices.push_back(std::move(choice));
    if (include_usage_) json["usage"] = std::move(usage);
    return json;
  }
  static std::string sse(const Json& json) { return sse_data(dumped(json)); }

  const AnswerHead head_;
  const Json metadata_;
  const bool include_usage_, continuous_usage_, token_ids_;
  const bool logprobs_;
  const Beside beside_;  // in top_logprobs
  const std::optional<int> prompt_logprobs_;
  PromptTokens prompts_;  // that are not yet said
  const TokenNames names_;
  const ToolPlan tools_;
  std::vector<Choice> choices_;
};

}  // namespace

bool shows_prompts(const ChatCall& call) { return call.stream && call.return_token_ids; }

std::unique_ptr<AnswerForm> make_chat_form(AnswerHead head, const ChatCall& call, PromptTokens prompts, ToolPlan tools,
                                           TokenText token_text) {
  return std::make_unique<ChatForm>(std::move(head), call, std::move(prompts), std::move(tools), std::move(token_text));
}

}  // namespace choral::serve
