// Answers of several voices to the same prompts, laid out while they are made (AnswerLayout): one prompt after the other, what
// comes of later ones waits until those before are complete. Main thread only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answer_layout.h"
#include "batch.h"

namespace choral::apps {

class ComparedAnswers : public AnswerReader {
 public:
  // A title for each prompt, above its answers; empty: none.
  ComparedAnswers(const std::vector<std::string>& names, std::vector<std::string> titles, int columns);

  std::string piece(size_t i, std::string_view text) override;
  std::string ended(size_t i, const RequestOutput& output) override;

 private:
  struct Group {
    std::string title;
    AnswerLayout layout;
    size_t open;  // answers that have not ended
    std::string waiting;
  };
  std::string ready(size_t i, std::string_view text, bool ended);

  const size_t voices_;
  std::vector<Group> groups_;
  std::vector<std::string> seen_;  // of each answer
  size_t at_ = 0;                  // the group that is given out
};

}  // namespace choral::apps
