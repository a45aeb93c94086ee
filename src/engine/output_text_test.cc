#include "engine/output_text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace choral::engine {
namespace {

std::shared_ptr<const text::Tokenizer> tokenizer() {
  std::ifstream file(std::string(CHORAL_TEST_DATA) + "/models/tiny-llama3/tokenizer.json");
  std::stringstream json;
  json << file.rdbuf();
  auto made = text::Tokenizer::from_json(json.str());
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *made;
}

struct Played {
  std::string text;
  bool stopped = false;
  std::vector<std::string> pieces;
};

Played play(const std::string& input, OutputTextOptions options) {
  const auto t = tokenizer();
  OutputText out(t, std::move(options), 64);
  Played played;
  const auto ids = t->encode(input, {.add_special_tokens = false});
  for (const int32_t id : *ids) {
    played.stopped = out.push(id);
    played.pieces.emplace_back(out.take_released());
    played.text += played.pieces.back();
    if (played.stopped) return played;
  }
  played.stopped = out.finish();
  played.text += out.take_released();
  return played;
}

TEST(OutputText, GivesEverythingWithoutStops) { EXPECT_EQ(play("Hello, wörld! 日本語", {}).text, "Hello, wörld! 日本語"); }

TEST(OutputText, CutsBeforeTheFirstStopString) {
  const auto played = play("one two three four", {.stop = {"four", "three"}});
  EXPECT_TRUE(played.stopped);
  EXPECT_EQ(played.text, "one two ");
}

TEST(OutputText, KeepsTheStopStringWhenAsked) {
  EXPECT_EQ(play("one two three four", {.stop = {"three"}, .include_stop = true}).text, "one two three");
}

TEST(OutputText, FindsAStopStringAcrossTokens) {
  const auto played = play("a b c d e f g", {.stop = {"c d e"}});
  EXPECT_TRUE(played.stopped);
  EXPECT_EQ(played.text, "a b ");
}

TEST(OutputText, NeverReleasesTheBeginningOfAStopString) {
  const auto played = play("xx ENDING yy END", {.stop = {"END."}});
  EXPECT_FALSE(played.stopped);
  EXPECT_EQ(played.text, "xx ENDING yy END");  // held back, then given at the end
  const auto cut = play("xx END.", {.stop = {"END."}});
  for (const auto& piece : cut.pieces) EXPECT_EQ(piece.find('E'), std::string::npos);
}

}  // namespace
}  // namespace choral::engine
