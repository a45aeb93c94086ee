// "One of these texts", each exactly. The choices are sorted, so that those with a common beginning stand together and a state
// is a range of them. Thread-safety: immutable.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/automaton_matcher.h"

namespace choral::text {

class ChoiceAutomaton {
 public:
  struct State {
    uint32_t first = 0, last = 0;  // the choices that begin with what was written, `last` excluded
    uint32_t written = 0;          // bytes
  };
  ChoiceAutomaton(std::vector<std::string> choices, std::shared_ptr<const TokenTrie> all)
      : choices_(std::move(choices)), all_(std::move(all)) {
    std::sort(choices_.begin(), choices_.end());
    choices_.erase(std::unique(choices_.begin(), choices_.end()), choices_.end());
  }

  State start() const { return {0, static_cast<uint32_t>(choices_.size()), 0}; }
  bool step(State& state, uint8_t byte) const {
    const auto begin = choices_.begin() + state.first, end = choices_.begin() + state.last;
    const auto next = [written = state.written](const std::string& choice) {  // -1: the choice ends here
      return written < choice.size() ? static_cast<int>(static_cast<uint8_t>(choice[written])) : -1;
    };
    const auto from = std::partition_point(begin, end, [&](const std::string& choice) { return next(choice) < byte; });
    const auto to = std::partition_point(from, end, [&](const std::string& choice) { return next(choice) == byte; });
    state = {static_cast<uint32_t>(from - choices_.begin()), static_cast<uint32_t>(to - choices_.begin()), state.written + 1};
    return from != to;
  }
  // The shortest of a range stands first.
  bool complete(const State& state) const { return choices_[state.first].size() == state.written; }
  KnownMask known(const State&) const { return {{}, *all_}; }

 private:
  std::vector<std::string> choices_;
  std::shared_ptr<const TokenTrie> all_;
};

}  // namespace choral::text
