// A look at the text from one place on, through a window of bounded size, so that what is found never depends on how the text
// came. Where something was not found and the cursor ran out, more text may still make it so.
// Not thread-safe: one for each look at the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "base/ascii.h"

namespace choral::serve {

class CallCursor {
 public:
  static constexpr size_t kMaxBytes = 512;  // that may stand between a mark and a call's arguments

  explicit CallCursor(std::string_view text) : text_(text.substr(0, kMaxBytes)), full_(text.size() >= kMaxBytes) {}

  size_t at() const { return at_; }
  // The text ended before something could be decided.
  bool ran_out() const { return ran_out_ && !full_; }

  void space() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  bool take(std::string_view wanted) {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(wanted)) {
      at_ += wanted.size();
      return true;
    }
    ran_out_ = ran_out_ || wanted.starts_with(rest);
    return false;
  }
  bool peek(std::string_view wanted) {
    const size_t at = at_;
    const bool there = take(wanted);
    at_ = at;
    return there;
  }
  // Something more is there, and it fits.
  template <class Fits>
  bool peek_that(Fits fits) {
    ran_out_ = ran_out_ || ended();
    return !ended() && fits(text_[at_]);
  }
  bool ended() const { return at_ == text_.size(); }
  template <class Fits>
  std::string_view take_while(Fits fits) {
    const size_t begin = at_;
    while (at_ < text_.size() && fits(text_[at_])) ++at_;
    ran_out_ = ran_out_ || at_ == text_.size();
    return text_.substr(begin, at_ - begin);
  }
  // What stands before `end`, which is used up too; nothing when it does not come.
  std::optional<std::string_view> take_until(std::string_view end) {
    const size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) {
      ran_out_ = true;
      return std::nullopt;
    }
    const size_t begin = std::exchange(at_, found + end.size());
    return text_.substr(begin, found - begin);
  }

 private:
  std::string_view text_;
  bool full_, ran_out_ = false;
  size_t at_ = 0;
};

}  // namespace choral::serve
