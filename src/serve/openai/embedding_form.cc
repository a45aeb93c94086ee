// /v1/embeddings: one vector a text, as numbers or as the base64 of their little-endian bytes.
#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"
#include "serve/openai/number_list.h"

namespace choral::serve {
namespace {

class EmbeddingForm : public AnswerForm {
 public:
  EmbeddingForm(AnswerHead head, bool as_base64) : head_(std::move(head)), as_base64_(as_base64) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const auto entry = [this, &outputs](size_t i) -> LongJson {
      Json json{{"object", "embedding"}, {"index", i}};
      json["embedding"] = number_list(outputs[i].embedding, as_base64_);
      return json;
    };
    const Usage usage = usage_of(outputs);
    LongObject answer(Json{{"object", "list"}});
    answer.add("data", LongList{outputs.size(), entry});
    answer.add("model", Json(head_.model));
    answer.add("usage", Json{{"prompt_tokens", usage.prompt_tokens}, {"total_tokens", usage.prompt_tokens}});
    return long_text(std::move(answer));
  }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 private:
  const AnswerHead head_;
  const bool as_base64_;
};

}  // namespace

std::unique_ptr<AnswerForm> make_embedding_form(AnswerHead head, bool as_base64) {
  return std::make_unique<EmbeddingForm>(std::move(head), as_base64);
}

}  // namespace choral::serve
