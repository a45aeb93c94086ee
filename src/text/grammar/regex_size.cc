#include "text/grammar/regex_size.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr size_t kEndless = std::numeric_limits<size_t>::max();

struct Repetition {
  size_t least = 0;
  size_t most = kEndless;
};

size_t times(size_t a, size_t b) { return b != 0 && a > kEndless / b ? kEndless : a * b; }
size_t plus(size_t a, size_t b) { return a > kEndless - b ? kEndless : a + b; }

class Scanner {
 public:
  Scanner(std::string_view pattern, const RegexLimits& limits) : pattern_(pattern), limits_(limits) {}

  Status run() {
    open_.emplace_back();
    while (at_ < pattern_.size()) {
      CHORAL_RETURN_IF_ERROR(next());
      if (open_.back().places > limits_.max_places) {
        return too_large("regular expression, byte {}: written out it has more than {} places; make its repetitions smaller", at_,
                         limits_.max_places);
      }
    }
    if (open_.size() > 1) return fault(open_.back().begin, "this ( is never closed");
    return {};
  }

 private:
  struct Group {
    size_t begin = 0;
    size_t places = 0;
    size_t last = 0;          // places of what a quantifier would repeat
    bool repeatable = false;  // such a thing stands here
  };

  static Status fault(size_t at, std::string_view what) { return invalid_argument("regular expression, byte {}: {}", at, what); }

  void atom(size_t places) {
    Group& group = open_.back();
    group.places = plus(group.places, places);
    group.last = places;
    group.repeatable = true;
  }
  void no_atom() { open_.back().repeatable = false; }

  Status next() {
    const size_t begin = at_;
    const char c = pattern_[at_++];
    switch (c) {
      case '\\':
        if (at_ == pattern_.size()) return fault(begin, "nothing follows the backslash");
        at_ += utf8_length(static_cast<unsigned char>(pattern_[at_]));
        atom(1);
        return {};
      case '[': return character_class(begin);
      case '(': return open_group(begin);
      case ')': return close_group(begin);
      case '|':
      case '^': no_atom(); return {};
      case '$': no_atom(); return {};
      case '*': return repeat(begin, {0, kEndless});
      case '+': return repeat(begin, {1, kEndless});
      case '?': return repeat(begin, {0, 1});
      case '{': {
        const auto counts = read_counts();
        if (!counts) return fault(begin, "this { begins no repetition such as {2} or {2,5}; write \\{ for the character");
        if (counts->most < counts->least) return fault(begin, "the repetition's upper bound is below its lower bound");
        return repeat(begin, *counts);
      }
      default:
        at_ += utf8_length(static_cast<unsigned char>(c)) - 1;
        atom(1);
        return {};
    }
  }

  Status open_group(size_t begin) {
    if (open_.size() > limits_.max_depth) {
      return too_large("regular expression, byte {}: groups are nested more than {} deep", begin, limits_.max_depth);
    }
    open_.push_back({begin, 0, 0, false});
    if (pattern_.substr(at_).starts_with("?")) {  // (?: (?= (?! (?<= (?<! (?<name> (?P<name>
      const size_t end = pattern_.find_first_of(":=!>", at_);
      if (end == std::string_view::npos) return fault(begin, "this group says ? and not what it is");
      at_ = end + 1;
    }
    return {};
  }

  Status close_group(size_t begin) {
    if (open_.size() == 1) return fault(begin, "this ) closes nothing");
    const size_t places = open_.back().places;
    open_.pop_back();
    atom(std::max<size_t>(places, 1));
    return {};
  }

  Status character_class(size_t begin) {
    if (pattern_.substr(at_).starts_with("^")) ++at_;
    for (bool first = true; at_ < pattern_.size(); first = false) {
      const char c = pattern_[at_++];
      if (c == ']' && !first) {
        atom(1);
        return {};
      }
      if (c == '\\' && at_ < pattern_.size()) ++at_;
    }
    return fault(begin, "this [ is never closed");
  }

  Status repeat(size_t begin, Repetition counts) {
    Group& group = open_.back();
    if (!group.repeatable) return fault(begin, "nothing to repeat");
    const size_t copies = std::max<size_t>(counts.most == kEndless ? counts.least : counts.most, 1);
    group.places = plus(group.places - group.last, times(group.last, copies));
    group.repeatable = false;
    if (pattern_.substr(at_).starts_with("?")) ++at_;  // lazy: the same texts
    return {};
  }

  // Behind "{": "2}", "2,}", "2,5}".
  std::optional<Repetition> read_counts() {
    Repetition counts;
    const auto number = [this](size_t& value) {
      const char* end = pattern_.data() + pattern_.size();
      const auto [rest, error] = std::from_chars(pattern_.data() + at_, end, value);
      if (error == std::errc::invalid_argument) return false;
      if (error == std::errc::result_out_of_range) value = kEndless - 1;
      at_ = static_cast<size_t>(rest - pattern_.data());
      return true;
    };
    const auto character = [this](char c) { return at_ < pattern_.size() && pattern_[at_] == c && ++at_ > 0; };
    if (!number(counts.least)) return std::nullopt;
    counts.most = counts.least;
    if (character(',') && !number(counts.most)) counts.most = kEndless;
    if (!character('}')) return std::nullopt;
    return counts;
  }

  std::string_view pattern_;
  const RegexLimits& limits_;
  size_t at_ = 0;
  std::vector<Group> open_;
};

}  // namespace

Status check_regex(std::string_view pattern, const RegexLimits& limits) {
  if (pattern.empty()) return invalid_argument("the regular expression is empty");
  if (pattern.size() > limits.max_bytes) {
    return too_large("the regular expression has {} bytes, {} are allowed", pattern.size(), limits.max_bytes);
  }
  std::string storage;
  if (sanitize_utf8(pattern, storage).data() != pattern.data()) return invalid_argument("the regular expression is not UTF-8");
  return Scanner(pattern, limits).run();
}

}  // namespace choral::text
