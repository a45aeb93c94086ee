#include "serve/native/native_form.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "requests/finite_logprob.h"
#include "serve/http/sse.h"
#include "serve/native/generation_settings.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

class NativeForm : public AnswerForm {
 public:
  NativeForm(const NativeCall& call, NativeFormFacts facts)
      : facts_(std::move(facts)),
        settings_(generation_settings(call, facts_.adapter_ids)),
        stops_(call.request.sampling.stop),
        fields_(call.response_fields),
        n_predict_(call.request.sampling.max_tokens),
        no_tokens_(call.no_tokens),
        shows_tokens_(call.return_tokens),
        shows_timings_(call.timings),
        tells_progress_(call.tells_progress),
        probs_(call.request.sampling.logprobs.has_value()),
        choices_(static_cast<size_t>(call.request.sampling.n)),
        written_(facts_.prompts.size() * choices_) {}

  // One result as it is, several as a list.
  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const size_t count = outputs.size() * choices_;
    const auto result = [this, &outputs](size_t i) -> LongJson {
      const RequestOutput& output = outputs[i / choices_];
      return whole_result(i, output, output.completions[i % choices_]);
    };
    return count == 1 ? long_text(result(0)) : long_text(LongList{count, result});
  }

  std::string piece(size_t prompt, const StreamEvent& event, const Usage&) override {
    const size_t index = prompt * choices_ + static_cast<size_t>(event.index);
    Written& written = written_[index];
    std::string text;
    if (tells_progress_ && !std::exchange(written.begun, true)) {
      Json begin = part(index, prompt, {}, {});
      begin["prompt_progress"] = prompt_progress_json(progress(prompt));
      text = sse_data(dumped(begin));
    }
    if (!no_tokens_) {
      written.tokens += std::ssize(event.token_ids);
      written.guesses += event.guesses;
      written.has_new_line = written.has_new_line || has_new_line(event.text);
      if (!event.text.empty() || !event.token_ids.empty()) text += sse_data(dumped(part(index, prompt, event, written)));
    }
    if (event.finish_reason == FinishReason::kNone) return text;
    Json last = ending(index, {.progress = progress_of_one(progress(prompt), written.tokens, written.guesses),
                               .prompt = facts_.prompt_text(facts_.prompts[prompt]),
                               .reason = event.finish_reason,
                               .stop_reason = event.stopped_by_token ? "" : event.stop_reason,
                               .has_new_line = written.has_new_line});
    last["content"] = "";
    last["tokens"] = Json::array();
    add_adapters(adapters(), last);
    return text + sse_data(dumped(chosen(std::move(last))));
  }

  std::string end(const Usage&) override { return {}; }

 private:
  // Of one completion of a stream.
  struct Written {
    int64_t tokens = 0;
    GuessCounts guesses = {};
    bool has_new_line = false, begun = false;
  };
  struct Ending {
    Progress progress;
    std::string prompt;
    FinishReason reason;
    std::string stop_reason;
    bool has_new_line = false;
  };

  static bool has_new_line(std::string_view text) { return text.find('\n') != text.npos; }

  static Progress progress_of_one(Progress progress, int64_t tokens, const GuessCounts& guesses) {
    progress.made_tokens = tokens;
    progress.guesses = guesses;
    return progress;
  }

  Json part(size_t index, size_t prompt, const StreamEvent& event, const Written& written) const {
    Json json{{"index", index},
              {"content", event.text},
              {"tokens", event.token_ids},
              {"stop", false},
              {"id_slot", -1},
              {"tokens_predicted", written.tokens},
              {"tokens_evaluated", facts_.prompts[prompt].size()}};
    if (shows_timings_) json["timings"] = timings_json(progress_of_one(progress(prompt), written.tokens, written.guesses));
    if (probs_ && !event.logprobs.empty()) {
      Json& probs = json["completion_probabilities"] = Json::array();
      for (const auto& position : event.logprobs) probs.push_back(position_json(position));
    }
    return json;
  }

  // What both a whole result and a stream's last event say.
  Json ending(size_t index, const Ending& e) const {
    const std::string_view stop = stop_type(e.reason, e.stop_reason);
    const int64_t all = e.progress.prompt_tokens + e.progress.made_tokens;
    const bool reached_n_predict = no_tokens_ || (n_predict_ > 0 && e.progress.made_tokens >= n_predict_);
    return {{"index", index},
            {"content", ""},
            {"tokens", Json::array()},
            {"id_slot", -1},
            {"stop", true},
            {"model", facts_.model},
            {"tokens_predicted", e.progress.made_tokens},
            {"tokens_evaluated", e.progress.prompt_tokens},
            {"generation_settings", settings_},
            {"prompt", e.prompt},
            {"has_new_line", e.has_new_line},
            {"truncated", stop == "limit" && !reached_n_predict && all >= facts_.max_model_len},
            {"stop_type", stop},
            {"stopping_word", stop == "word" ? e.stop_reason : ""},
            {"tokens_cached", e.progress.cached_tokens},
            {"timings", timings_json(e.progress)}};
  }

  std::string_view stop_type(FinishReason reason, const std::string& stop_reason) const {
    if (no_tokens_ || reason == FinishReason::kLength) return "limit";
    if (reason != FinishReason::kStop) return "none";
    return std::find(stops_.begin(), stops_.end(), stop_reason) != stops_.end() ? "word" : "eos";
  }

  LongJson whole_result(size_t index, const RequestOutput& output, const Completion& completion) const {
    const std::string content = no_tokens_ ? "" : completion.text;
    const int64_t tokens = no_tokens_ ? 0 : std::ssize(completion.token_ids);
    Json json = ending(index, {.progress = progress_of_one(progress_of(output), tokens, completion.guesses),
                               .prompt = facts_.prompt_text(output.prompt_token_ids),
                               .reason = completion.finish_reason,
                               .stop_reason = completion.stopped_by_token ? "" : completion.stop_reason,
                               .has_new_line = has_new_line(content)});
    json["content"] = content;
    if (shows_tokens_ && !no_tokens_) json["tokens"] = completion.token_ids;
    add_adapters(output.adapters, json);
    json = chosen(std::move(json));
    if (!probs_ || no_tokens_ || !names_probs()) return json;
    return with_all_probs(std::move(json), completion);
  }

  bool names_probs() const {
    return fields_.empty() || std::find(fields_.begin(), fields_.end(), "completion_probabilities") != fields_.end();
  }

  LongJson with_all_probs(Json json, const Completion& completion) const {
    LongObject answer(std::move(json));
    answer.add("completion_probabilities", LongList{completion.logprobs.size(), [this, &completion](size_t i) -> LongJson {
                                                      return position_json(completion.logprobs[i]);
                                                    }});
    return answer;
  }

  // response_fields: "generation_settings/n_predict" stands under that name at the top.
  Json chosen(Json json) const {
    if (fields_.empty()) return json;
    Json out = Json::object();
    for (const auto& path : fields_) {
      if (const Json* const found = at_path(json, path)) out[path] = *found;
    }
    return out;
  }

  // Null: there is no such.
  static const Json* at_path(const Json& json, std::string_view path) {
    const size_t end = std::min(path.find('/'), path.size());
    const auto found = json.is_object() ? json.find(std::string(path.substr(0, end))) : json.end();
    if (found == json.end()) return nullptr;
    return end == path.size() ? &*found : at_path(*found, path.substr(end + 1));
  }

  Json token_json(const TokenLogprob& token) const {
    const std::string text = facts_.token_text(token.token_id);
    Json bytes = Json::array();
    for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
    return {{"id", token.token_id},
            {"token", text},
            {"bytes", std::move(bytes)},
            {"logprob", requests::finite_logprob(token.logprob)}};
  }

  Json position_json(const PositionLogprobs& position) const {
    Json json = token_json(position.chosen);
    Json& top = json["top_logprobs"] = Json::array();
    for (const auto& token : position.top) top.push_back(token_json(token));
    return json;
  }

  const NativeFormFacts facts_;
  const Json settings_;
  const std::vector<std::string> stops_, fields_;
  const int n_predict_;
  const bool no_tokens_, shows_tokens_, shows_timings_, tells_progress_, probs_;
  const size_t choices_;          // a prompt
  std::vector<Written> written_;  // one a completion
};

// [{"index", "embedding": [the one vector that a prompt has]}, …].
class NativeEmbeddingForm : public AnswerForm {
 public:
  explicit NativeEmbeddingForm(int norm) : norm_(norm) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    return long_text(LongList{outputs.size(), [this, &outputs](size_t i) -> LongJson {
                                Json vectors = Json::array();
                                vectors.push_back(scaled(outputs[i].embedding));
                                return Json{{"index", i}, {"embedding", std::move(vectors)}};
                              }});
  }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 private:
  // Vectors have length 1 already.
  Json scaled(const std::vector<float>& vector) const {
    constexpr int kEuclid = 2;
    if (norm_ == kEuclid) return vector;
    const double norm = size_of(vector);
    Json json = Json::array();
    for (const float x : vector) json.push_back(norm > 0 ? static_cast<float>(x / norm) : 0.0f);
    return json;
  }

  double size_of(const std::vector<float>& vector) const {
    constexpr double kMost = 32760;  // llama.cpp's
    double sum = 0;
    for (const float x : vector)
      sum = norm_ == 0 ? std::max(sum, double{std::abs(x)}) : sum + std::pow(double{std::abs(x)}, norm_);
    return norm_ == 0 ? sum / kMost : std::pow(sum, 1.0 / norm_);
  }

  const int norm_;
};

}  // namespace

std::unique_ptr<AnswerForm> make_native_form(const NativeCall& call, NativeFormFacts facts) {
  return std::make_unique<NativeForm>(call, std::move(facts));
}

std::unique_ptr<AnswerForm> make_native_embedding_form(int norm) { return std::make_unique<NativeEmbeddingForm>(norm); }

}  // namespace choral::serve
