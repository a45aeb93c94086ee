// /v1/responses: response objects, and the events that tell of one growing.
#include <ctime>
#include <utility>

#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/logprobs_json.h"
#include "serve/openai/long_json.h"
#include "serve/tools/tool_call_id.h"

namespace choral::serve {
namespace {

Json text_part(std::string_view text, Json logprobs = Json::array()) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", std::move(logprobs)}};
}

// The answer is a list of items: what is said, then each call of a function.
class ResponseForm : public AnswerForm {
 public:
  ResponseForm(AnswerHead head, const ResponseCall& call, ToolPlan tools, TokenText token_text)
      : head_(std::move(head)),
        repeated_(Json::parse(call.echo_json)),
        beside_(tokens_beside(call.chat.request.sampling)),
        names_{std::move(token_text)},
        tools_(std::move(tools)) {
    if (tools_.reads_calls()) {
      calls_.emplace(
          make_tool_call_parser(tools_, ToolCallParser::Announce::kWhole, [this] { return make_tool_call_id(tools_.format); }));
    }
  }

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const Completion& completion = outputs.front().completions.front();
    take(completion.text, completion.logprobs, completion.finish_reason);
    close_message();
    const Usage usage = usage_of(outputs);
    return long_text(response(status(), &usage));
  }

  std::string piece(size_t, const StreamEvent& event, const Usage&) override {
    if (!std::exchange(begun_, true)) {
      tell("response.created", {{"response", response("in_progress", nullptr)}});
      tell("response.in_progress", {{"response", response("in_progress", nullptr)}});
    }
    take(event.text, event.logprobs, event.finish_reason);
    return std::exchange(events_, {});
  }

  std::string end(const Usage& total) override {
    close_message();
    tell(fmt::format("response.{}", status()), {{"response", response(status(), &total)}});
    return std::exchange(events_, {});
  }

 private:
  std::string_view status() const { return reason_ == FinishReason::kLength ? "incomplete" : "completed"; }

  void tell(std::string_view type, Json members) {
    Json event{{"type", type}, {"sequence_number", sequence_++}};
    event.update(members);
    events_ += sse_event(type, dumped(event));
  }

  void take(const std::string& text, const std::vector<PositionLogprobs>& logprobs, FinishReason reason) {
    reason_ = reason;
    for (Json& token : token_logprobs(logprobs, beside_, names_)) unsaid_logprobs_.push_back(std::move(token));
    AnswerDelta found;
    if (calls_) {
      calls_->push(text, found);
      if (reason != FinishReason::kNone) calls_->finish(end_of(reason), found);
    } else {
      found.content = text;
    }
    if (!found.content.empty()) say(found.content);
    for (const auto& call : found.calls) add_call(call);
    if (!found.calls.empty()) unsaid_logprobs_ = Json::array();  // of the calls' text
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
    tell("response.output_text.delta", at_part({{"delta", text}, {"logprobs", take_logprobs()}}));
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
    tell("response.output_text.done", at_part({{"text", text_}, {"logprobs", logprobs_}}));
    tell("response.content_part.done", at_part({{"part", text_part(text_, logprobs_)}}));
    tell("response.output_item.done", {{"output_index", message_at_}, {"item", items_[message_at_]}});
  }

  // --- a call ---

  void add_call(const ToolCallDelta& call) {
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
    json["previous_response_id"] = nullptr;
    json["background"] = false;
    json["store"] = false;
    json["service_tier"] = kServiceTier;
    json["usage"] = nullptr;
    if (usage != nullptr) {
      json["usage"] = {{"input_tokens", usage->prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", usage->cached_tokens}, {"cache_write_tokens", 0}}},
                       {"output_tokens", usage->completion_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", 0}}},
                       {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
    }
    json.update(repeated_);
    if (usage != nullptr) add_adapters(adapters(), json);
    return json;
  }

  const AnswerHead head_;
  const Json repeated_;
  const Beside beside_;
  const TokenNames names_;
  const ToolPlan tools_;
  std::optional<ToolCallParser> calls_;
  Json items_ = Json::array();  // that are complete; the open message's place is null
  std::string text_;            // of the message
  // Of its tokens, and of those whose text is not decided yet; nothing unless they were asked for.
  Json logprobs_ = Json::array(), unsaid_logprobs_ = Json::array();
  size_t message_at_ = 0;
  bool open_ = false;  // the message is growing
  FinishReason reason_ = FinishReason::kNone;
  std::string events_;  // not yet taken
  int64_t sequence_ = 0;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<AnswerForm> make_response_form(AnswerHead head, const ResponseCall& call, ToolPlan tools, TokenText token_text) {
  return std::make_unique<ResponseForm>(std::move(head), call, std::move(tools), std::move(token_text));
}

}  // namespace choral::serve
