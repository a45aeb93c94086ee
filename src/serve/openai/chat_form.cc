// /v1/chat/completions: chat.completion objects and chunks.
#include <utility>

#include "serve/answers/reasoning_tokens.h"
#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/logprobs_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

class ChatForm : public AnswerForm {
 public:
  ChatForm(AnswerHead head, const ChatCall& call, PromptTokens prompts, AnswerPlan plan, TokenText token_text)
      : head_(std::move(head)),
        metadata_(call.metadata_json.empty() ? Json() : Json::parse(call.metadata_json)),
        include_usage_(call.include_usage),
        continuous_usage_(call.continuous_usage),
        token_ids_(call.return_token_ids),
        timings_(call.timings),
        tells_progress_(call.tells_progress),
        logprobs_(call.logprobs),
        beside_(tokens_beside(call.request.sampling)),
        prompt_logprobs_(call.request.sampling.prompt_logprobs),
        prompts_(std::move(prompts)),
        names_{std::move(token_text), call.tokens_as_token_ids},
        plan_(std::move(plan)),
        include_reasoning_(call.include_reasoning) {
    for (int i = 0; i < call.request.sampling.n; ++i)
      choices_.push_back({.reader = make_answer_reader(plan_, Announce::kEarly), .thoughts = make_thought_counter()});
    tell_resume(call);
  }

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const RequestOutput& output = outputs.front();
    LongObject answer(head("chat.completion"));
    if (!metadata_.is_null()) answer.add("metadata", metadata_);
    answer.add("choices",
               LongList{output.completions.size(), [this, &output](size_t i) { return choice(output.completions[i]); }});
    Usage usage = usage_of(outputs);
    for (const auto& completion : output.completions) usage.reasoning_tokens += reasoning_tokens(completion);
    answer.add("usage", usage_json(usage));
    if (timings_) answer.add("timings", timings_json(progress_of(output)));
    if (prompt_logprobs_ && begins(output))
      answer.add("prompt_logprobs", long_prompt_logprobs(output.prompt_logprobs, *prompt_logprobs_, names_));
    if (token_ids_) answer.add("prompt_token_ids", Json(output.prompt_token_ids));
    return long_text(std::move(answer));
  }

  std::string piece(size_t, const StreamEvent& event, const Usage& so_far) override {
    note_resume(event);
    std::string text;
    Choice& state = choices_[static_cast<size_t>(event.index)];
    if (!std::exchange(state.begun, true)) text = first_chunk(event, so_far);
    Json choice = delta(event.index, news(state, event));
    if (logprobs_ && !event.logprobs.empty()) choice["logprobs"] = logprobs(event.logprobs);
    choice["finish_reason"] = finish_reason(event.finish_reason, state.reader.calls() > 0);
    if (event.finish_reason != FinishReason::kNone)
      choice["stop_reason"] = stop_reason_json(event.stop_reason, event.stopped_by_token);
    if (token_ids_) choice["token_ids"] = event.token_ids;
    // A token whose text is held back says nothing yet.
    const bool is_silent = choice["delta"].empty() && event.finish_reason == FinishReason::kNone && !token_ids_ && !logprobs_;
    if (is_silent) return text;
    Json json = chunk(std::move(choice), continuous(so_far));
    if (event.finish_reason != FinishReason::kNone) add_adapters(adapters(), json);
    if (timings_) json["timings"] = timings_json(progress(0));
    if (std::string resume = take_resume(head_); !resume.empty()) json["resume"] = std::move(resume);
    return text + sse(json);
  }

  std::string end(const Usage& total) override {
    std::string text;
    if (include_usage_) {
      Json json = chunk(nullptr, usage_json(with_thoughts(total)));
      if (timings_) json["timings"] = timings_json(progress(0));
      text = sse(json);
    }
    return text + sse_data("[DONE]");
  }

 private:
  Json logprobs(const std::vector<PositionLogprobs>& positions) const { return chat_logprobs(positions, beside_, names_); }

  LongJson choice(const Completion& completion) {
    AnswerReader reader = make_answer_reader(plan_, Announce::kWhole);
    AnswerEvents given;
    reader.push(completion.given_text, given);
    const bool had_calls = reader.calls() > 0;
    const ReadAnswer read = read_answer(std::move(reader), completion.text, end_of(completion.finish_reason));
    const bool has_calls = had_calls || !read.calls.empty();
    const bool is_silent = read.content.empty() && (has_calls || !read.reasoning.empty());
    Json message{{"role", "assistant"}, {"content", is_silent ? Json(nullptr) : Json(read.content)}, {"refusal", nullptr}};
    if (include_reasoning_ && !read.reasoning.empty()) put_reasoning(read.reasoning, message);
    for (const auto& call : read.calls) message["tool_calls"].push_back(call_json(call.id, call.name, call.arguments));
    LongObject json(Json{{"index", completion.index}, {"message", std::move(message)}});
    json.add("logprobs", logprobs_ ? long_chat_logprobs(completion.logprobs, beside_, names_) : Json(nullptr));
    json.add("finish_reason", finish_reason(completion.finish_reason, has_calls));
    json.add("stop_reason", stop_reason_json(completion.stop_reason, completion.stopped_by_token));
    if (token_ids_) json.add("token_ids", Json(completion.token_ids));
    return json;
  }

  // A completion on its way.
  struct Choice {
    bool begun = false;
    AnswerReader reader;
    std::optional<ReasoningTokens> thoughts;
  };

  std::optional<ReasoningTokens> make_thought_counter() const {
    if (plan_.thoughts == nullptr) return std::nullopt;
    return ReasoningTokens(make_thought_reader(plan_));
  }
  int64_t reasoning_tokens(const Completion& completion) const {
    auto counter = make_thought_counter();
    if (!counter) return 0;
    for (const auto* ids : {&completion.given_token_ids, &completion.token_ids}) {
      for (const int32_t id : *ids) counter->push(names_.text(id));
    }
    return counter->count();
  }
  // With the tokens of thoughts so far.
  Usage with_thoughts(Usage usage) const {
    for (const Choice& choice : choices_) {
      if (choice.thoughts) usage.reasoning_tokens += choice.thoughts->count();
    }
    return usage;
  }

  // By the words of vLLM, and of llama.cpp and DeepSeek.
  static void put_reasoning(const std::string& text, Json& message) {
    message["reasoning"] = message["reasoning_content"] = text;
  }

  static Json call_json(const std::string& id, const std::string& name, const std::string& arguments) {
    return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
  }

  static Json finish_reason(FinishReason reason, bool has_calls) {
    if (has_calls && reason == FinishReason::kStop) return "tool_calls";
    return finish_reason_json(reason);
  }

  // What a chunk adds to the message.
  Json news(Choice& choice, const StreamEvent& event) const {
    AnswerEvents events;
    choice.reader.push(event.text, events);
    if (event.finish_reason != FinishReason::kNone) choice.reader.finish(end_of(event.finish_reason), events);
    if (choice.thoughts) {
      for (const int32_t id : event.token_ids) choice.thoughts->push(names_.text(id));
    }
    Json json = Json::object();
    std::string reasoning, content;
    for (const AnswerEvent& each : events) {
      switch (each.kind) {
        case AnswerEvent::Kind::kReasoning: reasoning += each.text; break;
        case AnswerEvent::Kind::kContent: content += each.text; break;
        case AnswerEvent::Kind::kCallBegin: {
          Json entry{{"index", each.call}};
          entry.update(call_json(each.id, each.name, ""));
          json["tool_calls"].push_back(std::move(entry));
          break;
        }
        case AnswerEvent::Kind::kArguments: add_arguments(each, json["tool_calls"]); break;
        case AnswerEvent::Kind::kCallEnd: break;
      }
    }
    if (include_reasoning_ && !reasoning.empty()) put_reasoning(reasoning, json);
    if (!content.empty()) json["content"] = content;
    return json;
  }

  // To the call's entry of this chunk, which comes last where there is one.
  static void add_arguments(const AnswerEvent& event, Json& calls) {
    if (calls.empty() || calls.back()["index"] != event.call)
      calls.push_back({{"index", event.call}, {"function", {{"arguments", ""}}}});
    calls.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
  }

  static Json delta(int index, Json what) {
    return {{"index", index}, {"delta", std::move(what)}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  }

  Json head(std::string_view object) const {
    Json json = head_json(head_, object);
    json["service_tier"] = kServiceTier;
    return json;
  }

  Json continuous(const Usage& so_far) const { return continuous_usage_ ? usage_json(with_thoughts(so_far)) : Json(nullptr); }

  // Says who speaks, before the first token; and of the prompt what was asked for, once.
  std::string first_chunk(const StreamEvent& event, Usage so_far) {
    so_far.completion_tokens -= std::ssize(event.token_ids);
    so_far.guesses = so_far.guesses - event.guesses;
    Json json = chunk(delta(event.index, {{"role", "assistant"}, {"content", ""}}), continuous(so_far));
    for (const auto& prompt : std::exchange(prompts_, {})) json["prompt_token_ids"] = prompt;
    if (tells_progress_) json["prompt_progress"] = prompt_progress_json(progress(0));
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
  const bool include_usage_, continuous_usage_, token_ids_, timings_, tells_progress_;
  const bool logprobs_;
  const Beside beside_;  // in top_logprobs
  const std::optional<int> prompt_logprobs_;
  PromptTokens prompts_;  // that are not yet said
  const TokenNames names_;
  const AnswerPlan plan_;
  const bool include_reasoning_;
  std::vector<Choice> choices_;
};

}  // namespace

bool shows_prompts(const ChatCall& call) { return call.stream && call.return_token_ids; }

std::unique_ptr<AnswerForm> make_chat_form(AnswerHead head, const ChatCall& call, PromptTokens prompts, AnswerPlan plan,
                                           TokenText token_text) {
  return std::make_unique<ChatForm>(std::move(head), call, std::move(prompts), std::move(plan), std::move(token_text));
}

}  // namespace choral::serve
