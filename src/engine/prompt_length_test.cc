// Prompts that do not fit: how the refusal reads, and that a prompt far too long is not tokenised to its end.
#include "engine/prompt_length.h"

#include <gmock/gmock.h>

#include <span>

#include "engine/tiny_model_test.h"
#include "support/temp_dir.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kContext = 64;

class PromptLengthTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options = tiny_options();
    options.max_model_len = kContext;
    llm_ = load_or_die(options).release();
  }
  static void TearDownTestSuite() { delete llm_; }
  static Status submit(std::string prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling.max_tokens = 1;
    return llm_->generate({request}).front().status;
  }
  static std::string words(size_t n) {
    std::string out;
    for (size_t i = 0; i < n; ++i) out += " the quick";
    return out;
  }
  static LLM* llm_;
};
LLM* PromptLengthTest::llm_ = nullptr;

TEST_F(PromptLengthTest, APromptALittleTooLongIsCounted) {
  const size_t tokens = llm_->tokenize(words(50), true)->size();
  ASSERT_GE(tokens, kContext);
  const Status status = submit(words(50));
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("the prompt has " + std::to_string(tokens) + " tokens, but at most 63 fit"),
                                      HasSubstr("--max-model-len")));
  EXPECT_TRUE(is_prompt_too_long(status));
  EXPECT_TRUE(is_prompt_too_long(Status(status).while_("prompt 3")));
}

TEST_F(PromptLengthTest, APromptFarTooLongIsRefusedUncounted) {
  for (const std::string& prompt : {words(3'000'000), std::string(size_t{30} << 20, ' '), words(200)}) {
    const Status status = submit(prompt);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("longer than fits: the text has more than 256 tokens"),
                                        HasSubstr("at most 63 fit"), HasSubstr("--max-model-len")));
    EXPECT_TRUE(is_prompt_too_long(status));
  }
}

TEST_F(PromptLengthTest, ATruncatedPromptKeepsTheSideThatIsAskedFor) {
  Request request;
  request.prompt_token_ids.resize(200);
  for (int i = 0; i < 200; ++i) request.prompt_token_ids[i] = i % 100;
  request.sampling.max_tokens = 4;
  const auto kept = [&](int tokens, Request::TruncationSide side) {
    request.truncate_prompt_tokens = tokens;
    request.truncation_side = side;
    const auto output = llm_->generate({request}).front();
    EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    return output.prompt_token_ids;
  };
  const std::span<const int32_t> all = request.prompt_token_ids;
  using Side = Request::TruncationSide;
  EXPECT_THAT(kept(5, Side::kLeft), ::testing::ElementsAreArray(all.last(5)));
  EXPECT_THAT(kept(5, Side::kRight), ::testing::ElementsAreArray(all.first(5)));
  EXPECT_THAT(kept(-1, Side::kLeft), ::testing::ElementsAreArray(all.last(kContext - 4))) << "with room for the answer";
  request.sampling.max_tokens = 0;
  EXPECT_THAT(kept(-1, Side::kLeft), ::testing::ElementsAreArray(all.last(kContext - 1)));
  for (const int bad : {0, 64, 200, -2}) {
    request.truncate_prompt_tokens = bad;
    const Status refused = llm_->generate({request}).front().status;
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << bad;
    EXPECT_EQ(is_prompt_too_long(refused), bad != -2);
  }
}

TEST_F(PromptLengthTest, ATextIsTruncatedByItsTokensUnlessItIsFarTooLong) {
  Request request;
  request.prompt = words(50);
  request.truncate_prompt_tokens = -1;
  request.sampling.max_tokens = 1;
  const auto output = llm_->generate({request}).front();
  ASSERT_TRUE(output.status.ok()) << output.status.to_string();
  const auto all = *llm_->tokenize(words(50), true);
  ASSERT_GT(all.size(), kContext);
  EXPECT_THAT(output.prompt_token_ids, ::testing::ElementsAreArray(std::span(all).last(kContext - 1)));
  request.prompt = words(200);
  EXPECT_THAT(llm_->generate({request}).front().status.message(), HasSubstr("more than 256 tokens"));
}

// Of a model that leaves characters out, no length of a word is sure to be too many tokens.
TEST(PromptLength, AWordBeyondTheTokenizersLimitIsRefusedInItsWords) {
  testing::TempDir folder;
  folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"x": 0}, "merges": []}, "added_tokens": []})");
  EngineOptions options = tiny_options();
  options.tokenizer = folder.path().string();
  const auto llm = load_or_die(options);
  ASSERT_NE(llm, nullptr);
  Request request;
  request.prompt = std::string(size_t{9} << 20, 'x');
  const Status status = llm->generate({request}).front().status;
  EXPECT_EQ(status.code(), Code::kTooLarge);
  EXPECT_EQ(status.message(), "a word of 9437184 bytes to tokenize; the limit is 8388608");
}

}  // namespace
}  // namespace choral::engine
