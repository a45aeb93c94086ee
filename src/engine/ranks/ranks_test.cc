// Ranks: what they gather, what one of them is without the others, and what an engine of several says of itself.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "engine/ranks/thread_collective.h"
#include "engine/tiny_model_test.h"
#include "platform/cpu_context_test.h"
#include "support/allocation_counter.h"

namespace choral::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// What rank r has at a place before it is gathered.
float value(int rank, int64_t row, int64_t col, int round) {
  return static_cast<float>(1000 * rank + 100 * round + 10 * row + col);
}

// Runs body(rank) on as many threads.
template <class Body>
void on_ranks(int ranks, Body body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
  for (auto& thread : threads) thread.join();
}

class Gathered {
 public:
  Gathered(int64_t rows, int64_t cols) : rows_(rows), cols_(cols), values_(static_cast<size_t>(rows * cols)) {}
  void fill(int rank, int round) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) view().row(r)[c] = value(rank, r, c, round);
    }
  }
  MatrixView<float> view() { return {values_.data(), rows_, cols_}; }

 private:
  int64_t rows_, cols_;
  std::vector<float> values_;
};

TEST(ThreadCollective, EveryRankHasTheColumnsOfAll) {
  constexpr int kRanks = 3;
  constexpr int64_t kRows = 5, kCols = 7;
  const std::vector<int64_t> begins{0, 2, 2, kCols};  // the second has none
  ThreadCollectives all(kRanks);
  all.begin_step();
  on_ranks(kRanks, [&](int rank) {
    platform::testing::CpuContext cpu(2);
    Gathered y(kRows, kCols);
    for (int round = 0; round < 50; ++round) {
      y.fill(rank, round);
      all.of(rank).gather_columns((*cpu).kernel, y.view(), begins);
      for (int64_t r = 0; r < kRows; ++r) {
        for (int64_t c = 0; c < kCols; ++c) ASSERT_EQ(y.view().row(r)[c], value(c < 2 ? 0 : 2, r, c, round));
      }
    }
  });
}

TEST(ThreadCollective, EveryRankHasTheRowsOfTheirOwners) {
  constexpr int kRanks = 2;
  ThreadCollectives all(kRanks);
  all.begin_step();
  on_ranks(kRanks, [&](int rank) {
    platform::testing::CpuContext cpu(1);
    Gathered y(4, 3);
    for (int round = 0; round < 50; ++round) {
      y.fill(rank, round);
      all.of(rank).gather_rows((*cpu).kernel, y.view(), [](int64_t row) { return static_cast<int>(row % 2); });
      for (int64_t r = 0; r < 4; ++r) ASSERT_EQ(y.view().row(r)[1], value(static_cast<int>(r % 2), r, 1, round));
    }
  });
}

// A rank that is not there any more: nobody waits, and the next step is as if nothing had been.
TEST(ThreadCollective, NobodyWaitsForARankThatGaveUp) {
  ThreadCollectives all(2);
  const std::vector<int64_t> begins{0, 1, 2};
  for (int step = 0; step < 20; ++step) {
    all.begin_step();
    on_ranks(2, [&](int rank) {
      platform::testing::CpuContext cpu(1);
      Gathered y(1, 2);
      const int gathers = rank == 1 ? step % 3 : 5;
      for (int i = 0; i < gathers; ++i) all.of(rank).gather_columns((*cpu).kernel, y.view(), begins);
      if (rank == 1) all.give_up();
    });
    all.begin_step();
    on_ranks(2, [&](int rank) {
      platform::testing::CpuContext cpu(1);
      Gathered y(1, 2);
      y.fill(rank, step);
      all.of(rank).gather_columns((*cpu).kernel, y.view(), begins);
      EXPECT_EQ(y.view().row(0)[0], value(0, 0, 0, step));
      EXPECT_EQ(y.view().row(0)[1], value(1, 0, 1, step));
    });
  }
}

EngineOptions ranks_of(int count, const std::string& model = "tiny-llama3") {
  auto options = tiny_options(model);
  options.tensor_parallel_size = count;
  return options;
}

TEST(RanksExecutor, SaysWhatAllOfThemHave) {
  const auto one = load_or_die(ranks_of(1)), two = load_or_die(ranks_of(2));
  EXPECT_EQ(two->info().parameters, one->info().parameters);
  EXPECT_EQ(two->info().digest, one->info().digest);
  EXPECT_EQ(two->info().threads, 2);
  EXPECT_EQ(two->info().kv_cache_tokens, one->info().kv_cache_tokens);
  EXPECT_EQ(two->info().kv_cache_bytes, one->info().kv_cache_bytes) << "each rank has its heads alone";
  EXPECT_LT(two->info().weight_bytes, one->info().weight_bytes * 21 / 20) << "each rank has its rows alone";
  EXPECT_THAT(two->info().notes, Contains(HasSubstr("tensor parallel: 2 ranks")));
}

TEST(RanksExecutor, MoreRanksThanThreadsHaveOneEach) {
  auto options = ranks_of(3);
  options.threads = 2;
  EXPECT_EQ(load_or_die(options)->info().threads, 3);
}

TEST(RanksExecutor, RefusesWhatItIsNot) {
  for (const int count : {0, -1, 65}) {
    EXPECT_THAT(LLM::load(ranks_of(count)).status().message(), HasSubstr("--tensor-parallel-size"));
  }
}

// A step that rank 0 cannot compute ends alone; the other rank does not wait for it.
TEST(RanksExecutor, AStepWithoutMemoryEndsAlone) {
  const auto llm = load_or_die(ranks_of(2));
  const auto small = [] { return greedy_request(random_prompt(20, 1), 8); };
  const auto want = llm->generate({small()}).front();
  auto wide = greedy_request(random_prompt(400, 3), 4);
  wide.sampling.prompt_logprobs = 1;  // a list that grows while the step computes
  for (int round = 0; round < 3; ++round) {
    choral::testing::fail_allocations_of_others(256 * sizeof(PositionLogprobs));
    const auto failed = llm->generate({wide}).front();
    choral::testing::fail_allocations_of_others(0);
    EXPECT_EQ(failed.status.code(), Code::kResourceExhausted) << failed.status.to_string();
    expect_same_bits(llm->generate({small()}).front(), want);
  }
  EXPECT_TRUE(llm->generate({wide}).front().status.ok());
}

}  // namespace
}  // namespace choral::engine
