#include "engine/output_text.h"

#include <algorithm>

namespace choral::engine {
OutputText::OutputText(std::shared_ptr<const text::Tokenizer> tokenizer, OutputTextOptions options, size_t expected_tokens)
    : options_(std::move(options)) {
  for (const auto& stop : options_.stop) longest_stop_ = std::max(longest_stop_, stop.size());
  if (tokenizer == nullptr) return;
  detokenizer_.emplace(std::move(tokenizer), text::DecodeOptions{.skip_special_tokens = options_.skip_special_tokens});
  text_.reserve(expected_tokens * kTextBytesPerToken + longest_stop_);
}

bool OutputText::push(int32_t token_id, bool look_for_stops) {
  if (!detokenizer_) return false;
  detokenizer_->push(token_id, text_);
  if (look_for_stops) return find_stop();
  searched_ = text_.size();
  return false;
}

bool OutputText::finish() {
  if (detokenizer_ && !stopped()) text_ += detokenizer_->finish();
  finished_ = true;
  return stopped() || find_stop();
}

bool OutputText::find_stop() {
  if (longest_stop_ == 0) return false;
  size_t first = std::string::npos;
  for (size_t i = 0; i < options_.stop.size(); ++i) {
    const std::string& stop = options_.stop[i];
    if (stop.empty()) continue;
    const size_t found = text_.find(stop, searched_ - std::min(searched_, stop.size() - 1));
    if (found < first) {
      first = found;
      matched_ = i;
    }
  }
  searched_ = text_.size();
  if (!stopped()) return false;
  text_.resize(first + (options_.include_stop ? matched_stop().size() : 0));
  return true;
}

size_t OutputText::held_back() const {
  if (stopped() || finished_) return 0;
  for (size_t length = std::min(longest_stop_, text_.size() + 1) - (longest_stop_ > 0 ? 1 : 0); length > 0; --length) {
    const auto tail = std::string_view(text_).substr(text_.size() - length);
    for (const auto& stop : options_.stop) {
      if (std::string_view(stop).starts_with(tail)) return length;
    }
  }
  return 0;
}

std::string_view OutputText::take_released() {
  const size_t end = text_.size() - held_back();
  if (end <= released_) return {};
  const auto piece = std::string_view(text_).substr(released_, end - released_);
  released_ = end;
  return piece;
}

}  // namespace choral::engine
