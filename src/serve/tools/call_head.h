// What stands before a call's JSON in a family's way of writing, read from a window of bounded size, so that what is found never
// depends on how the text came. Each function is true when the call's brace is next, which is left for the reader of JSON; when
// it is not, and the cursor ran out, more text may still make it so.
// Not thread-safe: one for each look at the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/ascii.h"

namespace choral::serve {

class CallCursor {
 public:
  static constexpr size_t kMaxBytes = 512;  // that may stand between a marker and a call's JSON

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

// An object, or the first of an array's.
bool object_or_array(CallCursor& text, bool& array);
// Mistral's "name{", "name[ARGS]{", "name[CALL_ID]abc[ARGS]{".
bool mistral_head(CallCursor& text, std::string& name);
// "<call begin>function<sep>name\n```json\n{" of DeepSeek V3, "<call begin>name<sep>{" of V3.1.
bool deepseek_head(CallCursor& text, std::string& name);
// "```json\n", and what small models write for it; the call comes behind it.
bool fence(CallCursor& text);

}  // namespace choral::serve
