#include "serve/answers/thought_reader.h"

#include <algorithm>
#include <span>

#include "base/ascii.h"
#include "serve/answers/find_mark.h"

namespace choral::serve {
namespace {

constexpr size_t kMaxSpace = 512;  // white space before thoughts, or behind them, that goes with their marks

size_t space_before(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0 && end - begin < kMaxSpace && is_blank(text[begin - 1])) --begin;
  return begin;
}

size_t behind_space(std::string_view text) { return std::min(text.find_first_not_of(kBlanks), text.size()); }

}  // namespace

ThoughtReader::Place ThoughtReader::place() const {
  switch (part_) {
    case Part::kBegin: return Place::kUndecided;
    case Part::kOpened:
    case Part::kThoughts: return Place::kThoughts;
    case Part::kBehind:
    case Part::kRest: return Place::kRest;
  }
  return Place::kRest;
}

void ThoughtReader::push(std::string_view text, bool is_all, std::string& reasoning, std::string& rest) {
  held_ += text;
  is_all_ = is_all;
  while (step(reasoning, rest)) {
  }
}

bool ThoughtReader::step(std::string& reasoning, std::string& rest) {
  switch (part_) {
    case Part::kBegin: return begin_step();
    case Part::kOpened: return opened_step();
    case Part::kThoughts: return thoughts_step(reasoning);
    case Part::kBehind: return behind_step();
    case Part::kRest: return rest_step(rest);
  }
  return false;
}

// A mark that begins the text, behind white space. It is used up when it is whole.
ThoughtReader::Begun ThoughtReader::take_begin() {
  const size_t first = behind_space(held_);
  if (first > kMaxSpace) return Begun::kNo;
  if (first == held_.size()) return is_all_ ? Begun::kNo : Begun::kUndecided;
  const FoundMark found = find_mark(std::string_view(held_).substr(first), marks_->begins, is_all_);
  if (found.at > 0) return Begun::kNo;
  if (found.mark.empty()) return Begun::kUndecided;
  held_.erase(0, first + found.mark.size());
  return Begun::kYes;
}

bool ThoughtReader::begin_step() {
  const Begun begun = take_begin();
  if (begun == Begun::kUndecided) return false;
  part_ = begun == Begun::kYes ? Part::kThoughts : Part::kRest;
  said_ = false;
  return true;
}

bool ThoughtReader::opened_step() {
  if (take_begin() == Begun::kUndecided) return false;
  part_ = Part::kThoughts;
  said_ = false;
  return true;
}

void ThoughtReader::give_thoughts(size_t end, std::string& reasoning) {
  std::string_view text = std::string_view(held_).substr(0, end);
  if (!said_) text.remove_prefix(behind_space(text));
  said_ = said_ || !text.empty();
  reasoning += text;
  held_.erase(0, end);
}

bool ThoughtReader::thoughts_step(std::string& reasoning) {
  const std::array<std::string_view, 4> ends{marks_->ends[0], marks_->ends[1], marks_->ends[2], marks_->also_ends};
  const FoundMark found = find_mark(held_, ends, is_all_);
  if (!found.mark.empty()) {
    const size_t mark_end = found.at + found.mark.size();
    const bool is_calls = found.mark == marks_->also_ends;
    const size_t end = space_before(held_, found.at);
    const size_t left = (is_calls ? found.at : mark_end) - end;
    give_thoughts(end, reasoning);
    held_.erase(0, left);
    ++ended_;
    part_ = Part::kBehind;
    return true;
  }
  give_thoughts(space_before(held_, found.at), reasoning);
  if (is_all_) held_.clear();  // white space at the end
  return false;
}

bool ThoughtReader::behind_step() {
  held_.erase(0, behind_space(held_));
  if (held_.empty()) return false;
  part_ = Part::kRest;
  return true;
}

bool ThoughtReader::rest_step(std::string& rest) {
  rest += held_;
  held_.clear();
  return false;
}

}  // namespace choral::serve
