// Adapters of all kinds in one batch, each to the bit what it is alone: DoRA, replaced norms, heads and layers, embeddings,
// trained tokens, biases side by side in every step, and among them the base, to the bit what it is where no adapter was loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/tiny_model_test.h"
#include "golden/golden.h"
#include "golden/kinds.h"
#include "support/temp_dir.h"

namespace choral::golden {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kTrainedToken = 17;  // of the kinds that train tokens

// Two for the adapter, or for the base, that differ in length.
void add_requests(const std::string& adapter, std::vector<Request>& requests) {
  for (const int length : {2, 41}) {
    auto request = engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(requests.size())), 12);
    request.prompt_token_ids.back() = kTrainedToken;
    if (!adapter.empty()) request.adapters.push_back({adapter});
    requests.push_back(std::move(request));
  }
}

class MixedKindsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    options_ = engine::tiny_options(GetParam());
    options_.device = test_device();
    options_.enable_prefix_caching = false;  // everything is computed
    base_options_ = options_;
    const auto base = read_weights(options_.model);
    ASSERT_TRUE(base.ok()) << base.status().to_string();
    add_requests("", requests_);
    int count = 0;
    for (const Kind& kind : all_kinds()) {
      if (kind.model != GetParam()) continue;
      AdapterKind adapter(*base, /*rank=*/4, /*alpha=*/8);
      kind.build(adapter, *base);
      const std::string name = "kind" + std::to_string(count++);
      ASSERT_TRUE(write_adapter(dir_.path() / name, adapter).ok());
      options_.adapters.push_back({name, dir_ / name});
      add_requests(name, requests_);
    }
    ASSERT_GT(count, 1);
    add_requests("", requests_);
    options_.max_num_seqs = static_cast<int>(requests_.size());
  }

  void expect_equal_alone(const EngineOptions& together) {
    const auto one_by_one = engine::load_or_die(options_), batch = engine::load_or_die(together);
    const auto without_adapters = engine::load_or_die(base_options_);
    ASSERT_TRUE(one_by_one && batch && without_adapters);
    const auto outputs = batch->generate(requests_);
    ASSERT_EQ(outputs.size(), requests_.size());
    for (size_t i = 0; i < requests_.size(); ++i) {
      const auto& adapters = requests_[i].adapters;
      SCOPED_TRACE(adapters.empty() ? "base" : adapters.front().name);
      engine::expect_same_bits(outputs[i], one_by_one->generate({requests_[i]}).front());
      if (adapters.empty()) engine::expect_same_bits(outputs[i], without_adapters->generate({requests_[i]}).front());
    }
  }

  const testing::TempDir dir_;
  EngineOptions options_, base_options_;
  std::vector<Request> requests_;
};

TEST_P(MixedKindsTest, EachIsWhatItIsAlone) { expect_equal_alone(options_); }

TEST_P(MixedKindsTest, InSmallStepsToo) {
  auto small = options_;
  small.max_num_batched_tokens = 24;  // prompts come in chunks, beside others' decode rows
  small.max_num_seqs = 7;
  expect_equal_alone(small);
}

std::set<std::string> models_of_kinds() {
  std::set<std::string> seen, models;  // of several kinds
  for (const Kind& kind : all_kinds()) {
    if (!seen.insert(kind.model).second) models.insert(kind.model);
  }
  return models;
}

INSTANTIATE_TEST_SUITE_P(Models, MixedKindsTest, ::testing::ValuesIn(models_of_kinds()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace choral::golden
