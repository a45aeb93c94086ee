// Guessed tokens change nothing but the number of steps: answers with them and without are the same to the last bit, whatever
// else a request asks for and whoever it shares its steps with.
#include <gmock/gmock.h>

#include <random>

#include "engine/adapters/adapter_files_test.h"
#include "engine/guessing_engine_test.h"
#include "engine/speculation/draft_engine_test.h"

namespace choral::engine {
namespace {

// A prompt that says some things again and again, so that there is something to guess, for an answer that does likewise.
std::vector<int32_t> repeating_prompt(std::mt19937& random) {
  const auto up_to = [&random](uint32_t most) { return static_cast<uint32_t>(random() % (most + 1)); };
  const auto phrase = random_prompt(static_cast<int>(3 + up_to(20)), up_to(1000));
  std::vector<int32_t> ids = random_prompt(static_cast<int>(up_to(20)), up_to(1000));
  for (uint32_t i = 0; i < 2 + up_to(4); ++i) {
    ids.insert(ids.end(), phrase.begin(), phrase.end());
    const auto between = random_prompt(static_cast<int>(up_to(3)), up_to(1000));
    ids.insert(ids.end(), between.begin(), between.end());
  }
  return ids;
}

// Tiny models of random weights repeat themselves where they have few tokens to choose from: then some guesses come true.
Request drawn_request(std::mt19937& random, std::span<const std::string> adapters) {
  const auto up_to = [&random](uint32_t most) { return static_cast<uint32_t>(random() % (most + 1)); };
  auto request = greedy_request(repeating_prompt(random), static_cast<int>(10 + up_to(70)));
  auto& sampling = request.sampling;
  sampling.seed = random();
  sampling.ignore_eos = up_to(3) > 0;
  if (up_to(3) > 0) sampling.allowed_token_ids = random_prompt(static_cast<int>(2 + up_to(3)), up_to(1000));
  if (up_to(2) == 0) sampling.temperature = up_to(1) == 0 ? 0.05F : 0.9F;
  if (up_to(4) == 0) sampling.n = 2;
  if (up_to(3) == 0) sampling.logprobs.reset();
  if (up_to(5) == 0) sampling.presence_penalty = 0.3F;
  if (up_to(5) == 0) sampling.repetition_penalty = 1.1F;
  if (up_to(5) == 0) sampling.dry_multiplier = 0.4F;
  if (up_to(5) == 0) sampling.min_tokens = static_cast<int>(up_to(9));
  if (up_to(5) == 0) sampling.stop_token_ids = random_prompt(40, up_to(1000));
  if (up_to(5) == 0) sampling.bad_words = {"a", " the"};
  if (up_to(5) == 0) sampling.prompt_logprobs = 1;
  if (!adapters.empty() && up_to(1) == 0) {
    request.adapters.push_back({adapters[up_to(static_cast<uint32_t>(adapters.size() - 1))]});
    if (up_to(3) == 0 && request.adapters[0].name != adapters[0]) request.adapters.push_back({adapters[0], 0.5F});
  }
  if (up_to(6) == 0) request.cache_salt = "salt";
  return request;
}

struct Case {
  const char* model;
  const char* kv_cache_dtype = "auto";
  int batched_tokens = 64;
  int blocks = 0;  // of the KV cache; 0: enough
  bool prefix_caching = true;
  const char* draft_model = nullptr;  // that guesses too
  int draft_blocks = 0;               // of its KV cache
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << ' ' << c.kv_cache_dtype << ' ' << c.blocks << ' ' << (c.draft_model == nullptr ? "alone" : c.draft_model);
}

class Speculation : public ::testing::TestWithParam<Case> {};

TEST_P(Speculation, TheSameBitsInFewerSteps) {
  const Case& c = GetParam();
  const AdapterFiles files(c.model);
  files.write("a", 4, 1);
  files.write("b", 8, 2);
  auto options = tiny_options(c.model);
  options.adapter_root = files.root().string();
  options.kv_cache_dtype = c.kv_cache_dtype;
  options.max_num_seqs = 5;
  options.max_num_batched_tokens = c.batched_tokens;
  options.max_model_len = 256;
  options.enable_prefix_caching = c.prefix_caching;
  if (c.blocks > 0) {
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / probe->stats().kv_blocks_total * c.blocks;
  }
  const std::vector<std::string> adapters{"a", "b"};
  std::mt19937 random(11);
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i) requests.push_back(drawn_request(random, adapters));

  const auto plain = load_or_die(options);
  auto guessing = c.draft_model == nullptr ? guessing_engine(options)
                                           : drafting_engine(options, {.model = c.draft_model, .kv_blocks = c.draft_blocks});
  const auto wanted = plain->generate(requests), got = guessing.generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same_bits(wanted[i], got[i]);
    ASSERT_EQ(wanted[i].completions.size(), got[i].completions.size());
    for (size_t n = 0; n < wanted[i].completions.size(); ++n) {
      EXPECT_EQ(wanted[i].completions[n].text, got[i].completions[n].text);
      EXPECT_EQ(wanted[i].completions[n].finish_reason, got[i].completions[n].finish_reason);
      EXPECT_EQ(wanted[i].completions[n].stop_reason, got[i].completions[n].stop_reason);
    }
  }
  const auto without = stats_at_rest(*plain), with = stats_at_rest(guessing);
  EXPECT_EQ(without.speculation.guessed, 0);
  EXPECT_GT(with.speculation.right, 0);
  EXPECT_GT(with.speculation.guessed, with.speculation.right) << "some were wrong, and did no harm";
  EXPECT_EQ(with.speculation.draft_guessed > 0, c.draft_model != nullptr);
  EXPECT_EQ(with.generated_tokens, without.generated_tokens);
  EXPECT_EQ(with.kv_blocks_free, with.kv_blocks_total);
  if (c.blocks > 0) {
    EXPECT_GT(with.preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Speculation,
                         ::testing::Values(Case{"tiny-llama3"}, Case{"tiny-llama3", "auto", 64, 14},
                                           Case{"tiny-llama3", "int8", 24}, Case{"tiny-llama3", "auto", 512, 0, false},
                                           Case{"tiny-gemma3"}, Case{"tiny-gemma3", "auto", 40, 20}, Case{"tiny-qwen3moe"},
                                           Case{"tiny-deepseek-v3"}, Case{"tiny-llama3", "auto", 64, 0, true, "tiny-llama3"},
                                           Case{"tiny-llama3", "auto", 64, 14, true, "tiny-llama3", 20},
                                           Case{"tiny-llama3", "auto", 64, 0, true, "tiny-gemma3"},
                                           Case{"tiny-gemma3", "auto", 40, 20, true, "tiny-gemma3", 30},
                                           Case{"tiny-qwen3moe", "int8", 64, 0, true, "tiny-qwen3"}));

TEST(SpeculationOfStates, ModelsWithStatesDoNotGuess) {
  auto engine = guessing_engine(tiny_options("tiny-granite-h"));
  std::vector<int32_t> prompt;
  for (int i = 0; i < 60; ++i) prompt.push_back(5 + i % 4);
  ASSERT_TRUE(engine.generate({greedy_request(prompt, 40)}).front().status.ok());
  EXPECT_EQ(stats_at_rest(engine).speculation.guessed, 0);
}

// What was computed of an answer is there for the next request, guessed or not.
TEST(SpeculationOfPrefixes, AnAnswerIsFoundInTheCacheLikeOneWithoutGuesses) {
  const auto cached_behind_an_answer = [](auto& engine) {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 50; ++i) prompt.push_back(100 + i % 7);
    auto request = greedy_request(prompt, 150);
    request.sampling.allowed_token_ids = {100, 101, 102};
    const auto answer = engine.generate({request}).front();
    EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
    prompt.insert(prompt.end(), answer.completions[0].token_ids.begin(), answer.completions[0].token_ids.end());
    prompt.push_back(3);
    return engine.generate({greedy_request(prompt, 1)}).front().cached_tokens;
  };
  const auto plain = load_or_die(tiny_options());
  auto guessing = guessing_engine(tiny_options());
  const int cached = cached_behind_an_answer(*plain);
  EXPECT_GT(cached, 150);
  EXPECT_EQ(cached_behind_an_answer(guessing), cached);
  EXPECT_GT(stats_at_rest(guessing).speculation.right, 0);
}

}  // namespace
}  // namespace choral::engine
