// /v1/responses: response objects, and the events that tell of one growing.
#include <utility>

#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"

namespace choral::serve {
namespace {

Json text_part(std::string_view text) {
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

class ResponseForm : public AnswerForm {
 public:
  ResponseForm(AnswerHead head, const ResponseCall& call)
      : head_(std::move(head)), item_id_("msg_" + head_.id), repeated_(Json::parse(call.echo_json)) {}

  std::string whole(const std::vector<RequestOutput>& outputs) override {
    const Completion& completion = outputs.front().completions.front();
    text_ = completion.text;
    reason_ = completion.finish_reason;
    const Usage usage = usage_of(outputs);
    return dumped(response(status(), &usage));
  }

  std::string piece(size_t, const StreamEvent& event, const Usage&) override {
    std::string out;
    if (!std::exchange(begun_, true)) {
      out += tell("response.created", {{"response", response("in_progress", nullptr)}});
      out += tell("response.in_progress", {{"response", response("in_progress", nullptr)}});
      out += tell("response.output_item.added", {{"output_index", 0}, {"item", item("in_progress", false)}});
      out += tell("response.content_part.added", at_part({{"part", text_part("")}}));
    }
    text_ += event.text;
    reason_ = event.finish_reason;
    if (!event.text.empty())
      out += tell("response.output_text.delta", at_part({{"delta", event.text}, {"logprobs", Json::array()}}));
    return out;
  }

  std::string end(const Usage& total) override {
    std::string out = tell("response.output_text.done", at_part({{"text", text_}, {"logprobs", Json::array()}}));
    out += tell("response.content_part.done", at_part({{"part", text_part(text_)}}));
    out += tell("response.output_item.done", {{"output_index", 0}, {"item", item(status(), true)}});
    return out + tell(fmt::format("response.{}", status()), {{"response", response(status(), &total)}});
  }

 private:
  std::string_view status() const { return reason_ == FinishReason::kLength ? "incomplete" : "completed"; }

  std::string tell(std::string_view type, Json members) {
    Json event{{"type", type}, {"sequence_number", sequence_++}};
    for (auto& [name, value] : members.items()) event[name] = value;
    return sse_event(type, dumped(event));
  }

  Json at_part(Json members) const {
    Json event{{"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
    for (auto& [name, value] : members.items()) event[name] = value;
    return event;
  }

  Json item(std::string_view status, bool has_text) const {
    Json content = Json::array();
    if (has_text) content.push_back(text_part(text_));
    return {{"type", "message"}, {"id", item_id_}, {"status", status}, {"role", "assistant"}, {"content", std::move(content)}};
  }

  Json response(std::string_view status, const Usage* usage) const {
    Json json{{"id", head_.id},   {"object", "response"}, {"created_at", head_.created_unix_s},
              {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr}};
    if (status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["model"] = head_.model;
    Json& output = json["output"] = Json::array();
    if (status != "in_progress") output.push_back(item(status, true));
    json["previous_response_id"] = nullptr;
    json["store"] = false;
    json["usage"] = nullptr;
    if (usage != nullptr) {
      json["usage"] = {{"input_tokens", usage->prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", usage->cached_tokens}, {"cache_write_tokens", 0}}},
                       {"output_tokens", usage->completion_tokens},
                       {"output_tokens_details", {{"reasoning_tokens", 0}}},
                       {"total_tokens", usage->prompt_tokens + usage->completion_tokens}};
    }
    for (const auto& [name, value] : repeated_.items()) json[name] = value;
    return json;
  }

  const AnswerHead head_;
  const std::string item_id_;
  const Json repeated_;
  std::string text_;
  FinishReason reason_ = FinishReason::kNone;
  int64_t sequence_ = 0;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<AnswerForm> make_response_form(AnswerHead head, const ResponseCall& call) {
  return std::make_unique<ResponseForm>(std::move(head), call);
}

}  // namespace choral::serve
