// Masks that nothing bounds, with matchers that a test holds in its hand and costs that it makes up: rows sit out and others go
// on, answers are the same as with masks of the engine's thread, and what costs too much ends alone.
#include "engine/mask_threads.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <list>
#include <mutex>

#include "engine/allocation_test.h"
#include "engine/bytes_executor_test.h"
#include "engine/language_grammar_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

constexpr int kHeldPlace = 2;

// Holds the matchers that get to a place, until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++held_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --held_;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void until_held(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int held_ = 0;
  bool open_ = false;
};

class MaskThreadsTest : public ::testing::Test {
 protected:
  void TearDown() override {
    gate_.open();
    engine_.reset();  // the threads are back
    before_accept = nullptr;
  }
  AssembledEngine& engine(MaskLimits limits = {}, const EngineOptions& options = tiny_options(),
                          const AssembledEngine::MakeExecutor& make_executor = AssembledEngine::one_worker) {
    engine_.emplace(options, make_executor, now_s, make_languages, limits);
    return *engine_;
  }
  void hold_at_place() {
    before_accept = [this](int place) {
      if (place == kHeldPlace) gate_.pass();
    };
  }
  // Costs are what the test says, the same for all threads.
  MaskLimits by_own_clock() {
    MaskLimits limits;
    limits.clock = [this](pthread_t) { return computed_s_.load(); };
    return limits;
  }
  std::shared_ptr<Response> submit(Request request) {
    auto admitted = engine_->read(std::move(request));
    auto response = admitted.response;
    const auto taken = engine_->core().add_requests({&admitted, 1});
    EXPECT_TRUE(taken.ok()) << taken.status().to_string();
    return response;
  }

  Gate gate_;
  std::atomic<double> computed_s_ = 0;
  std::optional<AssembledEngine> engine_;
};

Request unbounded(const std::string& language, uint32_t seed, int max_tokens = 40) {
  return speaking(language, seed, max_tokens, false);
}

TEST_F(MaskThreadsTest, ARowSitsOutWhileItsMaskIsMissingAndOthersGoOn) {
  const auto want = engine().generate({speaking("9 9", 1)}).front();
  engine_.reset();
  hold_at_place();
  engine();
  const auto held = submit(unbounded("9 9", 1));
  gate_.until_held(1);
  const auto neighbours = engine_->generate({speaking("", 3), speaking("5 30", 4)});
  for (const auto& output : neighbours) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  EXPECT_GE(neighbours[0].completions[0].token_ids.size(), 40U);
  gate_.open();
  expect_same_bits(held->wait(), want);
}

TEST_F(MaskThreadsTest, AnswersAreTheSameBitsAsWithMasksOfTheEnginesThread) {
  auto options = tiny_options();
  options.max_model_len = 96;
  const auto requests = [](bool is_bounded) {
    std::vector<Request> all;
    for (uint32_t i = 0; i < 10; ++i) all.push_back(speaking(i % 3 == 0 ? "" : i % 3 == 1 ? "25 30" : "3 30", i, 30, is_bounded));
    all.push_back(speaking("8 8", 1, 8, is_bounded));
    all.push_back(speaking("20 20", 1, 8, is_bounded));
    return all;
  };
  const auto want = engine({}, options).generate(requests(true));
  const auto roomy = engine({}, options).generate(requests(false));
  {
    const auto probe = load_or_die(options);
    options.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 6;
  }
  options.max_num_batched_tokens = 40;
  options.max_num_seqs = 8;
  // No step waits at all: rows sit out whenever a thread is slower than the loop.
  const auto tight = engine({.step_wait_s = 0, .allowance_s = 0}, options, over_bytes).generate(requests(false));
  EXPECT_GT(engine_->stats().preemptions, 0);
  for (size_t i = 0; i < want.size(); ++i) {
    expect_same_bits(roomy[i], want[i]);
    expect_same_bits(tight[i], want[i]);
    EXPECT_EQ(tight[i].completions[0].finish_reason, want[i].completions[0].finish_reason);
  }
}

TEST_F(MaskThreadsTest, FailuresAreTheirRequestsAlone) {
  const auto outputs = engine().generate({unbounded("9 9", 3), unbounded("9 9 4", 5), unbounded("9 9 -1 3", 7)});
  EXPECT_TRUE(outputs[0].status.ok());
  EXPECT_EQ(outputs[1].status.code(), Code::kInternal);
  EXPECT_THAT(outputs[1].status.message(), HasSubstr("grammar does not allow"));
  EXPECT_EQ(outputs[2].status.code(), Code::kUnsupported);
  EXPECT_EQ(outputs[2].completions[0].token_ids.size(), 3U);
}

TEST_F(MaskThreadsTest, AnAnswerOverItsBudgetEndsAlone) {
  before_accept = [this](int) { computed_s_ = computed_s_ + 0.6; };
  engine(by_own_clock());
  const auto dear = submit(unbounded("30 30", 1));
  const auto plain = submit(speaking("5 30", 4));
  const auto ended = dear->wait();
  EXPECT_EQ(ended.status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(ended.status.message(), HasSubstr("took 2.4 s of computing in the 4 tokens so far"));
  EXPECT_TRUE(plain->wait().status.ok());
}

TEST_F(MaskThreadsTest, WhatIsCheapGoesOnForEver) {
  before_accept = [this](int) { computed_s_ = computed_s_ + 0.0009; };
  auto limits = by_own_clock();
  limits.most_answer_s = 0.01;
  const auto output = engine(limits).generate({unbounded("200 200", 1, 200)}).front();
  EXPECT_TRUE(output.status.ok()) << output.status.to_string();
}

TEST_F(MaskThreadsTest, AMaskThatDoesNotComeEndsItsAnswerAndHoldsAThread) {
  hold_at_place();
  auto limits = by_own_clock();
  limits.threads = 1;
  limits.most_stuck = 2;
  engine(limits);
  const auto first = submit(unbounded("9 9", 1));
  gate_.until_held(1);
  computed_s_ = 5;
  EXPECT_EQ(first->wait().status.code(), Code::kDeadlineExceeded);
  // Another thread has taken its place.
  const auto short_one = engine_->generate({unbounded("2 2", 2)}).front();
  EXPECT_TRUE(short_one.status.ok()) << short_one.status.to_string();
  const auto second = submit(unbounded("9 9", 3));
  gate_.until_held(2);
  computed_s_ = 10;
  EXPECT_EQ(second->wait().status.code(), Code::kDeadlineExceeded);
  // So many and no more: others are refused, those without a grammar, or with one that is bounded, are not.
  const auto refused = engine_->generate({unbounded("2 2", 4)}).front();
  EXPECT_EQ(refused.status.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status.message(), HasSubstr("held by grammars of other answers"));
  EXPECT_TRUE(engine_->generate({speaking("", 5)}).front().status.ok());
  EXPECT_TRUE(engine_->generate({speaking("5 9", 6)}).front().status.ok());
  gate_.open();
  RequestOutput again;
  do {
    again = engine_->generate({unbounded("2 2", 7)}).front();
  } while (again.status.code() == Code::kResourceExhausted);  // until the threads are back
  EXPECT_TRUE(again.status.ok()) << again.status.to_string();
}

TEST_F(MaskThreadsTest, ACancelledAnswerLeavesItsThreadToOthers) {
  hold_at_place();
  MaskLimits limits;
  limits.threads = 1;
  engine(limits);
  auto admitted = engine_->read(unbounded("9 9", 1));
  const auto response = admitted.response;
  std::list<sched::RequestId> ids{admitted.completions.front()->id};
  ASSERT_TRUE(engine_->core().add_requests({&admitted, 1}).ok());
  gate_.until_held(1);
  engine_->core().cancel(ids);
  EXPECT_EQ(response->wait().completions[0].finish_reason, FinishReason::kCancelled);
  gate_.open();
  EXPECT_TRUE(engine_->generate({unbounded("9 9", 2)}).front().status.ok());
}

TEST_F(MaskThreadsTest, SteadyStateAllocatesNothing) {
  engine();
  std::vector<AdmittedRequest> admitted;
  std::vector<std::shared_ptr<Response>> responses;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = unbounded(i % 2 == 0 ? "400 450" : "", i, 400);
    request.sampling.logprobs.reset();
    request.sampling.ignore_eos = true;
    admitted.push_back(engine_->read(std::move(request)));
    responses.push_back(admitted.back().response);
  }
  ASSERT_TRUE(engine_->core().add_requests(admitted).ok());
  expect_no_allocations(*engine_, 8);
}

}  // namespace
}  // namespace choral::engine
