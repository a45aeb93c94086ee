#include "serve/ollama/ollama_form.h"

#include <fmt/chrono.h>

#include <utility>

#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

constexpr std::string_view kLinesType = "application/x-ndjson";

int64_t nanoseconds(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

Json begun_answer(const AnswerHead& head) { return {{"model", head.model}, {"created_at", ollama_time(head.created_unix_s)}}; }

void put_durations(const Progress& progress, Json& answer) {
  answer["total_duration"] = nanoseconds(progress.prompt_s + progress.answer_s);
  answer["load_duration"] = 0;
  answer["prompt_eval_count"] = progress.prompt_tokens;
  answer["prompt_eval_duration"] = nanoseconds(progress.prompt_s);
  answer["eval_count"] = progress.made_tokens;
  answer["eval_duration"] = nanoseconds(progress.answer_s);
}

class OllamaForm : public AnswerForm {
 public:
  OllamaForm(AnswerHead head, const OllamaCall& call, const AnswerPlan& plan)
      : head_(std::move(head)),
        is_chat_(call.is_chat),
        shows_thoughts_(call.shows_thoughts),
        reader_(make_answer_reader(plan, Announce::kWhole)) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const Completion& completion = outputs.front().completions.front();
    (void)read(completion.given_text, FinishReason::kNone);
    Said said = read(completion.text, completion.finish_reason);
    Json answer = part(std::move(said));
    put_end(progress_of(outputs.front()), answer);
    return long_text(std::move(answer));
  }

  // What is said, as it comes; a call when it is whole.
  std::string piece(size_t, const StreamEvent& event, const Usage&) override {
    Said said = read(event.text, event.finish_reason);
    if (said.is_empty()) return {};
    Json answer = part(std::move(said));
    answer["done"] = false;
    return dumped(answer) + "\n";
  }

  std::string end(const Usage&) override {
    Json answer = part({});
    put_end(progress(0), answer);
    return dumped(answer) + "\n";
  }

  std::string error(const ApiError& error) override { return ollama_error_body(error) + "\n"; }
  // Each line is an answer; one that says nothing is the least of them.
  std::string keep_alive() override {
    Json answer = part({});
    answer["done"] = false;
    return dumped(answer) + "\n";
  }
  Headers stream_headers() const override { return {{"Content-Type", std::string(kLinesType)}, {"Cache-Control", "no-cache"}}; }

 private:
  struct Said {
    std::string content, thinking;
    Json calls = Json::array();
    bool is_empty() const { return content.empty() && thinking.empty() && calls.empty(); }
  };

  Said read(const std::string& text, FinishReason reason) {
    reason_ = reason;
    AnswerEvents events;
    reader_.push(text, events);
    if (reason != FinishReason::kNone) reader_.finish(end_of(reason), events);
    Said said;
    for (const AnswerEvent& event : events) {
      switch (event.kind) {
        case AnswerEvent::Kind::kReasoning: said.thinking += event.text; break;
        case AnswerEvent::Kind::kContent: said.content += event.text; break;
        case AnswerEvent::Kind::kCallBegin:
          call_ = {{"function", {{"name", event.name}}}};
          arguments_.clear();
          break;
        case AnswerEvent::Kind::kArguments: arguments_ += event.text; break;
        case AnswerEvent::Kind::kCallEnd: said.calls.push_back(ended_call()); break;
      }
    }
    if (!shows_thoughts_) said.thinking.clear();
    return said;
  }

  // One that broke off has the arguments that are known of it: none.
  Json ended_call() {
    auto arguments = parse_object(arguments_, "the arguments");
    call_["function"]["arguments"] = arguments.ok() ? *std::move(arguments) : Json::object();
    return std::exchange(call_, Json());
  }

  Json part(Said said) const {
    Json answer = begun_answer(head_);
    if (!is_chat_) {
      answer["response"] = std::move(said.content);
      if (!said.thinking.empty()) answer["thinking"] = std::move(said.thinking);
      return answer;
    }
    Json message{{"role", "assistant"}, {"content", std::move(said.content)}};
    if (!said.thinking.empty()) message["thinking"] = std::move(said.thinking);
    if (!said.calls.empty()) message["tool_calls"] = std::move(said.calls);
    answer["message"] = std::move(message);
    return answer;
  }

  void put_end(const Progress& progress, Json& answer) const {
    answer["done"] = true;
    answer["done_reason"] = reason_ == FinishReason::kLength ? "length" : "stop";
    put_durations(progress, answer);
  }

  const AnswerHead head_;
  const bool is_chat_, shows_thoughts_;
  AnswerReader reader_;
  Json call_;  // that is being read
  std::string arguments_;
  FinishReason reason_ = FinishReason::kNone;
};

class OllamaEmbeddingForm : public AnswerForm {
 public:
  explicit OllamaEmbeddingForm(AnswerHead head) : head_(std::move(head)) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    Progress all;
    for (const auto& output : outputs) all = together(all, progress_of(output));
    LongObject answer(Json{{"model", head_.model},
                           {"total_duration", nanoseconds(all.prompt_s)},
                           {"load_duration", 0},
                           {"prompt_eval_count", usage_of(outputs).prompt_tokens}});
    answer.add("embeddings", LongList{outputs.size(), [&outputs](size_t i) -> LongJson { return Json(outputs[i].embedding); }});
    return long_text(std::move(answer));
  }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 private:
  const AnswerHead head_;
};

}  // namespace

std::unique_ptr<AnswerForm> make_ollama_form(AnswerHead head, const OllamaCall& call, const AnswerPlan& plan) {
  return std::make_unique<OllamaForm>(std::move(head), call, plan);
}

std::unique_ptr<AnswerForm> make_ollama_embedding_form(AnswerHead head) {
  return std::make_unique<OllamaEmbeddingForm>(std::move(head));
}

std::string ollama_loaded_json(const AnswerHead& head, const OllamaCall& call) {
  Json answer = begun_answer(head);
  if (call.is_chat) {
    answer["message"] = {{"role", "assistant"}, {"content", ""}};
  } else {
    answer["response"] = "";
  }
  answer["done"] = true;
  answer["done_reason"] = "load";
  return dumped(answer);
}

std::string ollama_error_body(const ApiError& error) { return dumped({{"error", error.message}}); }

std::string ollama_time(int64_t unix_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

}  // namespace choral::serve
