// /v1/responses: response objects, and the events that tell of one growing.
#include "serve/openai/response_form.h"

#include <ctime>
#include <utility>

#include "serve/answers/reasoning_tokens.h"
#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/logprobs_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

Json text_part(std::string_view text, Json logprobs = Json::array()) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(logprobs)}};
}

// As events have them: by their texts alone.
Json without_bytes(Json logprobs) {
  for (Json& one : logprobs) {
    if (const auto bytes = one.find("bytes"); bytes != one.end()) one.erase(bytes);
    if (one.contains("top_logprobs")) one["top_logprobs"] = without_bytes(std::move(one["top_logprobs"]));
  }
  return logprobs;
}

Json thought_part(std::string_view text) { return {{"type", "reasoning_text"}, {"text", text}}; }

// The answer is a list of items: what is thought, what is said, then each call of a function.
class ResponseForm : public ResponseAnswerForm {
 public:
  ResponseForm(AnswerHead head, const ResponseCall& call, const AnswerPlan& plan, TokenText token_text, KeepResponse keep)
      : head_(std::move(head)),
        repeated_(Json::parse(call.echo_json)),
        previous_id_(call.previous_id),
        is_stored_(call.store),
        in_background_(call.background),
        keep_(std::move(keep)),
        beside_(tokens_beside(call.chat.request.sampling)),
        names_{std::move(token_text)},
        reader_(make_answer_reader(plan, Announce::kWhole)) {
    if (plan.thoughts != nullptr) thought_tokens_.emplace(make_thought_reader(plan));
  }

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const Completion& completion = outputs.front().completions.front();
    take(completion.given_text, completion.given_token_ids, {}, FinishReason::kNone);
    take(completion.text, completion.token_ids, completion.logprobs, completion.finish_reason);
    close_message();
    const Usage usage = usage_of(outputs);
    return long_text(kept(response(status(), &usage)));
  }

  std::string piece(size_t, const StreamEvent& event, const Usage&) override {
    if (!std::exchange(begun_, true)) {
      if (sequence_ == 0) tell("response.created", {{"response", response("in_progress", nullptr)}});
      tell("response.in_progress", {{"response", response("in_progress", nullptr)}});
    }
    take(event.text, event.token_ids, event.logprobs, event.finish_reason);
    return std::exchange(events_, {});
  }

  std::string end(const Usage& total) override {
    close_message();
    tell(fmt::format("response.{}", status()), {{"response", kept(response(status(), &total))}});
    return std::exchange(events_, {});
  }

  std::string error(const ApiError& error) override {
    has_failed_ = true;
    close_thought();
    if (open_) close_message();
    const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
    tell("error", {{"code", or_null(error.code)}, {"message", error.message}, {"param", or_null(error.param)}});
    Json failed = response("failed", nullptr);
    failed["error"] = response_error(error);
    tell("response.failed", {{"response", kept(std::move(failed))}});
    return std::exchange(events_, {});
  }

  std::string begun(std::string_view status) const override { return dumped(response(status, nullptr)); }

  std::string queued() override {
    for (const char* type : {"response.created", "response.queued"}) tell(type, {{"response", response("queued", nullptr)}});
    return std::exchange(events_, {});
  }

 private:
  Json kept(Json response) const {
    if (keep_) keep_(dumped(response));
    return response;
  }

  // Of the response, and of items that end with it.
  std::string_view status() const { return has_failed_ || reason_ == FinishReason::kLength ? "incomplete" : "completed"; }

  void tell(std::string_view type, Json members) {
    Json event{{"type", type}, {"sequence_number", sequence_++}};
    event.update(members);
    events_ += sse_event(type, dumped(event));
  }

  void take(const std::string& text, const std::vector<int32_t>& token_ids, const std::vector<PositionLogprobs>& logprobs,
            FinishReason reason) {
    reason_ = reason;
    size_t said = 0;
    Json tokens = token_logprobs(logprobs, beside_, names_);
    for (const int32_t id : token_ids) {
      if (said < tokens.size()) unsaid_logprobs_.push_back(std::move(tokens[said++]));
      if (thought_tokens_) count_thought(id);
    }
    for (; said < tokens.size(); ++said) unsaid_logprobs_.push_back(std::move(tokens[said]));
    AnswerEvents events;
    reader_.push(text, events);
    if (reason != FinishReason::kNone) reader_.finish(end_of(reason), events);
    for (const AnswerEvent& event : events) take(event);
    if (reason != FinishReason::kNone) close_thought();
  }

  // Log-probabilities of thoughts are nobody's.
  void count_thought(int32_t id) {
    const int64_t before = thought_tokens_->count();
    thought_tokens_->push(names_.text(id));
    for (int64_t i = before; i < thought_tokens_->count() && !unsaid_logprobs_.empty(); ++i)
      unsaid_logprobs_.erase(unsaid_logprobs_.end() - 1);
  }

  void take(const AnswerEvent& event) {
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning: return think(event.text);
      case AnswerEvent::Kind::kContent: close_thought(); return say(event.text);
      case AnswerEvent::Kind::kCallBegin: call_ = {event.id, event.name, {}}; return;
      case AnswerEvent::Kind::kArguments: call_.arguments += event.text; return;
      case AnswerEvent::Kind::kCallEnd:
        close_thought();
        call_.cut = event.cut;
        add_call(call_);
        unsaid_logprobs_ = Json::array();  // of the call's text
        return;
    }
  }

  // --- what is thought ---

  Json thought(std::string_view status, bool has_text) const {
    Json content = Json::array();
    if (has_text) content.push_back(thought_part(thought_));
    return {{"type", "reasoning"},          {"id", thought_id_}, {"summary", Json::array()}, {"content", std::move(content)},
            {"encrypted_content", nullptr}, {"status", status}};
  }
  Json at_thought(Json members) const {
    Json event{{"item_id", thought_id_}, {"output_index", thought_at_}, {"content_index", 0}};
    event.update(members);
    return event;
  }

  void think(const std::string& text) {
    if (!thinks_) {
      thinks_ = true;
      thought_.clear();
      thought_id_ = fmt::format("rs_{}_{}", head_.id.substr(head_.id.find('_') + 1), thoughts_++);
      thought_at_ = items_.size();
      items_.push_back(nullptr);
      tell("response.output_item.added", {{"output_index", thought_at_}, {"item", thought("in_progress", false)}});
      tell("response.content_part.added", at_thought({{"part", thought_part("")}}));
    }
    thought_ += text;
    tell("response.reasoning_text.delta", at_thought({{"delta", text}}));
  }

  void close_thought() {
    if (!std::exchange(thinks_, false)) return;
    items_[thought_at_] = thought(status(), true);
    tell("response.reasoning_text.done", at_thought({{"text", thought_}}));
    tell("response.content_part.done", at_thought({{"part", thought_part(thought_)}}));
    tell("response.output_item.done", {{"output_index", thought_at_}, {"item", items_[thought_at_]}});
  }

  // --- the message ---

  Json at_part(Json members) const {
    Json event{{"item_id", message_id()}, {"output_index", message_at_}, {"content_index", 0}};
    event.update(members);
    return event;
  }
  std::string message_id() const { return "msg_" + head_.id.substr(head_.id.find('_') + 1); }

  Json message(std::string_view status, bool has_text) const {
    Json content = Json::array();
    if (has_text) content.push_back(text_part(text_, logprobs_));
    return {
        {"type", "message"}, {"id", message_id()}, {"status", status}, {"role", "assistant"}, {"content", std::move(content)}};
  }

  void say(const std::string& text) {
    if (!open_) {
      open_ = true;
      message_at_ = items_.size();
      items_.push_back(nullptr);
      tell("response.output_item.added", {{"output_index", message_at_}, {"item", message("in_progress", false)}});
      tell("response.content_part.added", at_part({{"part", text_part("")}}));
    }
    text_ += text;
    tell("response.output_text.delta", at_part({{"delta", text}, {"logprobs", without_bytes(take_logprobs())}}));
  }

  // Those that are new, which are the message's from now on.
  Json take_logprobs() {
    Json news = std::exchange(unsaid_logprobs_, Json::array());
    logprobs_.insert(logprobs_.end(), news.begin(), news.end());
    return news;
  }

  void close_message() {
    if (!open_ && items_.empty()) say("");  // an answer of nothing is a message too
    if (!std::exchange(open_, false)) return;
    take_logprobs();  // of tokens without a text
    items_[message_at_] = message(status(), true);
    tell("response.output_text.done", at_part({{"text", text_}, {"logprobs", without_bytes(logprobs_)}}));
    tell("response.content_part.done", at_part({{"part", text_part(text_, logprobs_)}}));
    tell("response.output_item.done", {{"output_index", message_at_}, {"item", items_[message_at_]}});
  }

  // --- a call ---

  void add_call(const ToolCall& call) {
    const size_t at = items_.size();
    Json item{{"type", "function_call"}, {"id", "fc_" + call.id}, {"call_id", call.id},
              {"name", call.name},       {"arguments", ""},       {"status", "in_progress"}};
    tell("response.output_item.added", {{"output_index", at}, {"item", item}});
    const Json place{{"item_id", item["id"]}, {"output_index", at}};
    Json delta = place, done = place;
    delta["delta"] = call.arguments;
    done["arguments"] = call.arguments;
    done["name"] = call.name;
    tell("response.function_call_arguments.delta", std::move(delta));
    tell("response.function_call_arguments.done", std::move(done));
    item["arguments"] = call.arguments;
    item["status"] = call.cut ? "incomplete" : "completed";
    tell("response.output_item.done", {{"output_index", at}, {"item", item}});
    items_.push_back(std::move(item));
  }

  Json response(std::string_view status, const Usage* usage) const {
    Json json{{"id", head_.id},   {"object", "response"}, {"created_at", head_.created_unix_s},
              {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr}};
    json["completed_at"] = status == "completed" ? Json(std::time(nullptr)) : Json(nullptr);
    if (status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["model"] = head_.model;
    json["output"] = items_;
    json["previous_response_id"] = previous_id_.empty() ? Json(nullptr) : Json(previous_id_);
    json["background"] = in_background_;
    json["store"] = is_stored_;
    json["service_tier"] = kServiceTier;
    json["usage"] = nullptr;
    if (usage != nullptr) {
      json["usage"] = {{"input_tokens", usage->prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", usage->cached_tokens}, {"cache_write_tokens", 0}}},
                       {"output_tokens", usage->completion_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", thought_tokens_ ? thought_tokens_->count() : 0}}},
                       {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
    }
    json.update(repeated_);
    if (usage != nullptr) add_adapters(adapters(), json);
    return json;
  }

  const AnswerHead head_;
  const Json repeated_;
  const std::string previous_id_;
  const bool is_stored_, in_background_;
  const KeepResponse keep_;  // may be empty
  const Beside beside_;
  const TokenNames names_;
  AnswerReader reader_;
  std::optional<ReasoningTokens> thought_tokens_;
  ToolCall call_;               // that is read
  Json items_ = Json::array();  // that are complete; the places of the open message and thought are null
  std::string thought_, thought_id_;
  size_t thought_at_ = 0, thoughts_ = 0;
  bool thinks_ = false;  // a thought is growing
  std::string text_;     // of the message
  // Of its tokens, and of those whose text is not decided yet; nothing unless they were asked for.
  Json logprobs_ = Json::array(), unsaid_logprobs_ = Json::array();
  size_t message_at_ = 0;
  bool open_ = false;  // the message is growing
  FinishReason reason_ = FinishReason::kNone;
  bool has_failed_ = false;
  std::string events_;  // not yet taken
  int64_t sequence_ = 0;
  bool begun_ = false;
};

}  // namespace

Json response_error(const ApiError& error) {
  const std::string_view code = error.status == 429  ? "rate_limit_exceeded"
                                : error.status < 500 ? "invalid_prompt"
                                                     : "server_error";
  return {{"code", code}, {"message", error.message}};
}

std::unique_ptr<ResponseAnswerForm> make_response_form(AnswerHead head, const ResponseCall& call, const AnswerPlan& plan,
                                                       TokenText token_text, KeepResponse keep) {
  return std::make_unique<ResponseForm>(std::move(head), call, plan, std::move(token_text), std::move(keep));
}

}  // namespace choral::serve
