// Any mix of adapters in one batch: base rows bit-identical to an engine that knows no adapter, each adapter's rows to themselves
// alone, whatever the neighbours, slots, chunks, threads and caches.
#include <algorithm>

#include "engine/adapters/adapter_files_test.h"
#include "engine/allocation_test.h"

namespace choral::engine {
namespace {

constexpr int kTokens = 16;

class AdapterMixTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    files_ = new AdapterFiles();
    options_ = new EngineOptions(tiny_options());
    options_->enable_prefix_caching = false;
    options_->adapters = {{"a", files_->write("a", 4, 1)},
                          {"b", files_->write("b", 8, 2, DType::kBF16)},
                          {"c", files_->write("c", 17, 3, DType::kF16)},
                          {"trained", std::string(CHORAL_TEST_DATA) + "/lora/tiny-llama3-lora-all"}};
    alone_ = new std::vector<RequestOutput>(each_alone());
  }
  static void TearDownTestSuite() {
    delete alone_;
    delete options_;
    delete files_;
  }

  static std::vector<Request> requests() {
    const std::vector<std::vector<AdapterUse>> uses = {
        {}, {{"a"}}, {{"b"}}, {{"trained"}}, {}, {{"c"}}, {{"a", 0.5f}, {"b", -0.25f}}, {{"trained", 0.7f}}, {{"b"}}, {{"a"}}};
    std::vector<Request> all;
    for (size_t i = 0; i < uses.size(); ++i) {
      const int length = 1 + static_cast<int>(i * 29 % 97);
      all.push_back(with_adapters(greedy_request(random_prompt(length, static_cast<uint32_t>(i)), kTokens), uses[i]));
    }
    return all;
  }
  // Base requests in an engine without adapters, the others one by one.
  static std::vector<RequestOutput> each_alone() {
    auto without = *options_;
    without.adapters.clear();
    const auto bare = load_or_die(without), llm = load_or_die(*options_);
    std::vector<RequestOutput> outputs;
    for (auto& request : requests()) outputs.push_back((request.adapters.empty() ? bare : llm)->generate({request}).front());
    return outputs;
  }
  static void expect_equal_alone(const EngineOptions& changed) {
    const auto together = load_or_die(changed)->generate(requests());
    for (size_t i = 0; i < together.size(); ++i) expect_same_bits((*alone_)[i], together[i]);
  }

  static AdapterFiles* files_;
  static EngineOptions* options_;
  static std::vector<RequestOutput>* alone_;
};

AdapterFiles* AdapterMixTest::files_ = nullptr;
EngineOptions* AdapterMixTest::options_ = nullptr;
std::vector<RequestOutput>* AdapterMixTest::alone_ = nullptr;

TEST_F(AdapterMixTest, OneBatch) { expect_equal_alone(*options_); }

// More rows than one row tile of the product, few for each adapter: their shares are computed along with it.
TEST_F(AdapterMixTest, EveryRequestThrice) {
  for (const int threads : {1, 2}) {
    auto changed = *options_;
    changed.threads = threads;
    changed.max_num_seqs = 32;
    std::vector<Request> thrice;
    for (auto& request : requests()) thrice.insert(thrice.end(), 3, request);
    const auto together = load_or_die(changed)->generate(thrice);
    for (size_t i = 0; i < together.size(); ++i) expect_same_bits((*alone_)[i / 3], together[i]);
  }
}

TEST_F(AdapterMixTest, AdaptersDoSomething) {
  const auto llm = load_or_die(*options_);
  const auto prompt = greedy_request(random_prompt(20, 7), 1);
  const auto base = llm->generate({prompt}).front();
  for (const char* name : {"a", "b", "c", "trained"}) {
    const auto adapted = llm->generate({with_adapters(prompt, {{name}})}).front();
    ASSERT_TRUE(adapted.status.ok()) << adapted.status.to_string();
    EXPECT_NE(base.completions[0].logprobs[0].chosen.logprob, adapted.completions[0].logprobs[0].chosen.logprob) << name;
  }
}

TEST_F(AdapterMixTest, OneThreadAndOtherOrder) {
  auto changed = *options_;
  changed.threads = 1;
  std::reverse(changed.adapters.begin(), changed.adapters.end());
  auto reversed = requests();
  std::reverse(reversed.begin(), reversed.end());
  const auto together = load_or_die(changed)->generate(reversed);
  for (size_t i = 0; i < together.size(); ++i) expect_same_bits((*alone_)[alone_->size() - 1 - i], together[i]);
}

TEST_F(AdapterMixTest, SmallChunksAndFewSlots) {
  auto changed = *options_;
  changed.max_num_seqs = 8;
  for (const int budget : {8, 13, 40}) {
    changed.max_num_batched_tokens = budget;
    expect_equal_alone(changed);
  }
  changed.max_loras = 2;
  expect_equal_alone(changed);
}

TEST_F(AdapterMixTest, PrefixCacheKnowsTheAdapters) {
  auto changed = *options_;
  changed.enable_prefix_caching = true;
  const auto llm = load_or_die(changed);
  llm->generate(requests());
  const auto again = llm->generate(requests());
  for (size_t i = 0; i < again.size(); ++i) expect_same_bits((*alone_)[i], again[i]);
  EXPECT_GT(llm->stats().prefix_hit_tokens, 0);
  // One prompt under every adapter: nobody is served another's KV.
  const auto prompt = greedy_request(random_prompt(96, 50), kTokens);
  const std::vector<std::vector<AdapterUse>> uses = {{}, {{"a"}}, {{"b"}}, {{"a", 0.5f}}, {{"trained"}}};
  const auto fresh = load_or_die(*options_);
  for (const auto& use : uses) {
    expect_same_bits(fresh->generate({with_adapters(prompt, use)}).front(), llm->generate({with_adapters(prompt, use)}).front());
  }
}

TEST_F(AdapterMixTest, PreemptedAndResumed) {
  auto changed = *options_;
  changed.max_model_len = 64;
  const auto probe = load_or_die(changed);
  changed.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 10;
  std::vector<Request> all;
  const std::vector<std::vector<AdapterUse>> uses = {{}, {{"a"}}, {{"b"}}, {{"c"}}};
  for (uint32_t i = 0; i < 8; ++i) all.push_back(with_adapters(greedy_request(random_prompt(25, 100 + i), 30), uses[i % 4]));
  const auto llm = load_or_die(changed);
  const auto together = llm->generate(all);
  EXPECT_GT(llm->stats().preemptions, 0);
  for (size_t i = 0; i < all.size(); ++i) expect_same_bits(probe->generate({all[i]}).front(), together[i]);
}

TEST_F(AdapterMixTest, SteadyStateAllocatesNothing) {
  const auto llm = load_or_die(*options_);
  std::vector<std::unique_ptr<ResponseStream>> streams;
  const std::vector<std::vector<AdapterUse>> uses = {{}, {{"a"}}, {{"b"}}, {{"a", 0.5f}, {"c"}}};
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = with_adapters(greedy_request(random_prompt(10 + static_cast<int>(i), i), 400), uses[i % 4]);
    request.sampling.logprobs.reset();
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
  }
  expect_no_allocations(*llm, 8);
}

}  // namespace
}  // namespace choral::engine
