// The prompt of a gap: what stands before and behind it, as the model was trained to be asked for what is missing. Texts are
// never read as special tokens. Pure; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "choral/llm.h"

namespace choral::serve {

struct Gap {
  struct File {
    std::string name, text;
  };
  Prompt before = std::string();
  std::string behind;
  std::string begun;        // of the answer, which goes on with it
  std::vector<File> files;  // that the model may look at
};

// unsupported: the model has no tokens for that. `most_tokens`: of each text.
Result<std::vector<int32_t>> fill_prompt(const Gap& gap, const FillTokens& tokens, const Vocabulary& vocabulary,
                                         size_t most_tokens);
// Lets tokens end the answer that begin something else: another file, another repository.
void add_fill_stops(const FillTokens& tokens, SamplingParams& sampling);

}  // namespace choral::serve
