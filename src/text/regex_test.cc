// Matches are the same wherever the windows end in which they are looked for.
#include "text/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "text/find_text.h"

namespace choral::text {
namespace {

using Ranges = std::vector<std::pair<size_t, size_t>>;

Ranges matches(const char* pattern, std::string_view subject) {
  const auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().to_string();
  EncodeBudget budget(subject.size());
  Ranges out;
  const Status status = regex->find(subject, budget, [&](size_t begin, size_t end) {
    out.emplace_back(begin, end);
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

std::string run(std::string_view unit, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += unit;
  return out;
}

TEST(Regex, ALineMayBeginAtAWindowsEnd) {
  for (size_t n = 50; n <= 140; ++n) {
    EXPECT_EQ(matches("\\n^", run("x", n) + "\ny"), (Ranges{{n, n + 1}})) << n;
    EXPECT_EQ(matches("\\n^", run("x", n) + "\n"), Ranges()) << n;
    EXPECT_EQ(matches("^y", run("x", n) + "\ny"), (Ranges{{n + 1, n + 2}})) << n;
  }
  EXPECT_EQ(matches("^", "a\nb\n"), (Ranges{{0, 0}, {2, 2}}));
}

// Splitters of real tokenizers that look over a whole run at each of its places.
TEST(Regex, LookingFarAheadIsHonest) {
  for (const char* pattern : {"\\s+$", "\\p{N}+(?=(\\d{3})+(?!\\d))", "(?=(\\d{3})+(?!\\d))", "\\s+(?!\\S)|\\s+", "[\r\n]"}) {
    SCOPED_TRACE(pattern);
    matches(pattern, run("7", 1500));
    matches(pattern, run(" ", 3000) + "1");
    matches(pattern, run(run(" ", 119) + "1\n", 20000));
    matches(pattern, run(run(" ", 200) + "42 17", 1000));
  }
}

TEST(Regex, AMessageMayCutAWordInAnyScript) {
  const std::string wide = run("龥", 80);
  for (size_t shift = 0; shift < 3; ++shift) {
    const Status refused = Regex::compile("(" + run("a", shift) + wide).status();
    EXPECT_EQ(refused.code(), Code::kUnsupported) << refused.to_string();
    const auto costly = Regex::compile("(?:a*b|a)" + run("a", shift) + wide);
    ASSERT_TRUE(costly.ok()) << costly.status().to_string();
    EncodeBudget budget(10);
    const std::string text = run("a", 100000);
    const Status ended = costly->find(text, budget, [](size_t, size_t) { return Status(); });
    EXPECT_EQ(ended.code(), Code::kCorrupt) << ended.to_string();
    EXPECT_NE(ended.message().find("龥"), std::string::npos) << ended.message();
  }
}

TEST(Regex, AMatchMayEndOnEitherSideOfAWindow) {
  for (const size_t around : {64, 512, 4096}) {
    for (size_t n = around - 3; n <= around + 3; ++n) {
      SCOPED_TRACE(n);
      const std::string letters = run("a", n), spaces = run(" ", n), wide = run("é", n);
      EXPECT_EQ(matches("a+", letters + "b"), (Ranges{{0, n}}));
      EXPECT_EQ(matches("a+", letters), (Ranges{{0, n}}));
      EXPECT_EQ(matches("é+", "x" + wide + "x"), (Ranges{{1, 1 + 2 * n}}));
      EXPECT_EQ(matches("\\s+(?!\\S)|\\s+", spaces + "y"), (Ranges{{0, n - 1}, {n - 1, n}}));
      EXPECT_EQ(matches("\\s+(?!\\S)|\\s+", spaces), (Ranges{{0, n}}));
      EXPECT_EQ(matches("a+b|a", letters + "b"), (Ranges{{0, n + 1}}));
      EXPECT_EQ(matches("bc", letters + "bc" + letters + "bc"), (Ranges{{n, n + 2}, {2 * n + 2, 2 * n + 4}}));
      EXPECT_EQ(matches("b(?=c)", letters + "bcb"), (Ranges{{n, n + 1}}));
      EXPECT_EQ(matches("(?<=ab)c", letters + "bc"), (Ranges{{n + 1, n + 2}}));
      EXPECT_EQ(matches("^a+$", letters + "\n" + letters), (Ranges{{0, n}, {n + 1, 2 * n + 1}}));
      EXPECT_EQ(matches("\\ba+\\b", letters + " " + letters + "b"), (Ranges{{0, n}}));
      EXPECT_EQ(matches("b*", run("b", n) + "c"), (Ranges{{0, n}, {n + 1, n + 1}}));
      EXPECT_EQ(matches("a{3}", run("a", 3 * n)).size(), n);
    }
  }
  EXPECT_EQ(matches("a", ""), Ranges());
  EXPECT_EQ(matches("a*", ""), (Ranges{{0, 0}}));
}

TEST(FindText, FindsWhatTheLibraryFinds) {
  const std::string text = run("ab", 100) + run("a", 100) + "c" + run("ab", 100);
  for (const size_t n : {0, 1, 2, 31, 32, 33, 64, 100, 199, 200, 201, 401, 402}) {
    for (size_t at = 0; at + n <= text.size(); at += 7) {
      const std::string_view what = std::string_view(text).substr(at, n);
      ASSERT_EQ(find_text(text, what, at / 2), text.find(what, at / 2)) << at << " " << n;
      ASSERT_EQ(find_last_text(text, what), text.rfind(what)) << at << " " << n;
    }
    const std::string absent = run("ab", n / 2) + "x";
    EXPECT_EQ(find_text(text, absent), std::string::npos);
    EXPECT_EQ(find_last_text(text, absent), std::string::npos);
  }
  EXPECT_EQ(find_text("a", "b", 2), std::string::npos);
}

TEST(FindText, LongNeedlesTakeNoSquareTime) {
  const std::string text(1 << 24, 'a'), half(1 << 23, 'a');
  EXPECT_EQ(find_text(text, half + "b"), std::string::npos);
  EXPECT_EQ(find_last_text(text, "b" + half), std::string::npos);
  EXPECT_EQ(find_last_text(text, half), half.size());
}

}  // namespace
}  // namespace choral::text
