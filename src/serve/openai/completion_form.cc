// /v1/completions: text_completion objects, choices of all prompts numbered through.
#include <utility>

#include "serve/http/sse.h"
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/logprobs_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

class CompletionForm : public AnswerForm {
 public:
  CompletionForm(AnswerHead head, const CompletionCall& call, PromptTokens prompts, TokenText token_text)
      : head_(std::move(head)),
        echo_(call.echo),
        no_tokens_(call.no_tokens),
        include_usage_(call.include_usage),
        continuous_usage_(call.continuous_usage),
        token_ids_(call.return_token_ids),
        timings_(call.timings),
        tells_progress_(call.tells_progress),
        choices_(static_cast<size_t>(call.request.sampling.n)),
        logprobs_(call.request.sampling.logprobs),
        beside_(tokens_beside(call.request.sampling).count),
        prompt_logprobs_(call.prompt_logprobs),
        names_{std::move(token_text), call.tokens_as_token_ids},
        prompts_(std::move(prompts)),
        of_prompts_(call.prompts.size()),
        begun_(call.prompts.size() * choices_),
        offsets_(call.prompts.size() * choices_) {
    tell_resume(call);
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
    if (timings_) {
      Progress all;
      for (const auto& output : outputs) all = together(all, progress_of(output));
      answer.add("timings", timings(all));
    }
    return long_text(std::move(answer));
  }

  std::string piece(size_t prompt, const StreamEvent& event, const Usage& so_far) override {
    note_resume(event);
    const size_t index = prompt * choices_ + static_cast<size_t>(event.index);
    Json choice{{"index", index}, {"text", no_tokens_ ? "" : event.text}, {"logprobs", nullptr}};
    CompletionLogprobs logprobs;
    const bool is_first = std::exchange(begun_[index], 1) == 0;
    if (!event.prompt_logprobs.empty()) of_prompts_[prompt] = event.prompt_logprobs;
    if (is_first && echo_) {
      choice["text"] = prompt_texts_[prompt] + choice["text"].get_ref<const std::string&>();
      if (logprobs_ && !replays()) add_prompt(prompts_[prompt].front(), of_prompts_[prompt], logprobs, offsets_[index]);
    }
    if (logprobs_ && replays()) offsets_[index] = characters_before(prompts_[prompt], event.token_ids);
    if (is_first && prompt_logprobs_ && event.index == 0) choice["prompt_logprobs"] = prompt_logprobs(event.prompt_logprobs);
    if (is_first && token_ids_) choice["prompt_token_ids"] = prompts_[prompt];
    if (!no_tokens_) add(event.logprobs, beside_, logprobs, offsets_[index]);
    if (logprobs_) choice["logprobs"] = std::move(logprobs).json();
    choice["finish_reason"] = finish_reason_json(no_tokens_ && event.finish_reason != FinishReason::kNone ? FinishReason::kLength
                                                                                                          : event.finish_reason);
    choice["stop_reason"] = stop_reason_json(event.stop_reason, event.stopped_by_token);
    if (token_ids_) choice["token_ids"] = no_tokens_ ? std::vector<int32_t>() : event.token_ids;
    Json json = chunk(Json::array({std::move(choice)}), continuous_usage_ ? counted(so_far) : Json(nullptr));
    if (event.finish_reason != FinishReason::kNone) add_adapters(adapters(), json);
    if (timings_) json["timings"] = timings(progress(prompt));
    if (is_first && tells_progress_) json["prompt_progress"] = prompt_progress_json(progress(prompt));
    if (std::string resume = take_resume(head_); !resume.empty()) json["resume"] = std::move(resume);
    return sse_data(dumped(json));
  }

  std::string end(const Usage& total) override {
    std::string text;
    if (include_usage_) {
      Json json = chunk(Json::array(), counted(total));
      Progress all;
      for (size_t i = 0; i < of_prompts_.size(); ++i) all = together(all, progress(i));
      if (timings_) json["timings"] = timings(all);
      text = sse_data(dumped(json));
    }
    return text + sse_data("[DONE]");
  }

 private:
  // The token that was computed for a prompt's sake is nobody's.
  Json counted(Usage usage) const {
    if (no_tokens_) usage.completion_tokens = 0;
    return usage_json(usage);
  }

  Json timings(Progress progress) const {
    if (no_tokens_) progress.made_tokens = 0;
    return timings_json(progress);
  }

  std::string text_of(const std::vector<int32_t>& ids) const {
    std::string text;
    for (const int32_t id : ids) text += names_.text(id);
    return text;
  }

  // Of what came before the rest of an answer, in which `given` came, the prompt too where it was repeated.
  int64_t characters_before(const std::vector<int32_t>& prompt, const std::vector<int32_t>& given) const {
    return (echo_ ? text_characters(prompt, names_) : 0) + text_characters(given, names_);
  }

  Json chunk(Json choices, Json usage) const {
    Json json = head_json(head_, "text_completion");
    json["choices"] = std::move(choices);
    if (include_usage_) json["usage"] = std::move(usage);
    return json;
  }

  void add(const std::vector<PositionLogprobs>& positions, size_t beside, CompletionLogprobs& out, int64_t& offset) const {
    if (!logprobs_) return;
    for (const auto& position : positions) out.add(position, beside, names_, offset);
  }

  Json prompt_logprobs(const std::vector<PositionLogprobs>& positions) const {
    return prompt_logprobs_json(positions, *prompt_logprobs_, names_);
  }

  void add_prompt(int32_t first, const std::vector<PositionLogprobs>& rest, CompletionLogprobs& out, int64_t& offset) const {
    out.add_first(first, names_, offset);
    add(rest, static_cast<size_t>(std::max(logprobs_.value_or(0), 0)), out, offset);
  }

  LongJson choice(size_t prompt, const RequestOutput& output, const Completion& completion) const {
    Json begin{{"index", prompt * choices_ + static_cast<size_t>(completion.index)}};
    add_beam_score(completion, begin);
    LongObject json(std::move(begin));
    const bool is_first = completion.given_token_ids.empty();
    json.add("text", Json((echo_ && is_first ? prompt_texts_[prompt] : "") + (no_tokens_ ? "" : completion.text)));
    json.add("logprobs", logprobs_ ? logprobs(output, completion) : Json(nullptr));
    json.add("finish_reason", finish_reason_json(no_tokens_ ? FinishReason::kLength : completion.finish_reason));
    json.add("stop_reason", stop_reason_json(completion.stop_reason, completion.stopped_by_token));
    if (prompt_logprobs_ && begins(output))
      json.add("prompt_logprobs", long_prompt_logprobs(output.prompt_logprobs, *prompt_logprobs_, names_));
    if (token_ids_) {
      json.add("prompt_token_ids", Json(output.prompt_token_ids));
      json.add("token_ids", Json(no_tokens_ ? std::vector<int32_t>() : completion.token_ids));
    }
    return json;
  }

  LongJson logprobs(const RequestOutput& output, const Completion& completion) const {
    LogprobRows rows;
    const auto& given = completion.given_token_ids;
    if (!given.empty()) {
      rows.set_offset(characters_before(output.prompt_token_ids, given));
    } else if (echo_) {
      rows.add_first(output.prompt_token_ids.front());
      rows.add(output.prompt_logprobs, static_cast<size_t>(std::max(logprobs_.value_or(0), 0)));
    }
    if (!no_tokens_) rows.add(completion.logprobs, beside_);
    return long_completion_logprobs(std::move(rows), names_);
  }

  const AnswerHead head_;
  const bool echo_, no_tokens_, include_usage_, continuous_usage_, token_ids_, timings_, tells_progress_;
  const size_t choices_;  // a prompt
  const std::optional<int> logprobs_;
  const size_t beside_;  // tokens in top_logprobs of what is generated
  const std::optional<int> prompt_logprobs_;
  const TokenNames names_;
  const PromptTokens prompts_;
  std::vector<std::string> prompt_texts_;
  std::vector<std::vector<PositionLogprobs>> of_prompts_;  // the first choice brings them
  std::vector<int8_t> begun_;                              // one a choice: something of it was sent
  std::vector<int64_t> offsets_;                           // likewise: of its next token
};

}  // namespace

bool shows_prompts(const CompletionCall& call) {
  return call.stream && (call.return_token_ids || (call.echo && call.request.sampling.logprobs));
}

std::unique_ptr<AnswerForm> make_completion_form(AnswerHead head, const CompletionCall& call, PromptTokens prompts,
                                                 TokenText token_text) {
  return std::make_unique<CompletionForm>(std::move(head), call, std::move(prompts), std::move(token_text));
}

}  // namespace choral::serve
