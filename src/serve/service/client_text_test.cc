#include "serve/service/client_text.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

TEST(ClientText, PathsAreNotShown) {
  EXPECT_EQ(without_absolute_paths("cannot open /srv/x: gone"), "cannot open (a path) gone");
  EXPECT_EQ(without_absolute_paths("adapter 'x' (/srv/x): bad"), "adapter 'x' (a path): bad");
  EXPECT_EQ(without_absolute_paths("--lora x=/srv/lr=1/x is"), "--lora x=(a path) is");
  EXPECT_EQ(without_absolute_paths("(see https://a/b)"), "(see https://a/b)");
  EXPECT_EQ(without_absolute_paths("ask GET /v1/models, or a/b"), "ask GET /v1/models, or a/b");
}

TEST(ClientText, ManyLinesAreOneShortOne) {
  EXPECT_EQ(in_one_line("one"), "one");
  EXPECT_EQ(in_one_line("x: 2 problems\n  a\n  b"), "x: 2 problems: a; b");
  EXPECT_EQ(in_one_line("x:\n  a\n\n  b\n"), "x: a; b");
  std::string many = "x: 30 problems";
  for (int i = 0; i < 24; ++i) many += "\n  p" + std::to_string(i);
  EXPECT_EQ(in_one_line(many + "\n  and 6 more"), "x: 30 problems: p0; p1; p2; …");
}

}  // namespace
}  // namespace choral::serve
