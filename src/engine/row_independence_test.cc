// Invariant 1 at the level of the model: a row's tokens and log-probabilities are bit-identical whatever shares its batch,
// however its prompt is chunked, with one thread or two, with the prefix cache on or off, before and after preemption.
#include "engine/tiny_model_test.h"
#include "support/tiny_models.h"

namespace choral::engine {
namespace {

constexpr int kTokens = 24;

std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (const int length : {1, 7, 31, 32, 33, 64, 100, 150}) {
    requests.push_back(greedy_request(random_prompt(length, static_cast<uint32_t>(length)), kTokens));
  }
  return requests;
}

std::vector<RequestOutput> each_alone(const EngineOptions& options) {
  const auto llm = load_or_die(options);
  std::vector<RequestOutput> outputs;
  for (auto& request : mixed_requests()) outputs.push_back(llm->generate({request}).front());
  return outputs;
}

struct Tested {
  std::string model;
  std::string quantization = "auto";
  std::string kv_cache_dtype = "auto";
};
std::string name_of(const ::testing::TestParamInfo<Tested>& tested) {
  const auto& [model, quantization, kv_cache_dtype] = tested.param;
  return testing::family_of(model) + (quantization == "auto" ? "" : "_" + quantization) +
         (kv_cache_dtype == "auto" ? "" : "_kv_" + kv_cache_dtype);
}

class RowIndependenceTest : public ::testing::TestWithParam<Tested> {
 protected:
  EngineOptions options() const {
    auto options = tiny_options(GetParam().model);
    options.quantization = GetParam().quantization;
    options.kv_cache_dtype = GetParam().kv_cache_dtype;
    options.enable_prefix_caching = false;
    options.speculative = "ngram";  // whether anything is guessed or not
    return options;
  }
  void expect_equal_alone(const EngineOptions& changed) const {
    const auto alone = each_alone(options());
    const auto together = load_or_die(changed)->generate(mixed_requests());
    for (size_t i = 0; i < alone.size(); ++i) expect_same_bits(alone[i], together[i]);
  }
};

TEST_P(RowIndependenceTest, MixedBatch) { expect_equal_alone(options()); }

TEST_P(RowIndependenceTest, OneThread) {
  auto changed = options();
  changed.threads = 1;
  expect_equal_alone(changed);
}

TEST_P(RowIndependenceTest, SmallChunks) {
  auto changed = options();
  changed.max_num_seqs = 8;
  for (const int budget : {8, 13, 40}) {
    changed.max_num_batched_tokens = budget;
    expect_equal_alone(changed);
  }
}

TEST_P(RowIndependenceTest, PrefixCacheHit) {
  auto changed = options();
  changed.enable_prefix_caching = true;
  const auto alone = each_alone(options());
  const auto llm = load_or_die(changed);
  llm->generate(mixed_requests());
  const auto again = llm->generate(mixed_requests());
  for (size_t i = 0; i < alone.size(); ++i) expect_same_bits(alone[i], again[i]);
  EXPECT_GE(again.back().cached_tokens, 128);
  EXPECT_GT(llm->stats().prefix_hit_tokens, 0);
}

TEST_P(RowIndependenceTest, PreemptedAndResumed) {
  // Ten blocks of 32 tokens for eight sequences that want up to 55 tokens each: some must give way and come back.
  auto changed = options();
  changed.max_model_len = 64;
  const auto probe = load_or_die(changed);
  changed.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 10;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) requests.push_back(greedy_request(random_prompt(25, 100 + i), 30));
  const auto llm = load_or_die(changed);
  const auto together = llm->generate(requests);
  EXPECT_GT(llm->stats().preemptions, 0);
  for (size_t i = 0; i < requests.size(); ++i) expect_same_bits(probe->generate({requests[i]}).front(), together[i]);
}

std::vector<Tested> every_family() {
  std::vector<Tested> all;
  for (const auto& model : testing::tiny_models()) all.push_back({model});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Families, RowIndependenceTest, ::testing::ValuesIn(every_family()), name_of);
INSTANTIATE_TEST_SUITE_P(Forms, RowIndependenceTest,
                         ::testing::Values(Tested{"tiny-gpt-oss", "w8a8_dynamic"}, Tested{"tiny-qwen3moe", "w8a8_dynamic"},
                                           Tested{"tiny-olmoe", "w8a8_dynamic"}, Tested{"tiny-gemma4-moe", "w8a8_dynamic"},
                                           Tested{"tiny-deepseek-v2", "w8a8_dynamic"}, Tested{"tiny-qwen2moe", "w8a8_dynamic"},
                                           Tested{"tiny-llama4", "w8a8_dynamic"}, Tested{"tiny-llama3", "w8a8_dynamic"},
                                           Tested{"tiny-qwen2", "w8a8_dynamic"}, Tested{"tiny-glm4", "w8a8_dynamic"},
                                           Tested{"tiny-cohere2", "w8a8_dynamic"}, Tested{"tiny-granite-h", "w8a8_dynamic"},
                                           Tested{"tiny-llama3", "auto", "int8"}, Tested{"tiny-deepseek-v2", "auto", "int8"},
                                           Tested{"tiny-gemma3", "auto", "int8"}, Tested{"tiny-gpt-oss", "w8a8_dynamic", "int8"}),
                         name_of);

}  // namespace
}  // namespace choral::engine
