#include "serve/service/client_text.h"

#include <algorithm>

namespace choral::serve {

void replace_all(std::string& text, const std::string& what, std::string_view with) {
  if (what.size() < 2) return;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
}

std::string without_absolute_paths(std::string_view text) {
  constexpr std::string_view kBefore = " '\"(:=", kBehindPath = " '\"),;\n", kBehind = " '\"(=),;\n";
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(text.front() == '/' ? kBehindPath : kBehind), text.size());
    const std::string_view word = text.substr(0, end);
    const bool begins_word = out.empty() || kBefore.find(out.back()) != kBefore.npos;
    const bool is_path =
        begins_word && word.size() > 1 && word.front() == '/' && !word.starts_with("/v1/") && !word.starts_with("/lora-");
    out += !is_path ? word : out.ends_with('(') ? "a path" : "(a path)";
    const size_t next = std::min(end + 1, text.size());
    out += text.substr(end, next - end);
    text.remove_prefix(next);
  }
  return out;
}

std::string in_one_line(std::string_view text) {
  constexpr int kMostLines = 4;
  std::string out;
  for (int lines = 0; !text.empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) continue;
    if (lines++ == kMostLines) return out + "; …";
    out += lines == 1 ? "" : lines == 2 && !out.ends_with(':') ? ": " : lines == 2 ? " " : "; ";
    out += line;
  }
  return out;
}

}  // namespace choral::serve
