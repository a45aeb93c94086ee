// Invariant 8: a steady-state decode step, from scheduling to the text in the caller's response, allocates nothing.
#include "engine/adapters/adapter_files_test.h"
#include "engine/allocation_test.h"
#include "engine/beam_search/beam_oracle_test.h"
#include "engine/guessing_engine_test.h"
#include "engine/speculation/draft_engine_test.h"
#include "engine/tiny_model_test.h"
#include "support/tiny_models.h"

namespace choral::engine {
namespace {

class SteadyStateTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SteadyStateTest, DecodeStepsAllocateNothing) {
  const auto llm = load_or_die(tiny_options(GetParam()));
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 400);
    request.sampling.logprobs.reset();
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.8f;
    request.sampling.top_p = 0.9f;
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
  }
  expect_no_allocations(*llm, 8);
}

TEST(SteadyState, GuessedTokensAllocateNothing) {
  auto engine = guessing_engine(tiny_options());
  std::vector<AdmittedRequest> admitted;
  for (uint32_t i = 0; i < 4; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 480);
    request.sampling.logprobs.reset();
    request.sampling.temperature = 5;
    request.sampling.allowed_token_ids = {5, 6, 7};  // nearly as dice: some are guessed right, and not many
    request.sampling.seed = i;
    admitted.push_back(engine.read(std::move(request)));
  }
  ASSERT_TRUE(engine.core().add_requests(admitted).ok());
  expect_no_allocations(engine, 4);
  EXPECT_GT(engine.stats().speculation.right, 0);
}

// They go on from one another in every step, and compute again what they do not have in common.
TEST(SteadyState, BeamsAllocateNothing) {
  const auto llm = load_or_die(tiny_options());
  const auto stream = llm->submit(beam_request(random_prompt(10, 0), 8, 400));
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  expect_no_allocations(*llm, 8);
}

// It reads and guesses all the time: of two tokens that are as likely it takes one.
TEST(SteadyState, ADraftModelAllocatesNothing) {
  auto options = tiny_options();
  options.max_num_seqs = 4;
  auto engine = drafting_engine(options);
  std::vector<AdmittedRequest> admitted;
  for (uint32_t i = 0; i < 4; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 480);
    request.sampling.logprobs.reset();
    request.sampling.temperature = 100;
    request.sampling.top_k = 2;
    request.sampling.seed = i;
    admitted.push_back(engine.read(std::move(request)));
  }
  ASSERT_TRUE(engine.core().add_requests(admitted).ok());
  expect_no_allocations(engine, 4);
  EXPECT_GT(engine.stats().speculation.draft_right, 50);
}

// Which meet in every layer, with adapters and without.
TEST(SteadyState, RanksAllocateNothing) {
  const AdapterFiles files("tiny-llama3");
  EngineOptions options = tiny_options();
  options.tensor_parallel_size = 2;
  options.adapters = {{"a", files.write("a", 4, 1)}};
  const auto llm = load_or_die(options);
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 400);
    request.sampling.logprobs.reset();
    if (i % 2 != 0) request = with_adapters(std::move(request), {{"a"}});
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
  }
  expect_no_allocations(*llm, 8);
}

// Of a mixture: each adapter's rows meet the experts of their own choice.
TEST(SteadyState, ExpertsOfAdaptersAllocateNothing) {
  const AdapterFiles files("tiny-qwen3moe");
  EngineOptions options = tiny_options("tiny-qwen3moe");
  const std::vector<std::string> names{"a", "b", "c"};
  for (size_t i = 0; i < names.size(); ++i) options.adapters.push_back({names[i], files.write(names[i], 4, i + 1)});
  const auto llm = load_or_die(options);
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 400);
    request.sampling.logprobs.reset();
    if (i % 4 != 0) request = with_adapters(std::move(request), {{names[i % 4 - 1]}});
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
  }
  expect_no_allocations(*llm, 8);
}

INSTANTIATE_TEST_SUITE_P(Families, SteadyStateTest, ::testing::ValuesIn(testing::tiny_models()),
                         [](const auto& tested) { return testing::family_of(tested.param); });

}  // namespace
}  // namespace choral::engine
