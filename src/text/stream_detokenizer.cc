#include "text/stream_detokenizer.h"

#include <utility>

#include "base/check.h"
#include "text/tokenizer_parts.h"

namespace choral::text {

StreamDetokenizer::StreamDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  CHORAL_CHECK(tokenizer_, "a StreamDetokenizer needs a tokenizer");
  stream_ = std::make_unique<DecodeStream>(tokenizer_->parts_->decoder);
}
StreamDetokenizer::~StreamDetokenizer() = default;
StreamDetokenizer::StreamDetokenizer(StreamDetokenizer&&) noexcept = default;
StreamDetokenizer& StreamDetokenizer::operator=(StreamDetokenizer&&) noexcept = default;

void StreamDetokenizer::push(int32_t id, std::string& appended) {
  const auto text = tokenizer_->decoder_text(id);
  if (text && !(options_.skip_special_tokens && tokenizer_->is_special(id))) stream_->push(*text, appended);
}

std::string StreamDetokenizer::push(int32_t id) {
  std::string out;
  push(id, out);
  return out;
}

std::string StreamDetokenizer::finish() {
  std::string out;
  stream_->finish(out);
  return out;
}

}  // namespace choral::text
