#include "engine/prompt_length.h"

namespace choral::engine {
namespace {

constexpr std::string_view kWords = "this model's maximum context length is";

}  // namespace

Status prompt_too_long(std::string_view what, int32_t max_model_len, int32_t answer_tokens) {
  return invalid_argument("{}, but at most {} fit ({} {} tokens{}); shorten it or raise --max-model-len", what,
                          max_model_len - answer_tokens, kWords, max_model_len,
                          answer_tokens > 0 ? ", one of them to answer" : "");
}

bool is_prompt_too_long(const Status& status) {
  return status.code() == Code::kInvalidArgument && status.message().find(kWords) != std::string::npos;
}

}  // namespace choral::engine
