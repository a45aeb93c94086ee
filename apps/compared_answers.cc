#include "compared_answers.h"

#include <utility>

namespace choral::apps {

ComparedAnswers::ComparedAnswers(const std::vector<std::string>& names, std::vector<std::string> titles, int columns)
    : voices_(names.size()), seen_(names.size() * titles.size()) {
  for (auto& title : titles)
    groups_.push_back({.title = std::move(title), .layout = AnswerLayout(names, columns), .open = voices_, .waiting = {}});
  if (!groups_.empty()) groups_.front().waiting = groups_.front().title;
  for (size_t i = 1; i < groups_.size(); ++i) groups_[i].waiting = "\n" + groups_[i].title;
}

std::string ComparedAnswers::piece(size_t i, std::string_view text) {
  seen_[i] += text;
  return ready(i, groups_[i / voices_].layout.add(i % voices_, text), false);
}

std::string ComparedAnswers::ended(size_t i, const RequestOutput& output) {
  const std::string whole = shown_answer(output);
  const bool goes_on = whole.starts_with(seen_[i]);
  return ready(i, groups_[i / voices_].layout.end(i % voices_, goes_on ? whole.substr(seen_[i].size()) : "\n" + whole), true);
}

std::string ComparedAnswers::ready(size_t i, std::string_view text, bool ended) {
  Group& group = groups_[i / voices_];
  group.waiting += text;
  group.open -= ended ? 1 : 0;
  std::string out;
  for (; at_ < groups_.size(); ++at_) {
    out += std::exchange(groups_[at_].waiting, "");
    if (groups_[at_].open > 0) break;
  }
  return out;
}

}  // namespace choral::apps
