// What one text may cost: tokenizer files and texts are both untrusted, and each stage alone can be led to look at the same
// bytes again and again or to make many bytes of one. All stages of an encode() draw from one budget, which depends on the size
// of the text and on how many tokens are of use, so the same input ends the same way on every machine.
// Real tokenizers stay below it on any text, those included that look ahead over every run of spaces or digits.
// Thread-safety: belongs to one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace choral::text {

// What a text may cost however short it is; what it may cost by its size comes on top.
struct EncodeLimits {
  uint64_t free_work = 16 << 20;   // steps
  uint64_t free_growth = 1 << 20;  // bytes
};

class EncodeBudget {
 public:
  static constexpr size_t kAnyNumber = SIZE_MAX;

  // `max_tokens`: a text with more is of no use to the caller.
  explicit EncodeBudget(size_t text_bytes, size_t max_tokens = kAnyNumber, EncodeLimits limits = {});

  // Takes `steps` of work, a nanosecond or so each; corrupt, with the stage, when they are used up.
  Status work(uint64_t steps, std::string_view stage) {
    if (steps > work_left_) [[unlikely]]
      return out_of_work(stage);
    work_left_ -= steps;
    return {};
  }
  // Before a stage writes `bytes` of rewritten text.
  Status grow(uint64_t bytes, std::string_view stage) {
    if (bytes > growth_left_) [[unlikely]]
      return out_of_growth(stage);
    growth_left_ -= bytes;
    return {};
  }
  uint64_t growth_left() const { return growth_left_; }
  // So much more text came; what it may cost by its size is added.
  void extend(size_t bytes);

  // too_large once there are more tokens than are of use.
  Status check_tokens(size_t tokens) const {
    if (tokens > max_tokens_) [[unlikely]]
      return too_many_tokens(max_tokens_);
    return {};
  }
  // The same before `bytes` more are encoded, of which one token stands for `bytes_per_token` at most (0: for any number).
  Status check_room(size_t tokens, size_t bytes, size_t bytes_per_token) const {
    if (tokens <= max_tokens_ && bytes <= max_tokens_ - tokens) [[likely]]
      return {};
    return check_scarce_room(tokens, bytes, bytes_per_token);
  }
  size_t max_tokens() const { return max_tokens_; }
  static Status too_many_tokens(size_t max_tokens);

 private:
  Status check_scarce_room(size_t tokens, size_t bytes, size_t bytes_per_token) const;
  Status out_of_work(std::string_view stage) const;
  Status out_of_growth(std::string_view stage) const;

  size_t text_bytes_;
  size_t max_tokens_;
  uint64_t work_left_;
  uint64_t growth_left_;
};

}  // namespace choral::text
