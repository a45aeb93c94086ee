#include "tools/eval/text_windows.h"

#include "base/utf8.h"

namespace choral::tools {

std::vector<int32_t> TextWindows::window(int64_t index) const {
  std::vector<int32_t> out = prefix;
  const int64_t begin = index * part_tokens(), end = std::min(begin + part_tokens(), std::ssize(tokens));
  out.insert(out.end(), tokens.begin() + begin, tokens.begin() + end);
  return out;
}

int64_t TextWindows::scored_in(int64_t index) const {
  const int64_t part = std::min(part_tokens(), std::ssize(tokens) - index * part_tokens());
  return std::max<int64_t>(0, std::ssize(prefix) + part - first_scored());
}

int64_t TextWindows::scored() const {
  const int64_t windows = count();
  return windows == 0 ? 0 : (windows - 1) * scored_in(0) + scored_in(windows - 1);
}

Result<std::vector<int32_t>> tokens_before_text(const text::Tokenizer& tokenizer) {
  CHORAL_TRY(const auto plain, tokenizer.encode("a", {.add_special_tokens = false}));
  CHORAL_TRY(const auto whole, tokenizer.encode("a"));
  const auto text = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  return text == whole.end() ? std::vector<int32_t>() : std::vector<int32_t>(whole.begin(), text);
}

Status check_text(std::string_view text, std::string_view name) {
  if (text.empty()) return invalid_argument("{} is empty: give a text of some thousand words", name);
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = check_utf8(text.substr(at));
    if (step.length == 0) {
      return invalid_argument("{} is not UTF-8 at byte {}; convert it, e.g. iconv -f latin1 -t utf-8 {} > text.txt", name, at,
                              name);
    }
    at += step.length;
  }
  return {};
}

}  // namespace choral::tools
