#include "answer_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "answer_stream.h"
#include "terminal_text.h"
#include "text_table.h"

namespace choral::apps {
namespace {

constexpr std::string_view kLong =
    "The quick brown fox\tjumps over the lazy dog,  and\n\n    four blanks before this one; 漢字かな交じり文も折り返す。 "
    "anextraordinarilylongwordthatnolineofthatwidthhasroomforatall ends here  \n\n";

// In pieces of `size` bytes that cut no character.
std::vector<std::string> pieces_of(std::string_view text, size_t size) {
  std::vector<std::string> pieces(1);
  while (!text.empty()) {
    const auto bytes = first_character(text).bytes;
    if (pieces.back().size() + bytes.size() > size && !pieces.back().empty()) pieces.emplace_back();
    pieces.back() += bytes;
    text.remove_prefix(bytes.size());
  }
  return pieces;
}

// However answers grow, what is shown in the end is the same, and only grows.
TEST(AnswerLayout, GrowsToWhatItWouldBe) {
  const std::vector<NamedText> answers{
      {"base", std::string(kLong)}, {"pirate", "Arr."}, {"a name that is quite a bit longer", ""}};
  for (const size_t count : {1, 2, 3}) {
    const std::span some = std::span(answers).first(count);
    std::vector<std::string> names;
    for (const auto& answer : some) names.push_back(answer.name);
    for (const int columns : {0, 20, 50, 80, 120, 200}) {
      const std::string whole = lay_out(some, columns);
      for (const size_t size : {1, 3, 7, 1000}) {
        AnswerLayout layout(names, columns);
        std::string shown;
        std::vector<std::vector<std::string>> pieces;
        for (const auto& answer : some) pieces.push_back(pieces_of(answer.text, size));
        for (size_t round = 0, open = count; open > 0; ++round) {
          for (size_t i = 0; i < count; ++i) {
            if (round + 1 < pieces[i].size()) shown += layout.add(i, pieces[i][round]);
            if (round + 1 == pieces[i].size()) shown += layout.end(i, pieces[i][round]), --open;
          }
        }
        EXPECT_EQ(shown, whole) << count << " answers on " << columns << " columns in pieces of " << size;
      }
    }
  }
}

TEST(AnswerLayout, ShowsEachLineAsSoonAsItStays) {
  AnswerLayout columns({"a", "b"}, 80);
  EXPECT_THAT(columns.add(0, "one\n"), ::testing::StartsWith("a  ")) << "the names come at once";
  EXPECT_EQ(columns.add(0, "two"), "") << "b has no line yet";
  EXPECT_THAT(columns.add(1, "eins\nzwei"), ::testing::HasSubstr("one")) << "both have their first one";
  EXPECT_THAT(columns.end(0, ""), ::testing::IsEmpty());
  EXPECT_THAT(columns.add(1, "\n"), ::testing::IsEmpty()) << "it may be the last, which is left out";
  EXPECT_THAT(columns.add(1, "drei"), ::testing::HasSubstr("two"));
  EXPECT_THAT(columns.end(1, ""), ::testing::HasSubstr("drei"));

  AnswerLayout below({"a", "b"}, 0);
  EXPECT_EQ(below.add(0, "one\ntwo"), "a  one\n");
  EXPECT_EQ(below.add(1, "eins\nzwei"), "") << "a comes first";
  EXPECT_EQ(below.end(0, "!"), "   two!\nb  eins\n") << "and when it has ended, b as far as it is";
  EXPECT_EQ(below.end(1, ""), "   zwei\n");
}

TEST(WordWrap, BreaksBetweenWordsAndLosesNothing) {
  for (const int columns : {8, 20, 61}) {
    for (const size_t size : {1, 4, 1000}) {
      WordWrap wrap;
      std::string shown;
      for (const auto& piece : pieces_of(kLong, size)) shown += wrap.add(piece, columns);
      shown += wrap.end();
      std::string joined;
      for (std::string_view rest = shown; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        EXPECT_LE(text_width(rest.substr(0, end)), columns) << rest.substr(0, end);
        joined += rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      std::string plain(kLong);
      for (auto* text : {&joined, &plain})
        text->erase(std::remove_if(text->begin(), text->end(), [](char c) { return c == ' ' || c == '\n' || c == '\t'; }),
                    text->end());
      EXPECT_EQ(joined, plain);
    }
  }
  WordWrap wrap;
  EXPECT_EQ(wrap.add("The quick bro", 10), "The quick");
  EXPECT_EQ(wrap.add("wn fox", 10), "\nbrown") << "brown would have been cut at the edge";
  EXPECT_EQ(wrap.end(), " fox");
}

TEST(WrapHanging, GoesOnFurtherIn) {
  EXPECT_EQ(wrap_hanging("choral: one two three four five", 24), "choral: one two three\n  four five");
  EXPECT_EQ(wrap_hanging("  a list of several words here\nshort", 24, 4), "  a list of several\n      words here\nshort");
  EXPECT_EQ(wrap_hanging("one two three four five", 18, 0), "one two three four\nfive");
  EXPECT_EQ(wrap_hanging("too narrow for any word", 8), "too narrow for any word");
  EXPECT_EQ(wrap_hanging("no terminal is there, so nothing is cut", 0), "no terminal is there, so nothing is cut");
}

TEST(TextTable, ColumnsThatHaveNoRoomComeBelow) {
  TextTable table("", 6);
  for (const char* heading : {"one", "two", "three"}) table.add_column(heading, 8);
  table.add_row({"a", "1", "2", "3"});
  EXPECT_EQ(table.text(0), "           one     two   three\na            1       2       3\n");
  EXPECT_EQ(table.text(30), table.text(0));
  EXPECT_EQ(table.text(29), "           one     two\na            1       2\n\n         three\na            3\n");
  EXPECT_EQ(table.text(5),
            "           one\na            1\n\n           two\na            2\n\n         three\na            3\n");
}

}  // namespace
}  // namespace choral::apps
