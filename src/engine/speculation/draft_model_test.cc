#include "engine/speculation/draft_model.h"

#include <gmock/gmock.h>

#include <random>

#include "engine/adapters/adapter_files_test.h"
#include "engine/speculation/draft_engine_test.h"
#include "engine/speculation/draft_loader.h"
#include "support/allocation_counter.h"

namespace choral::engine {
namespace {

using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

using Tokens = std::vector<int32_t>;

constexpr int32_t kLength = 250, kVocab = 4096;

DraftModel draft_model(const std::string& model, int64_t kv_blocks = 0, int fails_at = 0, int32_t vocab = kVocab) {
  return {draft_executor(draft_options(model, kv_blocks), fails_at), kDraftTexts, kDraftRows, vocab};
}

DraftWish wish_of(uint64_t id, const Tokens& text, Tokens& out, int32_t read = kDraftRows) {
  return {.id = id, .text = text, .max_length = kLength, .read = read, .out = out};
}

// Reads all of the text first, where a step has too few rows for it.
Tokens guess(DraftModel& draft, uint64_t id, const Tokens& text, int count = 5, lora::AdapterKey adapter = {}) {
  draft.next_turn();
  Tokens out(static_cast<size_t>(count)), nothing;
  while (draft.unread(id, text, kLength).value_or(0) > kDraftRows) {
    auto wish = wish_of(id, text, nothing);
    wish.adapter = adapter;
    draft.guess({&wish, 1});
  }
  auto wish = wish_of(id, text, out);
  wish.adapter = adapter;
  draft.guess({&wish, 1});
  out.resize(static_cast<size_t>(wish.given));
  return out;
}

// What the model itself says next, greedily.
Tokens answer(LLM& llm, const Tokens& text, int count, const std::string& adapter = "") {
  auto request = greedy_request(text, count);
  if (!adapter.empty()) request.adapters = {{adapter}};
  return llm.generate({request}).front().completions.at(0).token_ids;
}

class DraftModelTest : public ::testing::TestWithParam<const char*> {};

// Texts go on as guessed, or otherwise from any place on; what was read of them then serves on, and gives what a model gives that
// reads them for the first time.
TEST_P(DraftModelTest, GuessesWhatTheModelAnswersHoweverTheTextWentOn) {
  const auto llm = load_or_die(draft_options(GetParam()));
  auto draft = draft_model(GetParam());
  std::mt19937 random(7);
  std::vector<Tokens> texts;
  for (uint32_t i = 0; i < 5; ++i) texts.push_back(random_prompt(static_cast<int>(3 + random() % 90), i));
  int whole = 0;
  for (int round = 0; round < 24; ++round) {
    std::vector<Tokens> outs(texts.size());
    std::vector<DraftWish> wishes;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (random() % 4 == 0) continue;  // others rest
      outs[i].resize(1 + random() % 6);
      const bool reads = random() % 5 == 0;
      wishes.push_back(wish_of(i, texts[i], outs[i], reads ? 1 + static_cast<int32_t>(random() % 20) : kDraftRows));
    }
    std::shuffle(wishes.begin(), wishes.end(), random);
    draft.guess(wishes);
    for (auto& wish : wishes) {
      auto& text = texts[wish.id];
      Tokens out(wish.out.begin(), wish.out.begin() + wish.given);
      if (!out.empty()) {
        ASSERT_EQ(out, answer(*llm, text, wish.given)) << "text " << wish.id << " of " << text.size();
      }
      whole += std::ssize(out) == std::ssize(wish.out) ? 1 : 0;
      out.resize(random() % (out.size() + 1));  // that come true
      text.insert(text.end(), out.begin(), out.end());
      if (random() % 6 > 0) text.push_back(static_cast<int32_t>(random() % 4000));
    }
  }
  EXPECT_GT(whole, 40);
  for (size_t i = 0; i < texts.size(); ++i) draft.forget(i);
  EXPECT_EQ(draft.known_texts(), 0);
  EXPECT_EQ(draft.cache().free_blocks(), draft.cache().block_count());
}

INSTANTIATE_TEST_SUITE_P(Families, DraftModelTest,
                         ::testing::Values("tiny-llama3", "tiny-gemma3", "tiny-deepseek-v3", "tiny-qwen3moe"));

TEST(DraftModel, ReadsNoMoreThanItIsToldAndGuessesOnceAllIsRead) {
  auto draft = draft_model("tiny-llama3");
  const auto text = random_prompt(30, 1);
  EXPECT_THAT(draft.unread(1, text, kLength), Optional(30));
  Tokens out(3);
  for (const int32_t left : {18, 6, 1}) {
    auto wish = wish_of(1, text, out, 12);
    draft.guess({&wish, 1});
    EXPECT_EQ(wish.given, left == 1 ? 3 : 0);
    EXPECT_THAT(draft.unread(1, text, kLength), Optional(left));
  }
  EXPECT_EQ(draft.stats().steps, 3 + 2) << "guesses behind the first take a step each";
}

TEST(DraftModel, OfItsGuessesItReadThoseThatCameTrue) {
  auto draft = draft_model("tiny-llama3");
  auto text = random_prompt(30, 1);
  const auto guesses = guess(draft, 1, text, 4);
  ASSERT_THAT(guesses, SizeIs(4));
  const auto unread_after = [&](size_t right) {
    auto now = text;
    now.insert(now.end(), guesses.begin(), guesses.begin() + static_cast<ptrdiff_t>(right));
    now.push_back(right < 4 ? (guesses[right] + 1) % 4000 : 5);
    return draft.unread(1, now, kLength);
  };
  EXPECT_THAT(unread_after(0), Optional(1));
  EXPECT_THAT(unread_after(2), Optional(1));
  EXPECT_THAT(unread_after(4), Optional(2)) << "the last guess was never read";
}

TEST(DraftModel, WithoutRoomForATextTheOthersAreGuessedFor) {
  auto draft = draft_model("tiny-llama3", /*kv_blocks=*/5);
  ASSERT_EQ(draft.cache().block_count(), 5);
  const int32_t block = draft.cache().block_tokens();
  const auto large = random_prompt(4 * block - 8, 1), other = random_prompt(2 * block - 8, 2), small = random_prompt(5, 3);
  ASSERT_THAT(guess(draft, 1, large), SizeIs(5));
  EXPECT_EQ(draft.unread(2, other, kLength), std::nullopt) << "nobody is to plan with it";
  EXPECT_THAT(guess(draft, 2, other), IsEmpty());
  EXPECT_THAT(guess(draft, 3, small), SizeIs(5));
  draft.forget(1);
  EXPECT_THAT(guess(draft, 2, other), SizeIs(5));
  // What nobody asked for in a long time gives way.
  for (int i = 0; i < 80; ++i) EXPECT_THAT(guess(draft, 3, small, 1), SizeIs(1));
  EXPECT_THAT(draft.unread(1, large, kLength), Optional(static_cast<int32_t>(large.size())));
  EXPECT_THAT(guess(draft, 1, large), SizeIs(5));
  auto fresh = draft_model("tiny-llama3");
  EXPECT_EQ(guess(draft, 2, other), Tokens()) << "its blocks are the other's now";
  draft.forget(1);
  EXPECT_EQ(guess(draft, 2, other), guess(fresh, 2, other));
}

// Read in turns: both begin, one of them can be read to its end.
TEST(DraftModel, OfTextsThatFitInPartOneGoesOn) {
  auto draft = draft_model("tiny-llama3", /*kv_blocks=*/5);
  const int32_t block = draft.cache().block_tokens();
  Tokens a = random_prompt(4 * block - 8, 1), b = random_prompt(4 * block - 8, 2), of_a(3), of_b(3);
  int given_a = 0, given_b = 0;
  const auto read_both = [&](int turns) {
    for (int i = 0; i < turns; ++i) {
      draft.next_turn();
      std::vector<DraftWish> wishes{wish_of(1, a, of_a, 20), wish_of(2, b, of_b, 20)};
      draft.guess(wishes);
      given_a += wishes[0].given;
      given_b += wishes[1].given;
    }
  };
  read_both(12);
  EXPECT_EQ(std::min(given_a, given_b), 0);
  EXPECT_GE(std::max(given_a, given_b), 3);
  const bool is_a = given_a > 0;
  draft.forget(is_a ? 1 : 2);
  auto& other = is_a ? b : a;
  EXPECT_THAT(guess(draft, is_a ? 2 : 1, other, 3), SizeIs(3));
}

// Each has what it needs, and then both need one block more.
TEST(DraftModel, OfTextsThatGrowBeyondTheRoomOneGoesOn) {
  auto draft = draft_model("tiny-llama3", /*kv_blocks=*/5);
  const int32_t block = draft.cache().block_tokens();
  auto a = random_prompt(2 * block - 8, 1), b = random_prompt(3 * block - 8, 2);
  ASSERT_THAT(guess(draft, 1, a), SizeIs(5));
  ASSERT_THAT(guess(draft, 2, b), SizeIs(5));
  a.resize(static_cast<size_t>(2 * block + 1), 7);
  b.resize(static_cast<size_t>(3 * block + 1), 7);
  EXPECT_THAT(guess(draft, 1, a), IsEmpty());
  EXPECT_EQ(draft.unread(1, a, kLength), std::nullopt);
  EXPECT_THAT(guess(draft, 2, b), SizeIs(5));
  EXPECT_THAT(guess(draft, 2, b), SizeIs(5));
  draft.forget(2);
  auto fresh = draft_model("tiny-llama3");
  EXPECT_THAT(draft.unread(1, a, kLength), Optional(2 * block + 1)) << "from its beginning";
  EXPECT_EQ(guess(draft, 1, a), guess(fresh, 1, a));
}

TEST(DraftModel, WhatItDoesNotKnowItDoesNotGuessFor) {
  auto draft = draft_model("tiny-llama3");
  auto foreign = random_prompt(10, 1);
  foreign[4] = kVocab;
  EXPECT_THAT(guess(draft, 1, foreign), IsEmpty());
  EXPECT_EQ(draft.unread(1, foreign, kLength), std::nullopt);
  EXPECT_EQ(draft.unread(2, random_prompt(kLength, 2), kLength), std::nullopt);
  EXPECT_THAT(guess(draft, 2, random_prompt(kLength, 2)), IsEmpty());
  EXPECT_THAT(guess(draft, 3, random_prompt(10, 3)), SizeIs(5));
  draft.forget(1);
  draft.forget(4);  // it never heard of
}

TEST(DraftModel, NoGuessIsATokenThatTheOtherModelDoesNotHave) {
  const auto text = random_prompt(10, 3);
  auto whole = draft_model("tiny-llama3");
  const auto guesses = guess(whole, 1, text);
  ASSERT_THAT(guesses, SizeIs(5));
  auto draft = draft_model("tiny-llama3", 0, 0, guesses[2]);
  const auto fewer = guess(draft, 1, text);
  EXPECT_LE(fewer.size(), 2U);
  for (const int32_t token : fewer) EXPECT_LT(token, guesses[2]);
}

TEST(DraftModel, AnErrorEndsAllGuessing) {
  auto draft = draft_model("tiny-llama3", 0, /*fails_at=*/4);
  const auto text = random_prompt(10, 1);
  EXPECT_THAT(guess(draft, 1, text, 2), SizeIs(2));
  EXPECT_THAT(guess(draft, 2, text, 5), IsEmpty()) << "its second step failed";
  EXPECT_TRUE(draft.has_failed());
  EXPECT_THAT(guess(draft, 1, text, 2), IsEmpty());
  EXPECT_EQ(draft.unread(1, text, kLength), std::nullopt);
  EXPECT_EQ(draft.stats().steps, 4);
  draft.forget(1);
}

// Whatever finds no memory, the text goes without guesses, or all do: nothing is left behind, and what is given is right.
TEST(DraftModel, EachAllocationOfANewTextMayFail) {
  const auto text = random_prompt(10, 1);
  auto want_from = draft_model("tiny-llama3");
  const auto want = guess(want_from, 1, text, 3);
  bool failed = true;
  int skipped = 0;
  for (int64_t nth = 1; failed; ++nth) {
    auto draft = draft_model("tiny-llama3");
    ASSERT_THAT(guess(draft, 7, text, 3), SizeIs(3));
    Tokens out(3);
    auto wish = wish_of(1, text, out);
    choral::testing::fail_nth_allocation(nth);
    draft.guess({&wish, 1});
    failed = choral::testing::stop_failing_nth_allocation();
    EXPECT_TRUE(wish.given == 0 || out == want);
    if (!draft.has_failed() && wish.given == 0) {
      ++skipped;
      EXPECT_EQ(guess(draft, 1, text, 3), want) << "the next time there is memory";
    }
    draft.forget(1);
    draft.forget(7);
    EXPECT_EQ(draft.known_texts(), 0);
    EXPECT_EQ(draft.cache().free_blocks(), draft.cache().block_count());
  }
  EXPECT_GT(skipped, 3);
}

TEST(DraftLoader, TheFirstTokenThatDiffersIsNamed) {
  const auto tokens_of = [](const char* model) { return open_model_files(tiny_options(model))->tokenizer; };
  const auto llama = tokens_of("tiny-llama3"), same = tokens_of("tiny-smollm3"), other = tokens_of("tiny-qwen2");
  EXPECT_TRUE(check_same_tokens(*llama, *same).ok());
  const Status differs = check_same_tokens(*llama, *other);
  EXPECT_EQ(differs.code(), Code::kInvalidArgument);
  int32_t first = 0;
  while (llama->id_to_token(first) == other->id_to_token(first)) ++first;
  EXPECT_THAT(std::string(differs.message()), ::testing::HasSubstr(fmt::format("token {} is ", first)));
}

TEST(DraftModel, TextsOfSeveralAdaptersShareItsSteps) {
  const AdapterFiles files;
  auto options = draft_options("tiny-llama3");
  options.adapters = {{"a", files.write("a", 4, 1)}, {"b", files.write("b", 8, 2)}};
  const auto llm = load_or_die(options);
  auto alone = tiny_options();
  alone.draft_model = alone.model;
  alone.speculative = "ngram";
  alone.draft_adapters = options.adapters;
  const auto own_files = open_model_files(alone);
  ASSERT_TRUE(own_files.ok());
  auto loaded = load_draft(alone, *own_files);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  const auto draft = std::move(*loaded).start(kVocab);
  const int64_t steps = draft->stats().steps;
  std::vector<Tokens> texts, outs(5, Tokens(4));
  const std::vector<std::string> names{"", "a", "a", "b", "b"};
  std::vector<DraftWish> wishes;
  for (uint32_t i = 0; i < 5; ++i) texts.push_back(random_prompt(10 + static_cast<int>(i), i));
  for (uint32_t i = 0; i < 5; ++i) {
    wishes.push_back(wish_of(i, texts[i], outs[i]));
    wishes.back().adapter = draft->adapter_of(names[i]);
    EXPECT_EQ(wishes.back().adapter == lora::kBaseKey, names[i].empty());
  }
  draft->guess(wishes);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(outs[i], answer(*llm, texts[i], 4, names[i])) << i;
  EXPECT_EQ(draft->stats().steps - steps, 4);
}

TEST(DraftModel, OnceATextIsKnownNothingAllocates) {
  auto draft = draft_model("tiny-llama3");
  std::vector<Tokens> texts, outs(4, Tokens(5));
  for (uint32_t i = 0; i < 4; ++i) {
    texts.push_back(random_prompt(20, i));
    texts.back().reserve(kLength);
  }
  std::vector<DraftWish> wishes;
  const auto round = [&] {
    wishes.clear();
    for (uint64_t i = 0; i < 4; ++i) wishes.push_back(wish_of(i, texts[i], outs[i]));
    draft.guess(wishes);
    for (size_t i = 0; i < 4; ++i) {
      for (size_t right = 0; right < i; ++right) texts[i].push_back(outs[i][right]);
      texts[i].push_back(7);
    }
  };
  for (int i = 0; i < 20; ++i) round();
  const auto counted = choral::testing::count_allocations([&] {
    for (int i = 0; i < 30; ++i) round();
  });
  EXPECT_EQ(counted.allocations, 0) << counted.bytes << " bytes";
}

}  // namespace
}  // namespace choral::engine
