// How a JSON text puts white space where it has a choice: what stood last behind the same byte. Until something did, what most
// writers do. It serves guesses, so it takes quotes for strings and looks no further. A plain value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace choral::text {

class WhiteSpaceStyle {
 public:
  static bool is_white_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

  void take(char c) {
    if (in_string_) {
      in_string_ = c != '"' || is_escaped_;
      is_escaped_ = c == '\\' && !is_escaped_;
      if (!in_string_) before_ = c;
      return;
    }
    if (is_white_space(c)) {
      if (count_ < kMost) now_[count_++] = c;
      return;
    }
    Run& run = runs_[place_of(before_)];
    run.is_known = true;
    run.size = count_;
    std::copy_n(now_.begin(), count_, run.text.begin());
    count_ = 0;
    before_ = c;
    in_string_ = c == '"';
  }
  // What is still missing of the white space here.
  std::string_view rest() const {
    Place place = place_of(before_);
    // Where what is open begins a line, what follows in it does too.
    if (place == kComma && !runs_[kComma].is_known && text_of(kOpen).find('\n') != std::string_view::npos) place = kOpen;
    const std::string_view whole = text_of(place), written(now_.data(), count_);
    return whole.starts_with(written) ? whole.substr(written.size()) : std::string_view();
  }

 private:
  static constexpr uint8_t kMost = 40;
  struct Run {
    std::array<char, kMost> text = {' '};
    uint8_t size = 0;
    bool is_known = false;
  };
  enum Place : uint8_t { kColon, kComma, kOpen, kElsewhere, kPlaces };
  static Place place_of(char before) {
    return before == ':' ? kColon : before == ',' ? kComma : before == '{' || before == '[' ? kOpen : kElsewhere;
  }

  std::string_view text_of(Place place) const { return {runs_[place].text.data(), runs_[place].size}; }

  std::array<Run, kPlaces> runs_ = {Run{.size = 1}, Run{.size = 1}, Run{}, Run{}};
  std::array<char, kMost> now_ = {};
  uint8_t count_ = 0;  // of now_
  char before_ = 0;    // the last byte that is no white space
  bool in_string_ = false, is_escaped_ = false;
};

}  // namespace choral::text
