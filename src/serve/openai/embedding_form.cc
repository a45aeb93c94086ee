// /v1/embeddings: one vector a text, as numbers or as the base64 of their little-endian bytes.
#include <bit>
#include <cstring>

#include "serve/openai/answer_form.h"
#include "serve/openai/answer_json.h"
#include "serve/openai/long_json.h"

namespace choral::serve {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire's floats are this machine's");

std::string base64(std::span<const float> values) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size_bytes());
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? bytes[i + j] : 0u);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kLetters[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

class EmbeddingForm : public AnswerForm {
 public:
  EmbeddingForm(AnswerHead head, bool as_base64) : head_(std::move(head)), as_base64_(as_base64) {}

  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) override {
    const auto entry = [this, &outputs](size_t i) -> LongJson {
      Json json{{"object", "embedding"}, {"index", i}};
      json["embedding"] = as_base64_ ? Json(base64(outputs[i].embedding)) : Json(outputs[i].embedding);
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
