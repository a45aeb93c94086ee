// The events of the prefix cache, read by a router that knows nothing else: from them it says, of every request before it is
// sent, how much of its prompt the engine has.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using std::chrono_literals::operator""ms;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What is known of the cache by its events alone.
class Router {
 public:
  void hear(LLM& llm) {
    stats_at_rest(llm);
    KvEventBatch batch;
    while (llm.next_kv_events(batch, 0ms)) {
      EXPECT_EQ(batch.number, next_++) << "no batch is lost";
      EXPECT_THAT(batch.events, ::testing::Not(IsEmpty()));
      for (const auto& event : batch.events) std::visit([this](const auto& e) { hear(e); }, event);
    }
  }

  // Leading tokens of a prompt of these adapters, of a model whose layers all see everything.
  int known(const Request& request, int activation_token, int block_tokens) const {
    std::optional<uint64_t> parent;
    int blocks = 0;
    const auto& ids = request.prompt_token_ids;
    for (; (blocks + 1) * block_tokens < static_cast<int>(ids.size()); ++blocks) {
      const auto begin = ids.begin() + blocks * block_tokens;
      const bool is_adapted = blocks >= activation_token / block_tokens;
      const auto found = blocks_.find({parent, std::vector<int32_t>(begin, begin + block_tokens),
                                       is_adapted ? text_of(request.adapters) : "", request.cache_salt});
      if (found == blocks_.end() || !held_.contains({0, found->second})) break;
      parent = found->second;
    }
    return blocks * block_tokens;
  }

  size_t held() const { return held_.size(); }
  int64_t stored = 0, removed = 0;
  std::set<int> windows;

 private:
  struct Place {
    std::optional<uint64_t> parent;
    std::vector<int32_t> tokens;
    std::string adapters, salt;
    auto operator<=>(const Place&) const = default;
  };

  static std::string text_of(const std::vector<AdapterUse>& adapters) {
    std::string text;
    for (const auto& use : adapters) text += fmt::format("{}:{} ", use.name, use.scale);
    return text;
  }
  void hear(const KvBlocksStored& event) {
    ASSERT_EQ(event.token_ids.size() % event.blocks.size(), 0U);
    const size_t each = event.token_ids.size() / event.blocks.size();
    auto parent = event.parent;
    windows.insert(event.window);
    for (size_t i = 0; i < event.blocks.size(); ++i) {
      const auto tokens = std::span(event.token_ids).subspan(i * each, each);
      Place place{parent, {tokens.begin(), tokens.end()}, text_of(event.adapters), event.cache_salt};
      const auto [known, is_new] = blocks_.emplace(std::move(place), event.blocks[i]);
      EXPECT_EQ(known->second, event.blocks[i]) << "one content, one name";
      EXPECT_TRUE(held_.emplace(event.group, event.blocks[i]).second) << "stored twice";
      parent = event.blocks[i];
      ++stored;
    }
  }
  void hear(const KvBlocksRemoved& event) {
    for (const uint64_t block : event.blocks) {
      EXPECT_EQ(held_.erase({event.group, block}), 1U) << "removed, but not there";
      ++removed;
    }
  }

  int64_t next_ = 0;
  std::map<Place, uint64_t> blocks_;
  std::set<std::pair<int, uint64_t>> held_;
};

const std::vector<int32_t> kInvocation{1001, 1002, 1003};

class KvEvents : public ::testing::Test {
 protected:
  KvEvents() {
    options_.max_num_seqs = 4;
    options_.max_num_batched_tokens = 48;
    options_.max_model_len = 320;
    options_.kv_event_batches = 100'000;
  }

  // So many blocks, where one sequence may have ten.
  std::unique_ptr<LLM> with_blocks(int blocks) {
    const auto probe = load_or_die(options_);
    auto options = options_;
    options.kv_cache_bytes = probe->info().kv_cache_bytes / probe->stats().kv_blocks_total * blocks;
    return load_or_die(options);
  }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
};

TEST_F(KvEvents, ARouterKnowsWhatEveryPromptWillFind) {
  files_.write("a", 4, 1);
  const auto activated = std::filesystem::path(files_.write("later", 4, 2)) / "adapter_config.json";
  auto config = nlohmann::json::parse(std::ifstream(activated));
  config["alora_invocation_tokens"] = kInvocation;
  std::ofstream(activated) << config;
  options_.adapter_root = files_.root().string();
  const auto llm = with_blocks(24);
  const int block = llm->info().kv_block_tokens;
  Router router;
  std::mt19937 random(7);
  const auto up_to = [&random](int most) { return static_cast<int>(random() % static_cast<uint32_t>(most + 1)); };
  int found = 0, cold = 0;
  for (int i = 0; i < 120; ++i) {
    auto prompt = random_prompt(40 + up_to(180), static_cast<uint32_t>(up_to(2)));  // few beginnings
    int activation = 0;
    std::vector<AdapterUse> adapters;
    switch (up_to(4)) {
      case 1: adapters = {{"a"}}; break;
      case 2: adapters = {{"a", 0.5F}}; break;
      case 3:
        activation = static_cast<int>(prompt.size());
        prompt.insert(prompt.end(), kInvocation.begin(), kInvocation.end());
        adapters = {{"later"}};
        break;
      default: break;
    }
    auto request = with_adapters(greedy_request(prompt, 1 + up_to(40)), adapters);
    if (up_to(3) == 0) request.cache_salt = "tenant";
    const int known = router.known(request, activation, block);
    const auto answer = llm->generate({request}).front();
    ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
    EXPECT_EQ(answer.cached_tokens, known) << "request " << i;
    (known > 0 ? found : cold) += 1;
    router.hear(*llm);
  }
  EXPECT_GT(found, 20);
  EXPECT_GT(cold, 20);
  EXPECT_GT(router.removed, 50);
  EXPECT_LE(router.held(), 24U);
}

TEST_F(KvEvents, LayersWithAWindowTellOfTheirOwnBlocks) {
  auto options = tiny_options("tiny-gemma3");
  options.kv_event_batches = 1000;
  options.max_num_seqs = 1;
  options.max_model_len = 400;
  const auto llm = load_or_die(options);
  Router router;
  for (int i = 0; i < 12; ++i) {
    llm->generate({greedy_request(random_prompt(300, static_cast<uint32_t>(i)), 40)});
    router.hear(*llm);
  }
  EXPECT_THAT(router.windows, SizeIs(2));
  EXPECT_TRUE(router.windows.contains(0));
  EXPECT_GT(router.removed, 0);
}

TEST_F(KvEvents, AStepsBlocksOfOneTextAreOneEvent) {
  const auto llm = load_or_die(options_);
  const int block = llm->info().kv_block_tokens;
  const auto prompt = random_prompt(2 * block + 5, 3);
  llm->generate({greedy_request(prompt, 1)});
  stats_at_rest(*llm);
  std::vector<KvEvent> events;
  for (KvEventBatch batch; llm->next_kv_events(batch, 0ms);)
    events.insert(events.end(), batch.events.begin(), batch.events.end());
  std::vector<int32_t> told;
  std::optional<uint64_t> last;
  for (const auto& event : events) {
    const auto& stored = std::get<KvBlocksStored>(event);
    EXPECT_EQ(stored.parent, last);
    told.insert(told.end(), stored.token_ids.begin(), stored.token_ids.end());
    last = stored.blocks.back();
  }
  EXPECT_EQ(told, std::vector<int32_t>(prompt.begin(), prompt.begin() + 2 * block));
}

TEST_F(KvEvents, WhatNobodyReadsIsLostAndItsNumbersAreMissing) {
  options_.kv_event_batches = 3;
  const auto llm = load_or_die(options_);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    llm->generate({greedy_request(random_prompt(llm->info().kv_block_tokens + 1, seed), 1)});
    stats_at_rest(*llm);
  }
  std::vector<int64_t> numbers;
  for (KvEventBatch batch; llm->next_kv_events(batch, 0ms);) numbers.push_back(batch.number);
  EXPECT_THAT(numbers, ElementsAre(3, 4, 5));
}

TEST_F(KvEvents, WithoutTheOptionThereAreNone) {
  options_.kv_event_batches = 0;
  const auto llm = load_or_die(options_);
  llm->generate({greedy_request(random_prompt(100, 1), 1)});
  KvEventBatch batch;
  EXPECT_FALSE(llm->next_kv_events(batch, 1ms));
}

}  // namespace
}  // namespace choral::engine
