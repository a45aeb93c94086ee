// What a request's answer will say in all likelihood, by its caller (Request::prediction): a text of its own beside the
// request's, in which guesses are looked up. The answer is expected to begin as it begins; where it went another way, it is found
// again by its last tokens, as in the request's own text (prompt_lookup.h). Immutable: completions share one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/speculation/prompt_lookup.h"

namespace choral::engine {

class Prediction {
 public:
  explicit Prediction(std::vector<int32_t> tokens);
  int32_t token_count() const { return static_cast<int32_t>(tokens_.size()); }

  struct Guess {
    int32_t matched = 0;  // tokens before the guess that are the same as at the text's end; 0: nothing is written
    int32_t count = 0;    // written
  };
  // Writes what may follow `text`, whose answer begins at `answer_begin`, as far as the prediction goes.
  Guess guess(std::span<const int32_t> text, int32_t answer_begin, std::span<int32_t> out) const;

 private:
  PromptLookup::Match place_of(std::span<const int32_t> text, int32_t answer_begin) const;

  const std::vector<int32_t> tokens_;
  PromptLookup lookup_;
};

}  // namespace choral::engine
