// What the KV cache's type changes: the memory of a token, and answers by no more than its rounding may.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "engine/kv_pool.h"
#include "engine/tiny_model_test.h"
#include "io/config_map.h"
#include "support/tiny_models.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

class KvTypesTest : public ::testing::TestWithParam<std::string> {
 protected:
  static bool routes() {
    const auto config = io::ConfigMap::read_json_file(tiny_options(GetParam()).model + "/config.json");
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    return config.ok() && config->contains("num_experts_per_tok");
  }
  static std::vector<RequestOutput> answers(const std::string& kv_cache_dtype) {
    auto options = tiny_options(GetParam());
    options.kv_cache_dtype = kv_cache_dtype;
    const auto llm = load_or_die(options);
    EXPECT_EQ(llm->info().kv_cache_dtype, kv_cache_dtype == "auto" ? "float16" : kv_cache_dtype);
    std::vector<Request> requests;
    for (const int length : {8, 40, 200}) {
      requests.push_back(greedy_request(random_prompt(length, static_cast<uint32_t>(length)), 1));
      requests.back().sampling.prompt_logprobs = requests.back().sampling.logprobs = 10;
    }
    return llm->generate(std::move(requests));
  }
  // Of one position, in nats: how far the likely tokens of one are from where they are in the other, on average.
  static double distance(const PositionLogprobs& exact, const PositionLogprobs& rounded) {
    double sum = 0;
    for (const auto& token : exact.top) {
      const auto found = std::find_if(rounded.top.begin(), rounded.top.end(),
                                      [&](const TokenLogprob& other) { return other.token_id == token.token_id; });
      // What has left the ten is at most their last.
      const double got = found != rounded.top.end() ? found->logprob : std::min(rounded.top.back().logprob, token.logprob);
      sum += std::fabs(got - token.logprob);
    }
    return sum / static_cast<double>(exact.top.size());
  }
  struct Distances {
    double mean = 0;
    int other_token = 0;  // positions whose likeliest token is another, though it was likelier by kGap
    int positions = 0;
  };
  static constexpr double kGap = 0.5;
  static Distances distances(const std::vector<RequestOutput>& exact, const std::vector<RequestOutput>& rounded) {
    Distances all;
    const auto add = [&](const PositionLogprobs& a, const PositionLogprobs& b) {
      all.mean += distance(a, b);
      all.other_token += a.top[0].token_id != b.top[0].token_id && a.top[0].logprob - a.top[1].logprob > kGap;
      ++all.positions;
    };
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_TRUE(exact[i].status.ok() && rounded[i].status.ok());
      EXPECT_EQ(exact[i].prompt_logprobs.size(), rounded[i].prompt_logprobs.size());
      for (size_t t = 0; t < exact[i].prompt_logprobs.size(); ++t)
        add(exact[i].prompt_logprobs[t], rounded[i].prompt_logprobs[t]);
      add(exact[i].completions[0].logprobs[0], rounded[i].completions[0].logprobs[0]);
    }
    all.mean /= all.positions;
    return all;
  }
};

TEST_P(KvTypesTest, EveryPositionOfAPromptAnswersNearFloat) {
  const auto exact = answers("float32");
  const auto int8 = distances(exact, answers("int8")), bf16 = distances(exact, answers("bfloat16")),
             usual = distances(exact, answers("auto"));
  EXPECT_GT(int8.mean, 0) << "a cache that rounds is seen";
  EXPECT_GT(usual.mean, 0);
  EXPECT_LE(usual.mean, routes() ? bf16.mean : bf16.mean / 2);
  EXPECT_LE(usual.mean, routes() ? 0.02 : 5e-3);
  EXPECT_LE(int8.mean, 0.1);
  EXPECT_LE(int8.mean, 10 * bf16.mean);
  // Rounding that sends a token to another expert changes more than a rounding.
  EXPECT_LE(int8.other_token, routes() ? int8.positions / 25 : 0);
}

INSTANTIATE_TEST_SUITE_P(Families, KvTypesTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& tested) { return testing::family_of(tested.param); });

TEST(KvTypesMemory, ATokenTakesAByteAnElementAndTwoScalesAHead) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  const layers::KvShape plain{.kv_heads = 3, .key_dim = 64, .value_dim = 48};
  const layers::KvShape latent{.kv_heads = 1, .key_dim = 576, .value_dim = 512, .values_in_keys = true};
  const auto token_bytes = [&](const layers::KvShape& shape) {
    const auto plan = plan_kv_pool({&shape, 1}, 4096, DType::kI8, {.max_num_seqs = 1, .default_bytes = kGiB});
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    EXPECT_EQ(plan->blocks, 4096 / 32);
    EXPECT_THAT(plan->notes.front(), HasSubstr("int8"));
    return plan->bytes / 4096;
  };
  EXPECT_EQ(token_bytes(plain), 3 * (64 + 48 + 8));
  EXPECT_EQ(token_bytes(latent), 576 + 8);
}

TEST(KvTypesMemory, WhatIsPlannedIsAllocated) {
  for (const char* model : {"tiny-llama3", "tiny-deepseek-v2", "tiny-gemma3"}) {
    auto options = tiny_options(model);
    options.kv_cache_dtype = "int8";
    options.kv_cache_bytes = int64_t{1} << 20;
    const auto llm = load_or_die(options);
    EXPECT_LE(llm->info().kv_cache_bytes, options.kv_cache_bytes) << model;
    auto exact = options;
    exact.kv_cache_dtype = "float32";
    EXPECT_GT(llm->info().kv_cache_tokens, 2 * load_or_die(exact)->info().kv_cache_tokens) << model;
  }
}

TEST(KvTypesMemory, AnUnknownTypeIsToldTheChoices) {
  for (const char* unknown : {"fp8", "q8_0", "int4", "float64"}) {
    auto options = tiny_options();
    options.kv_cache_dtype = unknown;
    const auto refused = LLM::load(options).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.message(), HasSubstr(std::string(unknown) + ": choose auto, float32, bfloat16, float16 or int8"));
  }
}

}  // namespace
}  // namespace choral::engine
