// Which token must come next, by the text of those that came. Tokens are bytes here.
#include "engine/thought_budget.h"

#include <gmock/gmock.h>

#include "engine/bytes_tokenizer_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

class ThoughtBudgetTest : public ::testing::Test {
 protected:
  std::shared_ptr<const text::Tokenizer> tokenizer_ = tokenizer_of_bytes();
  ThoughtLimit limit_{.max_tokens = 3, .begins = {"<t>"}, .ends = {"</t>"}, .forced_end = "</t>"};

  std::vector<int32_t> tokens(std::string_view text) const { return *tokenizer_->encode(text, {.add_special_tokens = false}); }
  ThoughtBudget budget() const {
    auto terms = ThoughtBudget::read(limit_, tokenizer_);
    EXPECT_TRUE(terms.ok()) << terms.status().to_string();
    return ThoughtBudget(*terms);
  }
  // The answer of a model that says `text`, where it may.
  std::string answer(std::string_view text) const {
    auto left = budget();
    std::string said;
    for (const int32_t own : tokens(text)) {
      for (int32_t forced = left.forced(); forced != ThoughtBudget::kAny; forced = left.forced()) {
        said += tokenizer_->token_bytes(forced);
        left.accept(forced);
      }
      said += tokenizer_->token_bytes(own);
      left.accept(own);
    }
    for (; left.forced() != ThoughtBudget::kAny; left.accept(left.forced())) said += tokenizer_->token_bytes(left.forced());
    return said;
  }
};

TEST_F(ThoughtBudgetTest, EndsThoughtsBehindSoManyTokens) {
  ASSERT_EQ(tokens("abc").size(), 3u) << "the tokenizer of this test knows bytes";
  EXPECT_EQ(answer("<t>abcdef"), "<t>abc</t>def");
  EXPECT_EQ(answer("\n\n<t>abcdef"), "\n\n<t>abc</t>def") << "behind blanks";
  EXPECT_EQ(answer("abcdef"), "abcdef") << "it does not think";
  EXPECT_EQ(answer("a<t>bcdef"), "a<t>bcdef") << "thoughts begin an answer";
}

TEST_F(ThoughtBudgetTest, NothingIsForcedWhereTheModelEnds) {
  limit_.max_tokens = 8;
  EXPECT_EQ(answer("<t>ab</t>cdefghijklm"), "<t>ab</t>cdefghijklm");
  EXPECT_EQ(answer("<t>ab</t><t>cdefghijklm"), "<t>ab</t><t>cdefghijklm") << "more of them are the answer's text";
}

TEST_F(ThoughtBudgetTest, ZeroIsNoThought) {
  limit_.max_tokens = 0;
  EXPECT_EQ(answer("<t>abc"), "<t></t>abc");
  limit_.open = true;
  EXPECT_EQ(answer("abc"), "</t>abc");
}

TEST_F(ThoughtBudgetTest, CountsFromTheFirstTokenWhereThePromptBegan) {
  limit_.open = true;
  EXPECT_EQ(answer("abcdef"), "abc</t>def");
}

TEST_F(ThoughtBudgetTest, GoesOnWithTheEndThatTheModelBegan) {
  limit_.max_tokens = 4;
  EXPECT_EQ(answer("<t>ab</"), "<t>ab</t>");
}

TEST_F(ThoughtBudgetTest, DoesNotCutACharacter) {
  limit_.max_tokens = 1;
  limit_.open = true;
  ASSERT_GT(tokens("\u20ac").size(), 1u);
  EXPECT_EQ(answer("\u20acabc"), "\u20ac</t>abc");
}

TEST_F(ThoughtBudgetTest, ThoughtsThatMayComeAgainShareOneBudget) {
  limit_.again = true;
  limit_.max_tokens = 6;
  EXPECT_EQ(answer("<t>a</t>b<t>cdef"), "<t>a</t>b<t>c</t>def");
  EXPECT_EQ(answer("ab<t>cdefghij"), "ab<t>cdefgh</t>ij");
}

// Of guessed tokens those count that the model may say without being stopped.
TEST_F(ThoughtBudgetTest, GuessesEndBeforeWhatForcesTheEnd) {
  const auto free_behind = [this](std::string_view said, std::string_view guessed) {
    auto left = budget();
    for (const int32_t token : tokens(said)) left.accept(token);
    const int32_t forced = left.forced();
    const auto count = left.free_of(tokens(guessed));
    EXPECT_EQ(left.free_of(tokens(guessed)), count) << "nothing was said by it";
    EXPECT_EQ(left.forced(), forced);
    return count;
  };
  EXPECT_EQ(free_behind("", "<t>abcdef"), 5) << "behind three thoughts comes the end";
  EXPECT_EQ(free_behind("<t>a", "bcdef"), 1);
  EXPECT_EQ(free_behind("<t>a", "b</t>cdef"), 1);
  EXPECT_EQ(free_behind("abc", "<t>abcdef"), 9) << "it does not think";
  limit_.again = true;
  EXPECT_EQ(free_behind("<t>abc</t>x", "de<t>f"), 4) << "the mark's last token is followed by the end";
  EXPECT_EQ(free_behind("<t>abc</t>x<t", "de>f"), 4);
  EXPECT_EQ(free_behind("<t>abc</t>x<t", ">def"), 0);
  auto used_up = budget();
  for (const int32_t token : tokens("<t>abc</t>x")) used_up.accept(token);
  EXPECT_GT(used_up.free_count(), 100);
  limit_.max_tokens = 4;
  auto ending = budget();  // its own end, as far as it is there
  for (const int32_t token : tokens("<t>ab<")) ending.accept(token);
  EXPECT_EQ(ending.free_of(tokens("x")), 0);
  ending.accept(tokens("/").front());
  EXPECT_EQ(ending.forced(), tokens("t").front());
}

TEST_F(ThoughtBudgetTest, ALimitIsChecked) {
  limit_.max_tokens = -1;
  EXPECT_EQ(*ThoughtBudget::read(limit_, tokenizer_), nullptr);
  limit_.max_tokens = -2;
  EXPECT_EQ(ThoughtBudget::read(limit_, tokenizer_).status().code(), Code::kInvalidArgument);
  limit_.max_tokens = 1;
  EXPECT_EQ(ThoughtBudget::read(limit_, nullptr).status().code(), Code::kUnsupported);
  limit_.forced_end = "";
  EXPECT_THAT(ThoughtBudget::read(limit_, tokenizer_).status().message(), HasSubstr("forced_end"));
  limit_.forced_end = "x";
  limit_.ends.assign(9, "x");
  EXPECT_EQ(ThoughtBudget::read(limit_, tokenizer_).status().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace choral::engine
