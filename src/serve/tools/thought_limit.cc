#include "serve/tools/thought_limit.h"

#include <string>

namespace choral::serve {
namespace {

void add_marks(std::span<const std::string_view> marks, std::vector<std::string>& to) {
  for (const auto mark : marks) {
    if (!mark.empty()) to.emplace_back(mark);
  }
}

}  // namespace

ThoughtLimit thought_limit(const ThoughtMarks& marks, int32_t max_tokens, bool may_call) {
  ThoughtLimit limit;
  limit.max_tokens = max_tokens;
  add_marks(marks.begins, limit.begins);
  add_marks(marks.ends, limit.ends);
  if (!marks.also_ends.empty()) limit.ends.emplace_back(marks.also_ends);
  limit.forced_end = marks.ends[0];
  if (marks.is_harmony) {
    // It thinks in messages, of which more may follow. One that cannot call anything has its last word to say.
    limit.again = true;
    if (!may_call) limit.forced_end += "<|start|>assistant<|channel|>final<|message|>";
  }
  return limit;
}

}  // namespace choral::serve
