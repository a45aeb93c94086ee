// Limits of time, by a clock that the test sets: which requests end, in which phase, and what they are told.
#include "engine/deadlines.h"

#include <gmock/gmock.h>

#include <atomic>
#include <limits>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DeadlinesTest : public ::testing::Test {
 protected:
  static EngineOptions options() {
    auto options = tiny_options();
    options.max_num_seqs = 1;
    return options;
  }
  static Request ask(double timeout_s, double queue_timeout_s, int tokens = 400) {
    auto request = greedy_request(random_prompt(20, 1), tokens);
    request.timeout_s = timeout_s;
    request.queue_timeout_s = queue_timeout_s;
    return request;
  }
  Clock clock() {
    return [this] { return time_.load(); };
  }
  // The step that waits for the gate ends, and the next one is planned at this time.
  void next_step_at(GatedEngine& engine, double time_s) {
    time_ = time_s;
    const int asked = engine.gate().asked();
    engine.gate().allow(1);
    engine.gate().wait_for_asked(asked + 1);
  }

  std::atomic<double> time_ = 1000;
};

TEST_F(DeadlinesTest, AnAnswerEndsWhenItsTimeIsUp) {
  GatedEngine engine(options(), clock());
  const auto late = engine.submit(ask(5, 0));
  engine.gate().wait_for_asked(1);
  next_step_at(engine, 1001);
  next_step_at(engine, 1004.9);
  EXPECT_FALSE(late.response->finished());
  time_ = 1005;
  engine.gate().allow(1);
  engine.turn();  // with nothing left to compute
  const auto output = late.response->wait();
  EXPECT_EQ(output.status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(output.status.message(),
              AllOf(HasSubstr("timeout_s is 5 s"), HasSubstr("after 5.000 s"), HasSubstr("3 of at most")));
  EXPECT_EQ(output.completions[0].token_ids.size(), 3U) << "what there is of it is kept";
  EXPECT_EQ(output.completions[0].finish_reason, FinishReason::kError);
  EXPECT_EQ(engine.stats().running, 0);
  EXPECT_EQ(engine.stats().kv_blocks_free, engine.stats().kv_blocks_total);
}

TEST_F(DeadlinesTest, WhoWaitsTooLongLeavesTheQueueAndOthersStay) {
  GatedEngine engine(options(), clock());
  const auto runs = engine.submit(ask(0, 3));
  engine.gate().wait_for_asked(1);
  const auto late = engine.submit(ask(0, 3)), stays = engine.submit(ask(0, 9)), for_ever = engine.submit(ask(0, 0));
  next_step_at(engine, 1002);
  EXPECT_FALSE(late.response->finished());
  next_step_at(engine, 1003);
  ASSERT_TRUE(late.response->finished());
  const auto output = late.response->wait();
  EXPECT_EQ(output.status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(output.status.message(), AllOf(HasSubstr("queue_timeout_s is 3 s"), HasSubstr("waited 3.000 s")));
  next_step_at(engine, 1009);
  EXPECT_TRUE(stays.response->finished());
  EXPECT_FALSE(runs.response->finished()) << "it had come to a step in time";
  EXPECT_FALSE(for_ever.response->finished());
}

TEST_F(DeadlinesTest, TheWholeAnswersLimitCountsInTheQueueToo) {
  GatedEngine engine(options(), clock());
  engine.submit(ask(0, 0));
  engine.gate().wait_for_asked(1);
  const auto late = engine.submit(ask(2, 0));
  next_step_at(engine, 1002.5);
  EXPECT_THAT(late.response->wait().status.message(), AllOf(HasSubstr("timeout_s is 2 s"), HasSubstr("never came to a step")));
}

TEST_F(DeadlinesTest, TheEnginesLimitsAreThoseOfRequestsWithoutAny) {
  auto limited = options();
  limited.request_timeout_s = 7;
  limited.queue_timeout_s = 2;
  GatedEngine engine(limited, clock());
  const auto runs = engine.submit(ask(0, 0));
  engine.gate().wait_for_asked(1);
  const auto late = engine.submit(ask(0, 0)), own = engine.submit(ask(100, 100));
  next_step_at(engine, 1002);
  EXPECT_THAT(late.response->wait().status.message(), HasSubstr("queue_timeout_s is 2 s"));
  next_step_at(engine, 1007);  // which ends the running one, and begins the third
  EXPECT_THAT(runs.response->wait().status.message(), HasSubstr("timeout_s is 7 s"));
  EXPECT_TRUE(own.response->begun());
}

// Of several completions the request has come to a step with the first.
TEST_F(DeadlinesTest, CompletionsOfARunningRequestDoNotTimeOutInTheQueue) {
  GatedEngine engine(options(), clock());
  auto request = ask(0, 3, 4);
  request.sampling.n = 3;
  const auto many = engine.submit(request);
  engine.gate().wait_for_asked(1);
  next_step_at(engine, 1100);
  engine.gate().open();
  const auto output = many.response->wait();
  EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  for (const auto& completion : output.completions) EXPECT_EQ(completion.token_ids.size(), 4U);
}

// A device that has no slot for any adapter.
class FullExecutor : public GatedExecutor {
 public:
  using GatedExecutor::GatedExecutor;
  Result<lora::Readiness> add_adapter(lora::AdapterKey, lora::PackedVoice) override { return unavailable("every slot is taken"); }
};

// Whose adapter never gets room, and nobody else is there: no step wakes the engine, so it must wake by itself. The machine's
// clock.
TEST_F(DeadlinesTest, AnIdleEngineWakesForALimit) {
  const AdapterFiles files;
  files.write("a", 4, 1);
  auto rooted = options();
  rooted.adapter_root = files.root().string();
  StepGate gate;
  gate.open();
  AssembledEngine engine(rooted, [&](EngineOptions& given, const ModelFiles& model) {
    return std::make_unique<FullExecutor>(AssembledEngine::one_worker(given, model), gate);
  });
  const auto outputs = engine.generate({with_adapters(ask(0.2, 0), {{"a"}}), with_adapters(ask(0, 0.1), {{"a"}})});
  EXPECT_THAT(outputs[0].status.message(), HasSubstr("timeout_s is 0.2 s"));
  EXPECT_THAT(outputs[1].status.message(), HasSubstr("queue_timeout_s is 0.1 s"));
  EXPECT_EQ(gate.asked(), 0);
}

TEST_F(DeadlinesTest, BadLimitsAreRefused) {
  const auto llm = load_or_die(tiny_options());
  for (const double bad : {-1.0, 1e10, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(llm->submit(ask(bad, 0)).status().message(), HasSubstr("timeout_s"));
    EXPECT_THAT(llm->submit(ask(0, bad)).status().message(), HasSubstr("queue_timeout_s"));
  }
}

}  // namespace
}  // namespace choral::engine
