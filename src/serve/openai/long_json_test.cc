#include "serve/openai/long_json.h"

#include <gtest/gtest.h>

namespace choral::serve {
namespace {

LongJson tree(std::vector<size_t>& made) {
  LongObject inner(Json{{"a", 1}, {"quo\"ted", "\xff"}});
  inner.add("list", LongList{3, [&made](size_t i) {
                               made.push_back(i);
                               return LongJson(Json(i));
                             }});
  inner.add("empty", LongList{0, {}});
  inner.add("nothing", LongObject());
  LongObject outer;
  outer.add("x", std::move(inner));
  outer.add("y", LongList{2, [](size_t i) { return LongJson(LongList{i, [](size_t) { return LongJson(Json(nullptr)); }}); }});
  return outer;
}

constexpr const char* kText =
    "{\"x\":{\"a\":1,\"quo\\\"ted\":\"\xEF\xBF\xBD\",\"list\":[0,1,2],\"empty\":[],\"nothing\":{}},\"y\":[[],[null]]}";

TEST(LongJson, IsWrittenInPiecesOfAnySize) {
  for (const size_t enough : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    std::vector<size_t> made;
    const auto text = long_text(tree(made));
    std::string whole;
    for (bool more = true; more;) {
      std::string piece;
      more = text->write(enough, piece);
      EXPECT_TRUE(!more || piece.size() >= enough);
      whole += piece;
    }
    EXPECT_EQ(whole, kText);
    EXPECT_EQ(made, (std::vector<size_t>{0, 1, 2}));
  }
}

TEST(LongJson, EntriesAreMadeWhenTheyAreWritten) {
  size_t made = 0;
  const auto text = long_text(LongList{1'000'000, [&made](size_t i) {
                                         ++made;
                                         return LongJson(Json(i));
                                       }});
  std::string out;
  EXPECT_TRUE(text->write(100, out));
  EXPECT_LE(made, 100U);
  EXPECT_LE(out.size(), 110U);
}

TEST(LongJson, AValueAloneIsOnePiece) {
  const auto text = long_text(Json{{"a", {1, 2}}});
  std::string out;
  EXPECT_FALSE(text->write(1, out));
  EXPECT_EQ(out, R"({"a":[1,2]})");
}

}  // namespace
}  // namespace choral::serve
