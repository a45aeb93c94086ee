#include "text/encode_budget.h"

#include <algorithm>

namespace choral::text {
namespace {

// Of a text, only as much is worth the full price as tokens of this size fill.
constexpr uint64_t kUsefulBytesPerToken = 256;
constexpr uint64_t kWorkPerUsefulByte = 512, kWorkPerByte = 64;
constexpr uint64_t kGrowthPerUsefulByte = 16, kGrowthPerByte = 4;

}  // namespace

EncodeBudget::EncodeBudget(size_t text_bytes, size_t max_tokens, EncodeLimits limits)
    : text_bytes_(0), max_tokens_(max_tokens), work_left_(limits.free_work), growth_left_(limits.free_growth) {
  extend(text_bytes);
}

void EncodeBudget::extend(size_t bytes) {
  const uint64_t most_useful = std::min<uint64_t>(max_tokens_, 1 << 30) * kUsefulBytesPerToken;
  const uint64_t useful = std::min<uint64_t>(bytes, most_useful - std::min<uint64_t>(most_useful, text_bytes_));
  text_bytes_ += bytes;
  work_left_ += kWorkPerUsefulByte * useful + kWorkPerByte * bytes;
  growth_left_ += kGrowthPerUsefulByte * useful + kGrowthPerByte * bytes;
}

Status EncodeBudget::check_scarce_room(size_t tokens, size_t bytes, size_t bytes_per_token) const {
  CHORAL_RETURN_IF_ERROR(check_tokens(tokens));
  if (bytes_per_token != 0 && bytes / bytes_per_token > max_tokens_ - tokens) return too_many_tokens(max_tokens_);
  return {};
}

Status EncodeBudget::out_of_work(std::string_view stage) const {
  return corrupt("{} goes over a text of {} bytes too many times: give another with --tokenizer, or a shorter text", stage,
                 text_bytes_);
}

Status EncodeBudget::out_of_growth(std::string_view stage) const {
  return corrupt("{} makes too much of a text of {} bytes: give another with --tokenizer, or a shorter text", stage, text_bytes_);
}

Status EncodeBudget::too_many_tokens(size_t max_tokens) { return too_large("the text has more than {} tokens", max_tokens); }

}  // namespace choral::text
