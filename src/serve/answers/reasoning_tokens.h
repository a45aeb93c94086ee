// How many tokens of an answer are thoughts, their marks included. Not thread-safe: one for each answer.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "serve/answers/answer_reader.h"

namespace choral::serve {

class ReasoningTokens {
 public:
  // `reader`: of the answer from its beginning.
  explicit ReasoningTokens(AnswerReader reader) : reader_(std::move(reader)) {}

  // The next token, by the text that it stands for.
  void push(std::string_view token) {
    const size_t ended = reader_.ended_thoughts();
    AnswerEvents events;
    reader_.push(token, events);
    ++undecided_;
    const auto place = reader_.place();
    if (place == ThoughtReader::Place::kThoughts || reader_.ended_thoughts() > ended) count_ += undecided_;
    if (place != ThoughtReader::Place::kUndecided || reader_.ended_thoughts() > ended) undecided_ = 0;
  }
  int64_t count() const { return count_; }

 private:
  AnswerReader reader_;
  int64_t count_ = 0, undecided_ = 0;
};

}  // namespace choral::serve
