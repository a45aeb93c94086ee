#include "serve/ranking/rank_form.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

// What is computed of a question's answer is nobody's: the question alone counts.
Json prompt_usage(const std::vector<RequestOutput>& outputs) {
  const Usage usage = usage_of(outputs);
  return {{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}};
}

// Best first, equal ones in the order they came.
std::vector<size_t> ranked(const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  return order;
}

class RerankForm : public AnswerForm {
 public:
  RerankForm(AnswerHead head, RerankCall call, ScoreBy by) : head_(std::move(head)), call_(std::move(call)), by_(by) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const std::vector<double> scores = pair_scores(call_, by_, outputs);
    std::vector<size_t> order = ranked(scores);
    if (call_.top_n && std::cmp_less(*call_.top_n, order.size())) order.resize(static_cast<size_t>(*call_.top_n));
    LongList results{order.size(), [this, order, scores](size_t i) -> LongJson { return result(order[i], scores[order[i]]); }};
    if (call_.is_plain_list) return long_text(std::move(results));
    LongObject answer(Json{{"id", head_.id}, {"object", "list"}, {"model", head_.model}, {"usage", prompt_usage(outputs)}});
    answer.add("results", std::move(results));
    return long_text(std::move(answer));
  }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 private:
  Json result(size_t index, double score) const {
    Json json{{"index", index}};
    json[call_.is_plain_list ? "score" : "relevance_score"] = score;
    if (!call_.return_documents) return json;
    if (call_.is_plain_list) {
      json["text"] = call_.right[index];
    } else {
      json["document"] = {{"text", call_.right[index]}};
    }
    return json;
  }

  const AnswerHead head_;
  const RerankCall call_;
  const ScoreBy by_;
};

class ScoreForm : public AnswerForm {
 public:
  ScoreForm(AnswerHead head, PairsCall call, ScoreBy by) : head_(std::move(head)), call_(std::move(call)), by_(by) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    LongObject answer(Json{{"id", head_.id}, {"object", "list"}, {"created", head_.created_unix_s}, {"model", head_.model}});
    answer.add("data", LongList{call_.pairs(), [scores = pair_scores(call_, by_, outputs)](size_t i) -> LongJson {
                                  return Json{{"index", i}, {"object", "score"}, {"score", scores[i]}};
                                }});
    answer.add("usage", prompt_usage(outputs));
    return long_text(std::move(answer));
  }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 private:
  const AnswerHead head_;
  const PairsCall call_;
  const ScoreBy by_;
};

}  // namespace

std::unique_ptr<AnswerForm> make_rerank_form(AnswerHead head, RerankCall call, ScoreBy by) {
  return std::make_unique<RerankForm>(std::move(head), std::move(call), by);
}

std::unique_ptr<AnswerForm> make_score_form(AnswerHead head, PairsCall call, ScoreBy by) {
  return std::make_unique<ScoreForm>(std::move(head), std::move(call), by);
}

}  // namespace choral::serve
