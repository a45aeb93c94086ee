// /v1/completions: text_completion objects, choices of all prompts numbered through.
#include <utility>

#include "engine/sampling_rule.h"
#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/logprobs_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

class CompletionForm : public AnswerForm {
 public:
  CompletionForm(AnswerHead head, const CompletionCall& call, std::vector<int32_t> first_tokens, TokenText token_text)
      : head_(std::move(head)),
        echo_(call.echo),
        no_tokens_(call.no_tokens),
        include_usage_(call.include_usage),
        continuous_usage_(call.continuous_usage),
        token_ids_(call.return_token_ids),
        choices_(static_cast<size_t>(call.request.sampling.n)),
        logprobs_(call.request.sampling.logprobs),
        beside_(engine::logprobs_beside(call.request.sampling)),
        // With echo those of the prompt stand among the others, unless they were asked for as well.
        prompt_logprobs_(call.request.sampling.prompt_logprobs && !call.echo),
        names_{std::move(token_text), call.tokens_as_token_ids},
        first_tokens_(std::move(first_tokens)),
        of_prompts_(call.prompts.size()),
        echoed_(call.prompts.size() * choices_),
        offsets_(call.prompts.size() * choices_) {
    for (const auto& prompt : call.prompts) {
      const auto* text = std::get_if<std::string>(&prompt);
      prompt_texts_.push_back(!echo_ ? "" : text != nullptr ? *text : text_of(std::get<std::vector<int32_t>>(prompt)));
    }
  }

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    LongObject answer(head_json(head_, "text_completion"));
    answer.add("choices", LongList{outputs.size() * choices_, [this, &outputs](size_t i) {
                                     const RequestOutput& output = outputs[i / choices_];
                                     return choice(i / choices_, output, output.completions[i % choices_]);
                                   }});
    answer.add("usage", counted(usage_of(outputs)));
    return long_text(std::move(answer));
  }

  std::string piece(size_t prompt, const StreamEvent& event, const Usage& so_far) override {
    const size_t index = prompt * choices_ + static_cast<size_t>(event.index);
    Json choice{{"index", index}, {"text", no_tokens_ ? "" : event.text}, {"logprobs", nullptr}};
    CompletionLogprobs logprobs;
    const bool is_first = std::exchange(echoed_[index], 1) == 0;
    if (!event.prompt_logprobs.empty()) of_prompts_[prompt] = event.prompt_logprobs;
    if (is_first && echo_) {
      choice["text"] = prompt_texts_[prompt] + choice["text"].get_ref<const std::string&>();
      if (!first_tokens_.empty()) add_prompt(first_tokens_[prompt], of_prompts_[prompt], logprobs, offsets_[index]);
    }
    if (!no_tokens_) add(event.logprobs, beside_, logprobs, offsets_[index]);
    if (logprobs_) choice["logprobs"] = std::move(logprobs).json();
    choice["finish_reason"] = finish_reason_json(no_tokens_ && event.finish_reason != FinishReason::kNone ? FinishReason::kLength
                                                                                                          : event.finish_reason);
    choice["stop_reason"] = stop_reason_json(event.stop_reason);
    if (token_ids_) choice["token_ids"] = event.token_ids;
    return chunk(Json::array({std::move(choice)}), continuous_usage_ ? counted(so_far) : Json(nullptr));
  }

  std::string end(const Usage& total) override {
    std::string text;
    if (include_usage_) text = chunk(Json::array(), counted(total));
    return text + sse_data("[DONE]");
  }

 private:
  // The token that was computed for a prompt's sake is nobody's.
  Json counted(Usage usage) const {
    if (no_tokens_) usage.completion_tokens = 0;
    return usage_json(usage);
  }

  std::string text_of(const std::vector<int32_t>& ids) const {
    std::string text;
    for (const int32_t id : ids) text += names_.text(id);
    return text;
  }

  std::string chunk(Json choices, Json usage) const {
    Json json = head_json(head_, "text_completion");
    json["choices"] = std::move(choices);
    if (include_usage_ || continuous_usage_) json["usage"] = std::move(usage);
    return sse_data(dumped(json));
  }

  void add(const std::vector<PositionLogprobs>& positions, size_t beside, CompletionLogprobs& out, int64_t& offset) const {
    if (!logprobs_) return;
    for (const auto& position : positions) out.add(position, beside, names_, offset);
  }

  void add_prompt(int32_t first, const std::vector<PositionLogprobs>& rest, CompletionLogprobs& out, int64_t& offset) const {
    out.add_first(first, names_, offset);
    add(rest, static_cast<size_t>(std::max(logprobs_.value_or(0), 0)), out, offset);
  }

  LongJson choice(size_t prompt, const RequestOutput& output, const Completion& completion) const {
    LongObject json(Json{{"index", prompt * choices_ + static_cast<size_t>(completion.index)}});
    json.add("text", Json((echo_ ? prompt_texts_[prompt] : "") + (no_tokens_ ? "" : completion.text)));
    json.add("logprobs", logprobs_ ? logprobs(output, completion) : Json(nullptr));
    json.add("finish_reason", finish_reason_json(no_tokens_ ? FinishReason::kLength : completion.finish_reason));
    json.add("stop_reason", stop_reason_json(completion.stop_reason));
    if (prompt_logprobs_) json.add("prompt_logprobs", long_prompt_logprobs(output.prompt_logprobs, names_));
    if (token_ids_) {
      json.add("prompt_token_ids", Json(output.prompt_token_ids));
      json.add("token_ids", Json(no_tokens_ ? std::vector<int32_t>() : completion.token_ids));
    }
    return json;
  }

  LongJson logprobs(const RequestOutput& output, const Completion& completion) const {
    LogprobRows rows;
    if (echo_) {
      rows.add_first(output.prompt_token_ids.front());
      rows.add(output.prompt_logprobs, static_cast<size_t>(std::max(logprobs_.value_or(0), 0)));
    }
    if (!no_tokens_) rows.add(completion.logprobs, beside_);
    return long_completion_logprobs(std::move(rows), names_);
  }

  const AnswerHead head_;
  const bool echo_, no_tokens_, include_usage_, continuous_usage_, token_ids_;
  const size_t choices_;  // a prompt
  const std::optional<int> logprobs_;
  const size_t beside_;  // tokens in top_logprobs of what is generated
  const bool prompt_logprobs_;
  const TokenNames names_;
  const std::vector<int32_t> first_tokens_;
  std::vector<std::string> prompt_texts_;
  std::vector<std::vector<PositionLogprobs>> of_prompts_;  // the first choice brings them
  std::vector<int8_t> echoed_;                             // one a choice: something of it was sent
  std::vector<int64_t> offsets_;                           // likewise: of its next token
};

}  // namespace

std::unique_ptr<AnswerForm> make_completion_form(AnswerHead head, const CompletionCall& call, std::vector<int32_t> first_tokens,
                                                 TokenText token_text) {
  return std::make_unique<CompletionForm>(std::move(head), call, std::move(first_tokens), std::move(token_text));
}

}  // namespace choral::serve
