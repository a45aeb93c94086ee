#include "terminal_text.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "answer_layout.h"
#include "base/log.h"
#include "base/no_color.h"
#include "base/printable.h"

namespace choral::apps {
namespace {

constexpr int kLeastWidth = 16;  // narrower than that nothing is cut

bool has_colours(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && !no_color() && terminal != nullptr && std::string_view(terminal) != "dumb";
}

}  // namespace

std::string mark_of(tools::Verdict verdict) {
  struct Look {
    std::string_view sign, colour;
  };
  constexpr std::array<Look, 3> kLooks{{{"✓", "32"}, {"!", "33"}, {"✗", "31"}}};
  const auto& [sign, colour] = kLooks.at(static_cast<size_t>(verdict));
  return has_colours(STDOUT_FILENO) ? fmt::format("\033[{}m{}\033[0m", colour, sign) : std::string(sign);
}

std::string wrap_hanging(std::string_view text, int columns, int indent) {
  if (columns == 0) return std::string(text);
  std::string out;
  for (;;) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const auto lead = static_cast<int>(std::min(line.find_first_not_of(' '), line.size()));
    const int room = columns - lead - indent;
    if (text_width(line) <= columns || room < kLeastWidth) {
      out += line;
    } else {
      bool is_first = true;
      for (const auto& part : wrap_text(line.substr(static_cast<size_t>(lead)), room)) {
        const bool first = std::exchange(is_first, false);
        if (!first) out += '\n';
        out.append(static_cast<size_t>(first ? lead : lead + indent), ' ');
        out += part;
      }
    }
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

void say_wrapped(std::string_view text, int indent) {
  say("{}\n", wrap_hanging(terminal_text(text), isatty(STDERR_FILENO) == 1 ? terminal_columns(STDERR_FILENO) : 0, indent));
}

}  // namespace choral::apps
