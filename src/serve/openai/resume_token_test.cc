#include "serve/openai/resume_token.h"

#include <gmock/gmock.h>

namespace choral::serve {
namespace {

using ::testing::HasSubstr;

const ResumeOrigin kOrigin{.fingerprint = "fp_0123456789", .seed = ~uint64_t{0}, .prompt = "00ff", .adapters = {"ab", "cd"}};

StreamEvent event_of(int index, std::vector<int32_t> ids, FinishReason reason = FinishReason::kNone) {
  StreamEvent event;
  event.index = index;
  event.token_ids = std::move(ids);
  event.finish_reason = reason;
  return event;
}

std::vector<std::string> some_pieces() {
  ResumeWriter writer(/*goes_on=*/false);
  std::vector<std::string> all;
  const auto tell = [&](const StreamEvent& event) {
    writer.add(event);
    all.push_back(writer.take(kOrigin));
  };
  tell(event_of(0, {1, 200, 2'000'000'000}));
  tell(event_of(1, {7}));
  tell(event_of(0, {0}));
  tell(event_of(1, {}, FinishReason::kStop));
  return all;
}

std::string joined(const std::vector<std::string>& pieces) {
  std::string all;
  for (const auto& piece : pieces) all += piece;
  return all;
}

TEST(ResumeToken, SaysWhatWasTold) {
  const auto token = read_resume_token(joined(some_pieces()));
  ASSERT_TRUE(token.ok()) << token.status().to_string();
  EXPECT_EQ(token->origin, kOrigin);
  ASSERT_EQ(token->given.size(), 2u);
  EXPECT_EQ(token->given[0].token_ids, (std::vector<int32_t>{1, 200, 2'000'000'000, 0}));
  EXPECT_FALSE(token->given[0].ended);
  EXPECT_EQ(token->given[1].token_ids, std::vector<int32_t>{7});
  EXPECT_TRUE(token->given[1].ended);
}

TEST(ResumeToken, GrowsWithItsAnswerAndNoFaster) {
  ResumeWriter writer(false);
  std::string all;
  for (int i = 0; i < 1000; ++i) {
    writer.add(event_of(0, {100'000 + i}));
    all += writer.take(kOrigin);
  }
  EXPECT_LT(all.size(), 30'000u);
}

// The pieces of a stream that goes on stand behind those that its request brought.
TEST(ResumeToken, GoesOnBehindWhatWasBrought) {
  const auto pieces = some_pieces();
  ResumeWriter again(/*goes_on=*/true);
  again.add_given(event_of(0, {1, 200, 2'000'000'000}));
  again.add_given(event_of(1, {7}));
  again.add(event_of(0, {0}));
  EXPECT_EQ(again.take(kOrigin), pieces[2]);
  ResumeWriter by_ids(/*goes_on=*/false);
  by_ids.add_given(event_of(0, {1, 200, 2'000'000'000}));
  by_ids.add_given(event_of(1, {7}));
  by_ids.add(event_of(0, {0}));
  EXPECT_EQ(by_ids.take(kOrigin), pieces[0] + pieces[1] + pieces[2]);
}

TEST(ResumeToken, OfWhichAnythingIsMissingOrChangedIsRefused) {
  const auto refused = [](const std::string& text, const std::string& why) {
    const auto token = read_resume_token(text);
    ASSERT_FALSE(token.ok()) << why;
    EXPECT_THAT(token.status().message(), HasSubstr(why));
  };
  const auto pieces = some_pieces();
  refused("", "is empty");
  refused("hello", "piece 0 is cut off or none");
  refused(pieces[1], "piece 0 is damaged");
  refused(pieces[0] + pieces[2].substr(0, 8), "piece 2 is cut off or none");
  refused(pieces[0] + pieces[0], "piece 2 is damaged");
  refused(pieces[0] + pieces[1] + pieces[1], "there twice");
  auto lost = pieces;
  lost.erase(lost.begin());
  refused(pieces[0].substr(0, pieces[0].find('.') + 1) + joined(lost), "those with tokens 0 to 2 of choice 0 are missing");
  ResumeWriter other(false);
  other.add(event_of(0, {1}));
  ResumeOrigin origin = kOrigin;
  origin.seed = 1;
  const std::string of_other = other.take(origin);
  refused(pieces[0] + of_other.substr(of_other.find('.') + 1), "of another answer");
  std::string text = joined(pieces);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_FALSE(read_resume_token(changed).ok()) << i;
    EXPECT_FALSE(read_resume_token(text.substr(0, i)).ok() && text[i - 1] != '.') << i;
  }
}

}  // namespace
}  // namespace choral::serve
