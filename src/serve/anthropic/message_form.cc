#include "serve/anthropic/message_form.h"

#include <utility>

#include "base/sha256.h"
#include "serve/answers/reasoning_tokens.h"
#include "serve/anthropic/error_form.h"
#include "serve/http/sse.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

// Of what was thought, for clients that drop thoughts without a signature; nothing here asks for it again.
std::string signature_of(const std::string& thoughts) { return to_hex(sha256(std::as_bytes(std::span(thoughts)))); }

// A call whose text broke off has the input that is known of it: none.
Json input_of(const std::string& arguments) {
  auto input = parse_object(arguments, "the input");
  return input.ok() ? *std::move(input) : Json::object();
}

class MessageForm : public AnswerForm {
 public:
  MessageForm(AnswerHead head, const MessageCall& call, AnswerPlan plan, TokenText token_text)
      : head_(std::move(head)),
        stops_(call.chat.request.sampling.stop),
        shows_thoughts_(call.shows_thoughts),
        token_text_(std::move(token_text)),
        reader_(make_answer_reader(plan, call.chat.stream ? Announce::kEarly : Announce::kWhole)) {
    if (plan.thoughts != nullptr) thought_tokens_.emplace(make_thought_reader(plan));
  }

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const Completion& completion = outputs.front().completions.front();
    (void)read(completion.given_text, completion.given_token_ids, FinishReason::kNone, "");
    const AnswerEvents events = read(completion.text, completion.token_ids, completion.finish_reason,
                                     completion.stopped_by_token ? "" : completion.stop_reason);
    Json message = begun_message(usage_of(outputs));
    message["content"] = blocks(events);
    message["stop_reason"] = stop_reason();
    message["stop_sequence"] = stop_sequence();
    return long_text(std::move(message));
  }

  std::string piece(size_t, const StreamEvent& event, const Usage& so_far) override {
    if (!std::exchange(begun_, true)) {
      Usage before = so_far;
      before.completion_tokens -= std::ssize(event.token_ids);
      tell("message_start", {{"message", begun_message(before)}});
      tell("ping", Json::object());
    }
    for (const AnswerEvent& each :
         read(event.text, event.token_ids, event.finish_reason, event.stopped_by_token ? "" : event.stop_reason))
      tell(each);
    return std::exchange(events_, {});
  }

  std::string end(const Usage& total) override {
    close_block();
    tell("message_delta",
         {{"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}}, {"usage", usage_json_of(total)}});
    tell("message_stop", Json::object());
    return std::exchange(events_, {});
  }

  std::string error(const ApiError& error) override { return sse_event("error", anthropic_error_body(error, {})); }
  std::string keep_alive() override { return sse_event("ping", R"({"type":"ping"})"); }

 private:
  // --- what the answer is ---

  AnswerEvents read(const std::string& text, const std::vector<int32_t>& token_ids, FinishReason reason,
                    const std::string& stopped_by) {
    reason_ = reason;
    stopped_by_ = stopped_by;
    if (thought_tokens_) {
      for (const int32_t id : token_ids) thought_tokens_->push(token_text_(id));
    }
    AnswerEvents events;
    reader_.push(text, events);
    if (reason != FinishReason::kNone) reader_.finish(end_of(reason), events);
    return events;
  }

  bool is_stopped_by_sequence() const { return std::find(stops_.begin(), stops_.end(), stopped_by_) != stops_.end(); }
  std::string_view stop_reason() const {
    if (reason_ == FinishReason::kLength) return "max_tokens";
    if (is_stopped_by_sequence()) return "stop_sequence";
    return reader_.calls() > 0 ? "tool_use" : "end_turn";
  }
  Json stop_sequence() const { return is_stopped_by_sequence() ? Json(stopped_by_) : Json(nullptr); }

  Json usage_json_of(const Usage& usage) const {
    return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"thinking_tokens", thought_tokens_ ? thought_tokens_->count() : 0}}}};
  }

  Json begun_message(const Usage& usage) const {
    Json message{
        {"id", head_.id},         {"type", "message"},        {"role", "assistant"},      {"model", head_.model},
        {"stop_reason", nullptr}, {"content", Json::array()}, {"stop_sequence", nullptr}, {"usage", usage_json_of(usage)}};
    message["usage"]["service_tier"] = "standard";
    return message;
  }

  // --- as a whole ---

  static Json begun_block(AnswerEvent::Kind kind) {
    if (kind == AnswerEvent::Kind::kReasoning) return {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
    return {{"type", "text"}, {"text", ""}};
  }

  Json blocks(const AnswerEvents& events) const {
    Json blocks = Json::array();
    std::string arguments;
    for (const AnswerEvent& event : events) {
      switch (event.kind) {
        case AnswerEvent::Kind::kReasoning:
        case AnswerEvent::Kind::kContent: {
          Json block = begun_block(event.kind);
          const bool is_thought = event.kind == AnswerEvent::Kind::kReasoning;
          if (is_thought) block["signature"] = signature_of(event.text);
          if (!is_thought || shows_thoughts_) block[is_thought ? "thinking" : "text"] = event.text;
          blocks.push_back(std::move(block));
          break;
        }
        case AnswerEvent::Kind::kCallBegin:
          blocks.push_back({{"type", "tool_use"}, {"id", event.id}, {"name", event.name}, {"input", Json::object()}});
          arguments.clear();
          break;
        case AnswerEvent::Kind::kArguments: arguments += event.text; break;
        case AnswerEvent::Kind::kCallEnd: blocks.back()["input"] = input_of(arguments); break;
      }
    }
    return blocks;
  }

  // --- as events ---

  void tell(std::string_view type, Json members) {
    Json event{{"type", type}};
    event.update(members);
    events_ += sse_event(type, dumped(event));
  }
  void tell_delta(Json delta) { tell("content_block_delta", {{"index", block_}, {"delta", std::move(delta)}}); }

  void open_block(AnswerEvent::Kind kind, Json block) {
    if (open_ == kind && kind != AnswerEvent::Kind::kCallBegin) return;
    close_block();
    open_ = kind;
    tell("content_block_start", {{"index", block_}, {"content_block", std::move(block)}});
  }

  void close_block() {
    if (!open_) return;
    if (open_ == AnswerEvent::Kind::kReasoning)
      tell_delta({{"type", "signature_delta"}, {"signature", signature_of(std::exchange(thoughts_, {}))}});
    tell("content_block_stop", {{"index", block_++}});
    open_.reset();
  }

  void tell(const AnswerEvent& event) {
    switch (event.kind) {
      case AnswerEvent::Kind::kReasoning:
        open_block(event.kind, begun_block(event.kind));
        thoughts_ += event.text;
        if (shows_thoughts_) tell_delta({{"type", "thinking_delta"}, {"thinking", event.text}});
        return;
      case AnswerEvent::Kind::kContent:
        open_block(event.kind, begun_block(event.kind));
        return tell_delta({{"type", "text_delta"}, {"text", event.text}});
      case AnswerEvent::Kind::kCallBegin:
        return open_block(event.kind, {{"type", "tool_use"}, {"id", event.id}, {"name", event.name}, {"input", Json::object()}});
      case AnswerEvent::Kind::kArguments: return tell_delta({{"type", "input_json_delta"}, {"partial_json", event.text}});
      case AnswerEvent::Kind::kCallEnd: return close_block();
    }
  }

  const AnswerHead head_;
  const std::vector<std::string> stops_;
  const bool shows_thoughts_;
  const TokenText token_text_;
  AnswerReader reader_;
  std::optional<ReasoningTokens> thought_tokens_;
  FinishReason reason_ = FinishReason::kNone;
  std::string stopped_by_;
  // Of a stream.
  bool begun_ = false;
  std::optional<AnswerEvent::Kind> open_;  // what the open block holds
  size_t block_ = 0;                       // the open one, or the next
  std::string thoughts_;                   // of the open block
  std::string events_;                     // not yet taken
};

}  // namespace

std::unique_ptr<AnswerForm> make_message_form(AnswerHead head, const MessageCall& call, AnswerPlan plan, TokenText token_text) {
  return std::make_unique<MessageForm>(std::move(head), call, std::move(plan), std::move(token_text));
}

}  // namespace choral::serve
