// Activated adapters (aLoRA): the rows before the invocation tokens are the base's, bit for bit, and so is their KV.
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

const std::vector<int32_t> kInvocation{1001, 1002, 1003};

class AdapterActivationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto plain = files_.write("plain", 8, 3), activated = files_.write("activated", 8, 3);
    const auto file = std::filesystem::path(activated) / "adapter_config.json";
    auto config = nlohmann::json::parse(std::ifstream(file));
    config["alora_invocation_tokens"] = kInvocation;
    std::ofstream(file) << config;
    options_.adapters = {{"plain", plain}, {"activated", activated}};
  }
  // `before` random tokens, the invocation, `after` more.
  static std::vector<int32_t> prompt(int before, int after) {
    auto ids = random_prompt(before, 4);
    ids.insert(ids.end(), kInvocation.begin(), kInvocation.end());
    const auto rest = random_prompt(after, 5);
    ids.insert(ids.end(), rest.begin(), rest.end());
    return ids;
  }
  static Request ask(const std::vector<int32_t>& ids, const std::string& adapter) {
    auto request = greedy_request(ids, 12);
    if (!adapter.empty()) request.adapters = {{adapter}};
    return request;
  }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
};

TEST_F(AdapterActivationTest, WithoutInvocationTheBaseAnswers) {
  const auto llm = load_or_die(options_);
  const auto ids = random_prompt(50, 8);
  expect_same_bits(llm->generate({ask(ids, "")}).front(), llm->generate({ask(ids, "activated")}).front());
}

TEST_F(AdapterActivationTest, InvokedAtTheBeginningItIsThePlainAdapter) {
  const auto llm = load_or_die(options_);
  const auto ids = prompt(0, 30);
  expect_same_bits(llm->generate({ask(ids, "plain")}).front(), llm->generate({ask(ids, "activated")}).front());
}

TEST_F(AdapterActivationTest, RowsBeforeTheLastInvocationAreTheBases) {
  for (const int budget : {1024, 24}) {
    options_.max_num_batched_tokens = budget;
    options_.max_num_seqs = 8;
    const auto llm = load_or_die(options_);
    auto ids = prompt(10, 20);  // invoked twice: the later one counts
    const auto second = prompt(15, 30);
    ids.insert(ids.end(), second.begin(), second.end());
    const size_t begin = 10 + 3 + 20 + 15;
    auto base = ask(ids, ""), activated = ask(ids, "activated");
    base.sampling.prompt_logprobs = activated.sampling.prompt_logprobs = 3;
    const auto outputs = llm->generate({base, activated, ask(ids, "plain")});
    const auto &x = outputs[0].prompt_logprobs, &y = outputs[1].prompt_logprobs;
    ASSERT_EQ(x.size(), ids.size() - 1);
    ASSERT_EQ(y.size(), x.size());
    // Entry i speaks of token i + 1 and comes from row i.
    for (size_t i = 0; i < begin; ++i) EXPECT_EQ(x[i].chosen.logprob, y[i].chosen.logprob) << "row " << i;
    EXPECT_NE(x[begin].chosen.logprob, y[begin].chosen.logprob);
    EXPECT_NE(outputs[1].completions[0].logprobs[0].chosen.logprob, outputs[2].completions[0].logprobs[0].chosen.logprob)
        << "the plain adapter acts from the first row on";
  }
}

TEST_F(AdapterActivationTest, SharesTheBasesPrefix) {
  const auto llm = load_or_die(options_);
  const auto ids = prompt(100, 20);
  llm->generate({ask(std::vector<int32_t>(ids.begin(), ids.begin() + 100), "")});
  const auto cold = load_or_die(options_);
  const auto shared = llm->generate({ask(ids, "activated")}).front();
  EXPECT_EQ(shared.cached_tokens, 96) << "three blocks of 32 before the invocation";
  expect_same_bits(cold->generate({ask(ids, "activated")}).front(), shared);
  // And what it computed after the invocation is nobody else's.
  expect_same_bits(cold->generate({ask(ids, "")}).front(), llm->generate({ask(ids, "")}).front());
}

TEST_F(AdapterActivationTest, CannotBeMixed) {
  const auto llm = load_or_die(options_);
  auto request = ask(prompt(5, 5), "activated");
  request.adapters.push_back({"plain"});
  EXPECT_EQ(llm->generate({request}).front().status.code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace choral::engine
