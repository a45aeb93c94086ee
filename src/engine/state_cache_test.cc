// Layers that keep a state of a sequence, in an engine: a request answers the same bits whatever became of its slot meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

class StateCache : public ::testing::TestWithParam<const char*> {
 protected:
  static EngineOptions options() {
    auto options = tiny_options(GetParam());
    options.max_model_len = 192;
    return options;
  }
  static std::vector<Request> requests() {
    std::vector<Request> all;
    for (uint32_t i = 0; i < 6; ++i) all.push_back(greedy_request(random_prompt(30 + 17 * static_cast<int>(i), i), 24));
    return all;
  }
};

TEST_P(StateCache, SlotsThatOthersHadAndPreemptionsChangeNoBit) {
  auto alone = options();
  alone.max_num_seqs = 1;  // each in the slot of the one before
  const auto one = load_or_die(alone);
  auto tight = options();
  tight.max_num_seqs = 4;
  tight.max_num_batched_tokens = 40;
  tight.kv_cache_bytes = one->info().kv_cache_bytes / (one->info().kv_cache_tokens / 32) * 10;
  const auto crowded = load_or_die(tight);
  const auto expected = one->generate(requests()), got = crowded->generate(requests());
  for (size_t i = 0; i < expected.size(); ++i) expect_same_bits(expected[i], got[i]);
  EXPECT_GT(stats_at_rest(*crowded).preemptions, 0) << "the memory was to be short";
}

TEST_P(StateCache, EachOfNCompletionsHasItsOwn) {
  const auto llm = load_or_die(options());
  auto request = greedy_request(random_prompt(50, 3), 12);
  const auto single = llm->generate({request}).front();
  request.sampling.n = 3;
  const auto all = llm->generate({request}).front();
  ASSERT_TRUE(all.status.ok()) << all.status.to_string();
  ASSERT_EQ(all.completions.size(), 3u);
  for (const auto& completion : all.completions) EXPECT_EQ(completion.token_ids, single.completions.front().token_ids);
}

// A conversation of three turns, and two that go apart from its second: what was kept is found, and changes no bit.
TEST_P(StateCache, PrefixesAreFoundAsFarAsAStateIsKept) {
  auto cold = options();
  cold.enable_prefix_caching = false;
  const auto without = load_or_die(cold), with = load_or_die(options());
  auto prompt = random_prompt(70, 11);
  for (const int more : {0, 9, 20, 12}) {
    const auto tail = random_prompt(more, static_cast<uint32_t>(more));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    const auto request = greedy_request(prompt, 20);
    const auto expected = without->generate({request}).front(), got = with->generate({request}).front();
    expect_same_bits(expected, got);
    EXPECT_GE(got.cached_tokens, more > 0 ? 64 : 0) << "behind " << prompt.size() << " tokens";
    const auto& answer = got.completions.front().token_ids;
    prompt.insert(prompt.end(), answer.begin(), answer.end());
  }
  const auto again = greedy_request(random_prompt(70, 11), 20);
  const auto got = with->generate({again}).front();
  expect_same_bits(without->generate({again}).front(), got);
  EXPECT_EQ(got.cached_tokens, 64);
}

TEST_P(StateCache, IsTold) {
  const auto llm = load_or_die(options());
  const auto& notes = llm->info().notes;
  EXPECT_THAT(notes, ::testing::Contains(::testing::HasSubstr("states: 128 places of ")));
}

INSTANTIATE_TEST_SUITE_P(Models, StateCache,
                         ::testing::Values("tiny-qwen3-5", "tiny-qwen3-next", "tiny-granite-h", "tiny-granite-h-moe"),
                         [](const auto& tested) {
                           std::string name = std::string(tested.param).substr(5);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace choral::engine
