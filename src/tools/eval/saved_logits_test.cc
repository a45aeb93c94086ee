#include "tools/eval/saved_logits.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

namespace choral::tools {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 11;
constexpr size_t kHeaderBytes = 48;  // up to the name

TextWindows windows_of(int tokens) {
  TextWindows windows{.prefix = {7}, .window_tokens = 4};
  for (int i = 0; i < tokens; ++i) windows.tokens.push_back(i % 5);
  return windows;
}

std::vector<float> row_of(int64_t row) {
  std::vector<float> logits;
  for (int64_t i = 0; i < kVocab; ++i) logits.push_back(static_cast<float>((row * 5 + i * i * 3) % 17) * 0.37F - 3);
  logits[static_cast<size_t>(row) % kVocab] = -100;
  logits[static_cast<size_t>(row + 1) % kVocab] = -std::numeric_limits<float>::infinity();
  return logits;
}

int32_t next_of(int64_t row) { return static_cast<int32_t>((row + 3) % kVocab); }

std::string file_of(const TextWindows& windows) {
  std::string file = write_saved_header({.name = "a model", .vocab = kVocab, .windows = windows});
  for (int64_t row = 0; row < windows.scored(); ++row) {
    const auto logits = row_of(row);
    std::string bytes(static_cast<size_t>(saved_row_bytes(kVocab)), '\0');
    write_saved_row(logits, score_row(cpu_level(), logits, next_of(row)), bytes);
    file += bytes;
  }
  return file;
}

Result<SavedLogits> parse(const std::string& file) {
  return SavedLogits::parse(std::as_bytes(std::span(file.data(), file.size())), "kept.logits");
}

std::string refusal(const std::string& file) { return parse(file).status().to_string(); }

std::string with_u32(std::string file, size_t at, uint32_t value) {
  std::memcpy(file.data() + at, &value, sizeof value);
  return file;
}

TEST(TextWindows, CountWhatHasEnoughBeforeIt) {
  auto windows = windows_of(8);  // 3 + 3 + 2, each behind the prefix
  EXPECT_EQ(windows.count(), 3);
  EXPECT_EQ(windows.scored(), 8);
  EXPECT_EQ(windows.window(1), (std::vector<int32_t>{7, 3, 4, 0}));
  EXPECT_EQ(windows.window(2), (std::vector<int32_t>{7, 1, 2}));
  windows.min_context = 3;
  EXPECT_EQ(windows.scored(), 2) << "the last of each full window";
  windows.prefix.clear();
  windows.min_context = 1;
  EXPECT_EQ(windows.count(), 2);
  EXPECT_EQ(windows.scored(), 6);
  windows.tokens.push_back(1);
  EXPECT_EQ(windows.scored(), 6) << "a window of one token";
}

TEST(SavedLogits, ComeBackAsTheyWere) {
  const auto windows = windows_of(8);
  const std::string file = file_of(windows);
  const auto saved = parse(file);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(saved->header().name, "a model");
  EXPECT_EQ(saved->header().vocab, kVocab);
  EXPECT_EQ(saved->rows(), 8);
  EXPECT_TRUE(saved->check_same(kVocab, windows).ok());
  std::vector<float> read(kVocab);
  for (int64_t row = 0; row < 8; ++row) {
    const auto logits = row_of(row);
    const auto want = score_row(cpu_level(), logits, next_of(row));
    const auto score = saved->read_row(row, read);
    ASSERT_TRUE(score.ok()) << score.status().to_string();
    EXPECT_EQ(score->top, want.top);
    EXPECT_EQ(score->logprob, want.logprob);
    const float top = logits[want.top];
    for (size_t i = 0; i < read.size(); ++i) {
      if (top - logits[i] < 31) {
        EXPECT_NEAR(read[i], logits[i] - top, 0.5 / 2048 + 1e-6) << row << ", " << i;
      } else {
        EXPECT_EQ(read[i], -65535 / 2048.0F) << row << ", " << i;
      }
    }
    EXPECT_LT(kl_divergence(logits, read), 0.5 / 4096 / 4096) << "half the square of the rounding";
  }
}

TEST(SavedLogits, AreRefusedWhenTheyAreCutOrLonger) {
  const std::string file = file_of(windows_of(8));
  for (size_t size = 0; size < file.size(); ++size) {
    const auto cut = parse(file.substr(0, size));
    ASSERT_FALSE(cut.ok()) << size;
    EXPECT_EQ(cut.status().code(), Code::kCorrupt) << size;
  }
  EXPECT_THAT(refusal(file.substr(0, file.size() - 1)), HasSubstr("it was cut"));
  EXPECT_THAT(refusal(file + '\0'), HasSubstr("more was written to it"));
  EXPECT_THAT(refusal("GGUF and so on"), HasSubstr("kept.logits was not written by choral eval --save-logits"));
  EXPECT_THAT(refusal(""), HasSubstr("was not written by"));
}

TEST(SavedLogits, AreRefusedWhenAHeaderLies) {
  const std::string file = file_of(windows_of(8));
  EXPECT_THAT(refusal(with_u32(file, 8, 2)), HasSubstr("version 2, this program reads 1"));
  for (const size_t at : {12, 24, 28, 32, 36, 40, 44}) {
    for (const uint32_t value : {0U, 1U, 2U, 5U, 1U << 20, 1U << 31, 0xFFFFFFFFU}) {
      const std::string changed = with_u32(file, at, value);
      EXPECT_EQ(parse(changed).ok(), changed == file) << at << ", " << value;
    }
  }
  EXPECT_THAT(refusal(with_u32(file, 12, 0)), HasSubstr("the vocabulary is 0"));
  for (const uint32_t window : {0U, 1U, 1U << 31, 0xFFFFFFFFU})
    EXPECT_THAT(refusal(with_u32(file, 16, window)), HasSubstr("window_tokens is"));
  EXPECT_THAT(refusal(with_u32(file, 20, 0)), HasSubstr("min_context is 0"));
  EXPECT_THAT(refusal(with_u32(file, 20, 3)), HasSubstr("says that it has 8 rows, but 2 of its tokens count"));
  EXPECT_THAT(refusal(with_u32(file, 44, 0x10000000)), HasSubstr("rows"));
  EXPECT_THAT(refusal(with_u32(file, 36, 0x10000000)), HasSubstr("ends within the text's tokens"));
  const size_t prefix = kHeaderBytes + std::string_view("a model").size();
  EXPECT_THAT(refusal(with_u32(file, prefix, kVocab)), HasSubstr("the prefix's tokens hold 11, the vocabulary has 11"));
  EXPECT_THAT(refusal(with_u32(file, prefix + 4, 0xFFFFFFFF)), HasSubstr("4294967295"));
}

TEST(SavedLogits, AreReadRowByRowWithCare) {
  const std::string file = file_of(windows_of(8));
  const size_t rows = file.size() - 8 * static_cast<size_t>(saved_row_bytes(kVocab));
  std::vector<float> logits(kVocab);
  const auto row_error = [&](size_t at, uint32_t value) {
    const std::string changed = with_u32(file, rows + at, value);
    const auto saved = parse(changed);
    CHORAL_CHECK(saved.ok(), saved.status().message());
    return saved->read_row(0, logits).status().to_string();
  };
  EXPECT_THAT(row_error(4, kVocab), HasSubstr("the most likely token of row 0 is 11"));
  EXPECT_THAT(row_error(4, 0xFFFFFFFF), HasSubstr("corrupt"));
  EXPECT_THAT(row_error(0, 0x7FC00000), HasSubstr("log-probability nan"));
  EXPECT_THAT(row_error(0, 0x3F800000), HasSubstr("log-probability 1"));
}

TEST(SavedLogits, SayWhatDiffers) {
  const auto windows = windows_of(8);
  const std::string file = file_of(windows);
  const auto saved = parse(file);
  ASSERT_TRUE(saved.ok());
  const auto difference = [&](const TextWindows& other) { return saved->check_same(kVocab, other).message(); };
  EXPECT_THAT(saved->check_same(kVocab + 1, windows).message(), HasSubstr("a vocabulary of 11 tokens, this model has 12"));
  auto other = windows;
  other.window_tokens = 5;
  EXPECT_THAT(difference(other), HasSubstr("was written with --ctx-size 4"));
  other = windows;
  other.min_context = 2;
  EXPECT_THAT(difference(other), HasSubstr("was written with --min-context 1"));
  other = windows;
  other.prefix = {8};
  EXPECT_THAT(difference(other), HasSubstr("another tokenizer"));
  other = windows;
  other.tokens[4] = 9;
  EXPECT_THAT(difference(other), HasSubstr("another text or tokenizer: token 5 is 4 there and 9 here"));
  EXPECT_THAT(difference(windows_of(9)), HasSubstr("holds the first 8 tokens of this text, which has 9; give --tokens 8"));
  EXPECT_TRUE(saved->check_same(kVocab, windows_of(4)).ok());
}

}  // namespace
}  // namespace choral::tools
