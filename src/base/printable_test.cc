#include "base/printable.h"

#include <gtest/gtest.h>

namespace choral {
namespace {

TEST(TerminalLine, LeavesNothingThatDrivesATerminal) {
  EXPECT_EQ(terminal_line("a\tb\n  c"), "a\\x09b\\n  c");
  EXPECT_EQ(terminal_text("a\n  c\nd"), "a\n  c\\nd");
  EXPECT_EQ(terminal_line("\u009b31m \u202e \u2028 \u2066"), "\\u{009b}31m \\u{202e} \\u{2028} \\u{2066}");
  EXPECT_EQ(terminal_line("\xC0\xAF \xED\xA0\x80 \xF5 \xE2\x82"), "\\xc0\\xaf \\xed\\xa0\\x80 \\xf5 \\xe2\\x82");
  EXPECT_EQ(terminal_line("é 記 🎶 'quoted' \\"), "é 記 🎶 'quoted' \\");
}

}  // namespace
}  // namespace choral
