// Embeddings over the public API: the final hidden state, told by the logits that the model's head makes of it; the same bits in
// any batch, beside requests that generate, with adapters, chunks, preemption and prefixes found.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>

#include "base/float16.h"
#include "engine/adapters/adapter_files_test.h"
#include "engine/bytes_executor_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

Request embed(std::vector<int32_t> prompt, std::vector<AdapterUse> adapters = {}) {
  Request request;
  request.prompt_token_ids = std::move(prompt);
  request.adapters = std::move(adapters);
  request.embedding = true;
  return request;
}

std::vector<float> embedding_of(LLM& llm, const Request& request) {
  auto output = llm.generate({request}).front();
  EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  EXPECT_TRUE(output.completions.empty());
  double squares = 0;
  for (const float value : output.embedding) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(squares, 1, 1e-6);
  return output.embedding;
}

// The tiny model whose files ask for the mean.
class MeanModel {
 public:
  MeanModel() {
    for (const auto& entry : std::filesystem::directory_iterator(tiny_options().model))
      std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), folder_.path() / entry.path().filename());
    folder_.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false})");
  }
  EngineOptions options() const {
    auto options = tiny_options();
    options.model = folder_.path().string();
    return options;
  }

 private:
  testing::TempDir folder_;
};

// logit(token) = head(token) · hidden, and a log-probability is its logit but for a constant.
TEST(Embedding, IsWhatTheHeadMakesLogitsOf) {
  const auto options = tiny_options();
  const auto llm = load_or_die(options);
  const auto checkpoint = io::Checkpoint::open(options.model);
  ASSERT_TRUE(checkpoint.ok());
  const auto head = (*checkpoint)->find("lm_head.weight");
  ASSERT_TRUE(head.ok());
  ASSERT_EQ(head->view.dtype, DType::kBF16);
  for (uint32_t seed = 1; seed < 4; ++seed) {
    const auto prompt = random_prompt(10 + 40 * static_cast<int>(seed), seed);
    const auto unit = embedding_of(*llm, embed(prompt));
    ASSERT_EQ(unit.size(), 64U);
    const auto product = [&](int32_t token) {
      double sum = 0;
      for (size_t i = 0; i < unit.size(); ++i) {
        BFloat16 weight;
        std::memcpy(&weight, static_cast<const std::byte*>(head->view.data) + (static_cast<size_t>(token) * 64 + i) * 2, 2);
        sum += static_cast<double>(to_float(weight)) * static_cast<double>(unit[i]);
      }
      return sum;
    };
    auto request = greedy_request(prompt, 1);
    request.sampling.logprobs = 100;
    const auto top = llm->generate({request}).front().completions.at(0).logprobs.at(0).top;
    ASSERT_EQ(top.size(), 100U);
    const double first = product(top[0].token_id);
    const double length = static_cast<double>(top[0].logprob - top[99].logprob) / (first - product(top[99].token_id));
    EXPECT_GT(length, 1);
    for (const auto& entry : top)
      EXPECT_NEAR((first - product(entry.token_id)) * length, static_cast<double>(top[0].logprob - entry.logprob), 2e-4);
  }
}

TEST(Embedding, AStreamHasNoPiecesButItsEnd) {
  const auto llm = load_or_die(tiny_options());
  auto request = embed(random_prompt(30, 1));
  request.sampling.n = 1'000'000'000;  // not used
  auto stream = llm->submit(request);
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  std::atomic<bool> ended = false;
  (*stream)->on_ready([&] {
    ended = true;
    ended.notify_all();
  });
  ended.wait(false);
  StreamEvent event;
  EXPECT_EQ((*stream)->try_next(event), StreamState::kEnd);
  EXPECT_EQ((*stream)->facts().prompt_tokens, 30);
  EXPECT_EQ((*stream)->wait().embedding, embedding_of(*llm, embed(random_prompt(30, 1))));
  const auto stats = stats_at_rest(*llm);
  EXPECT_EQ(stats.generated_tokens, 0);
  EXPECT_EQ(stats.prompt_tokens, 60);
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
}

TEST(Embedding, APromptMayTakeTheWholeContext) {
  auto options = tiny_options();
  options.max_model_len = 64;
  const auto llm = load_or_die(options);
  const auto whole = embed(random_prompt(64, 1));
  EXPECT_EQ(embedding_of(*llm, whole), embedding_of(*load_or_die(tiny_options()), whole));
  auto cut = embed(random_prompt(90, 1));
  EXPECT_THAT(llm->submit(cut).status().message(), HasSubstr("at most 64 fit"));
  cut.truncate_prompt_tokens = -1;
  EXPECT_EQ(llm->generate({cut}).front().prompt_token_ids.size(), 64U);
  EXPECT_EQ(stats_at_rest(*llm).kv_blocks_free, stats_at_rest(*llm).kv_blocks_total);
}

TEST(Embedding, WhatCannotBeIsRefused) {
  const auto llm = load_or_die(tiny_options());
  auto both = embed(random_prompt(5, 1));
  both.structured_output.kind = StructuredOutput::Kind::kJsonObject;
  EXPECT_THAT(llm->submit(both).status().message(), HasSubstr("structured_output"));
  EXPECT_THAT(llm->submit(embed({})).status().message(), HasSubstr("exactly one"));
  EXPECT_THAT(llm->submit(embed(random_prompt(600, 1))).status().message(), HasSubstr("--max-model-len"));
  MeanModel files;
  std::ofstream(files.options().model + "/1_Pooling/config.json") << R"({"pooling_mode_weightedmean_tokens": true})";
  const auto other = load_or_die(files.options());
  EXPECT_THAT(other->info().notes, ::testing::Contains(HasSubstr("no embeddings")));
  EXPECT_THAT(other->submit(embed(random_prompt(5, 1))).status().message(), HasSubstr("pooling_mode_weightedmean_tokens"));
  EXPECT_TRUE(other->generate({greedy_request(random_prompt(5, 1), 2)}).front().status.ok()) << "answers are not concerned";
}

class EmbeddingBatch : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b"}) adapters_.write(name, 4, static_cast<uint64_t>(name[0]));
    options_ = GetParam() ? mean_.options() : tiny_options();
    options_.adapter_root = adapters_.root().string();
    // Prompts that share prefixes, of the base, of adapters and of a mix, and answers among them.
    const std::vector<AdapterUse> uses[] = {{}, {{"a"}}, {{"b", 0.5F}}, {{"a"}, {"b"}}};
    for (int i = 0; i < 16; ++i) {
      auto prompt = random_prompt(70, 9);
      const auto tail = random_prompt(1 + 3 * i, static_cast<uint32_t>(i));
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      auto request = i % 2 == 1 ? greedy_request(prompt, 40) : embed(prompt);
      request.adapters = uses[i / 2 % 4];
      requests_.push_back(std::move(request));
    }
  }
  void expect_same(const std::vector<RequestOutput>& got) const {
    ASSERT_EQ(got.size(), want_.size());
    for (size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(i);
      ASSERT_TRUE(got[i].status.ok()) << got[i].status.to_string();
      if (!requests_[i].embedding) {
        expect_same_bits(want_[i], got[i]);
      } else {
        EXPECT_EQ(got[i].embedding, want_[i].embedding);
      }
    }
  }
  void compute_alone() {
    auto alone = options_;
    alone.enable_prefix_caching = false;
    const auto llm = load_or_die(alone);
    for (const auto& request : requests_) want_.push_back(llm->generate({request}).front());
    EXPECT_NE(want_[0].embedding, want_[2].embedding);
  }

  MeanModel mean_;
  AdapterFiles adapters_;
  EngineOptions options_;
  std::vector<Request> requests_;
  std::vector<RequestOutput> want_;
};

TEST_P(EmbeddingBatch, RowsAreTheSameBitsInAnyBatch) {
  compute_alone();
  const auto llm = load_or_die(options_);
  expect_same(llm->generate(requests_));
  expect_same(llm->generate(requests_));  // from the prefix cache, where it may be used
  if (!GetParam()) {
    EXPECT_GE(llm->generate({requests_[0]}).front().cached_tokens, 64);
  } else {
    EXPECT_EQ(llm->generate({requests_[0]}).front().cached_tokens, 0);
  }
}

TEST_P(EmbeddingBatch, ThroughChunksThreadsPreemptionAndBytes) {
  compute_alone();
  options_.max_model_len = 160;
  {
    const auto probe = load_or_die(options_);
    options_.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 7;
  }
  options_.max_num_batched_tokens = 17;
  options_.max_num_seqs = 6;
  for (const bool prefix_caching : {false, true}) {
    options_.enable_prefix_caching = prefix_caching;
    options_.threads = prefix_caching ? 1 : 2;
    expect_same(load_or_die(options_)->generate(requests_));
    AssembledEngine engine(options_, over_bytes);
    expect_same(engine.generate(requests_));
    EXPECT_GT(engine.stats().preemptions, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Pooled, EmbeddingBatch, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "mean" : "last"; });

}  // namespace
}  // namespace choral::engine
