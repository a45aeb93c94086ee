#include "serve/pooling/pooled_form.h"

#include <algorithm>
#include <cmath>

#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"
#include "serve/openai/number_list.h"

namespace choral::serve {
namespace {

// Both answer with a list of entries, one a text.
class PooledForm : public AnswerForm {
 public:
  explicit PooledForm(AnswerHead head) : head_(std::move(head)) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    LongObject answer(Json{{"id", head_.id}, {"object", "list"}, {"created", head_.created_unix_s}, {"model", head_.model}});
    answer.add("data", LongList{outputs.size(), [this, &outputs](size_t i) -> LongJson { return entry(i, outputs[i]); }});
    answer.add("usage", usage_json(usage_of(outputs)));
    return long_text(std::move(answer));
  }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 protected:
  virtual Json entry(size_t index, const RequestOutput& output) const = 0;

 private:
  const AnswerHead head_;
};

std::vector<float> scores(const RequestOutput& output, bool use_activation) {
  return use_activation ? class_probabilities(output.classes) : output.classes;
}

class ClassifyForm : public PooledForm {
 public:
  ClassifyForm(AnswerHead head, bool use_activation, std::vector<std::string> labels)
      : PooledForm(std::move(head)), use_activation_(use_activation), labels_(std::move(labels)) {}

 private:
  Json entry(size_t index, const RequestOutput& output) const override {
    const auto probs = scores(output, use_activation_);
    const auto best = static_cast<size_t>(std::max_element(probs.begin(), probs.end()) - probs.begin());
    return {{"index", index}, {"label", labels_.at(best)}, {"probs", probs}, {"num_classes", probs.size()}};
  }

  const bool use_activation_;
  const std::vector<std::string> labels_;
};

class PoolingForm : public PooledForm {
 public:
  PoolingForm(AnswerHead head, const PooledCall& call)
      : PooledForm(std::move(head)), use_activation_(call.use_activation), as_base64_(call.base64) {}

 private:
  Json entry(size_t index, const RequestOutput& output) const override {
    const auto values = output.classes.empty() ? output.embedding : scores(output, use_activation_);
    return {{"index", index}, {"object", "pooling"}, {"data", number_list(values, as_base64_)}};
  }

  const bool use_activation_, as_base64_;
};

}  // namespace

std::vector<float> class_probabilities(std::span<const float> logits) {
  if (logits.size() == 1) return {static_cast<float>(1 / (1 + std::exp(-double{logits[0]})))};
  std::vector<float> out(logits.size());
  if (logits.empty()) return out;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  std::transform(logits.begin(), logits.end(), out.begin(),
                 [&](float logit) { return static_cast<float>(std::exp(double{logit} - largest) / sum); });
  return out;
}

std::unique_ptr<AnswerForm> make_classify_form(AnswerHead head, const PooledCall& call, std::vector<std::string> labels) {
  return std::make_unique<ClassifyForm>(std::move(head), call.use_activation, std::move(labels));
}

std::unique_ptr<AnswerForm> make_pooling_form(AnswerHead head, const PooledCall& call) {
  return std::make_unique<PoolingForm>(std::move(head), call);
}

}  // namespace choral::serve
