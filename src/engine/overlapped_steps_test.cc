// What a step gave its readers get while a device works on the next one: when, in which order, and that whatever happens in
// between finds all that came before. Answers are those of an engine that hands out at once.
#include <atomic>
#include <thread>

#include "engine/allocation_test.h"
#include "engine/gated_executor_test.h"
#include "support/allocation_counter.h"

namespace choral::engine {
namespace {

constexpr bool kDevice = true;

// A step as far as the gate sees it begins, has its moment for other work, and is computed.
class OverlappedStepsTest : public ::testing::Test {
 protected:
  static Request ask(int tokens) {
    auto request = greedy_request(random_prompt(20, 1), tokens);
    request.sampling.logprobs.reset();  // so that its text may wait
    return request;
  }
  static Completion answer(int tokens) { return load_or_die(tiny_options())->generate({ask(tokens)}).front().completions.at(0); }
  // The engine stands at the beginning of this step, counted from 1.
  static void stand_before(GatedEngine& engine, int step) {
    const int asks = 2 * (step - 1);
    engine.gate().allow(asks - allowed(engine));
    engine.gate().wait_for_asked(asks + 1);
  }
  static void stand_amidst(GatedEngine& engine, int step) {
    const int asks = 2 * step - 1;
    engine.gate().allow(asks - allowed(engine));
    engine.gate().wait_for_asked(asks + 1);
  }
  static std::vector<int32_t> first(const Completion& whole, int count) {
    return {whole.token_ids.begin(), whole.token_ids.begin() + count};
  }

 private:
  // The gate has let through all asks but the last.
  static int allowed(GatedEngine& engine) { return std::max(0, engine.gate().asked() - 1); }
};

TEST_F(OverlappedStepsTest, PiecesComeWhileTheNextStepRuns) {
  const Completion whole = answer(4);
  GatedEngine engine(tiny_options(), now_s, kDevice);
  std::atomic<int> calls = 0;
  const auto asked = engine.submit(ask(4));
  asked.response->on_ready([&] { ++calls; });
  StreamEvent event;
  for (int step = 2; step <= 4; ++step) {
    stand_before(engine, step);
    EXPECT_EQ(asked.response->try_next(event), StreamState::kPending) << "the device has nothing to do yet";
    EXPECT_EQ(calls, step - 2);
    stand_amidst(engine, step);
    EXPECT_EQ(calls, step - 1);
    ASSERT_EQ(asked.response->try_next(event), StreamState::kEvent);
    EXPECT_EQ(event.token_ids, std::vector<int32_t>{whole.token_ids[step - 2]});
    EXPECT_EQ(asked.response->try_next(event), StreamState::kPending);
  }
  engine.gate().open();
  engine.turn();
  EXPECT_EQ(calls, 4) << "no step follows the last one";
  const auto output = asked.response->wait();
  EXPECT_EQ(output.completions[0].token_ids, whole.token_ids);
  EXPECT_EQ(output.completions[0].text, whole.text);
}

TEST_F(OverlappedStepsTest, WhoIsCancelledKeepsWhatWaited) {
  const Completion whole = answer(20);
  GatedEngine engine(tiny_options(), now_s, kDevice);
  const auto leaver = engine.submit(ask(20));
  const auto stays = engine.submit(ask(20));
  stand_amidst(engine, 3);
  engine.cancel(leaver);
  stand_before(engine, 4);
  EXPECT_TRUE(leaver.response->finished());
  const auto left = leaver.response->wait().completions[0];
  EXPECT_EQ(left.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(left.token_ids.size(), 3U);
  EXPECT_EQ(left.token_ids, first(whole, 3));
  EXPECT_EQ(whole.text.substr(0, left.text.size()), left.text);
  engine.gate().open();
  EXPECT_EQ(stays.response->wait().completions[0].token_ids, whole.token_ids);
}

TEST_F(OverlappedStepsTest, WhoIsLateKeepsWhatWaited) {
  std::atomic<double> time = 1000;
  GatedEngine engine(
      tiny_options(), [&] { return time.load(); }, kDevice);
  auto hurried = ask(20);
  hurried.timeout_s = 5;
  const auto late = engine.submit(hurried);
  stand_amidst(engine, 3);
  time = 1006;
  engine.gate().open();
  const auto output = late.response->wait();
  EXPECT_EQ(output.status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(output.completions[0].token_ids.size(), 3U);
}

TEST_F(OverlappedStepsTest, AShutdownHandsOutWhatWaits) {
  GatedEngine engine(tiny_options(), now_s, kDevice);
  const auto asked = engine.submit(ask(20));
  stand_amidst(engine, 3);
  std::thread stopping([&] { engine.core().stop(); });
  while (engine.core().add_requests({}).ok()) std::this_thread::yield();
  engine.gate().open();
  stopping.join();
  const auto output = asked.response->wait();
  EXPECT_EQ(output.status.code(), Code::kUnavailable);
  EXPECT_EQ(output.completions[0].token_ids.size(), 3U);
}

// A device that has work of the engine's done before each step, or finds no time for it, and of whose steps one may fail.
class DeviceExecutor : public Executor {
 public:
  struct Form {
    bool has_time = true;
    int fails_at = 0;                       // the step that is lost, from 1; 0: none
    int32_t always_token = 0;               // > 0: what every row gives
    std::function<void(int)> at_step = {};  // when this one begins, from 1
  };
  DeviceExecutor(std::unique_ptr<Executor> far, Form form) : far_(std::move(far)), form_(form) {}

  const ExecutorFacts& facts() const override { return far_->facts(); }
  Result<lora::Readiness> add_adapter(lora::AdapterKey key, lora::PackedVoice voice) override {
    return far_->add_adapter(key, std::move(voice));
  }
  void remove_adapter(lora::AdapterKey key) override { far_->remove_adapter(key); }
  void take_adapters() override { far_->take_adapters(); }
  void set_wake(std::function<void()> wake) override { far_->set_wake(std::move(wake)); }
  std::vector<std::string> take_device_notes() override { return far_->take_device_notes(); }
  Status add_request(const NewRequest& request) override { return far_->add_request(request); }
  bool on_wait(std::function<void()> work) override {
    other_work_ = std::move(work);
    return true;
  }
  Status execute_model(const StepInput& input, StepOutput& out) override {
    out.clear();  // as any worker may, before it waits
    ++steps_;
    if (form_.at_step) form_.at_step(steps_);
    if (form_.has_time) {
      other_work_();
      other_work_();
    }
    const Status computed = far_->execute_model(input, out);
    if (form_.always_token > 0) {
      for (auto& token : out.tokens) token.token = form_.always_token;
    }
    return steps_ == form_.fails_at ? unavailable("the device is gone for a moment") : computed;
  }

 private:
  std::unique_ptr<Executor> far_;
  const Form form_;
  std::function<void()> other_work_;
  int steps_ = 0;
};

AssembledEngine on_device(DeviceExecutor::Form form, const EngineOptions& options = tiny_options()) {
  return {options, [form](EngineOptions& given, const ModelFiles& files) {
            return std::make_unique<DeviceExecutor>(AssembledEngine::one_worker(given, files), form);
          }};
}

// Those whose text waits, and those whose does not, ended in every way.
std::vector<Request> requests_of_every_ending() {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(greedy_request(random_prompt(20 + static_cast<int>(i) * 3, i), 12 + static_cast<int>(i)));
    if (i % 2 == 0) requests.back().sampling.logprobs.reset();
  }
  requests[2].sampling.temperature = 0.9F;
  requests[2].sampling.seed = 5;
  requests[2].sampling.n = 3;
  requests[3].sampling.stop = {"e", "a"};
  requests[4].sampling.stop = {"e", "a"};
  requests[4].sampling.min_tokens = 5;
  requests[5].sampling.allowed_token_ids = {40, 41, 42, 43};
  requests[5].sampling.stop_token_ids = {40, 41, 42};
  requests[5].sampling.min_tokens = 4;
  requests[6] = requests[5];
  requests[6].sampling.logprobs.reset();
  requests[6].sampling.include_stop_str_in_output = true;
  requests[7].sampling.logprobs.reset();
  requests[7].sampling.stop_token_ids = {41};
  requests[7].sampling.allowed_token_ids = {40, 41};
  return requests;
}

void expect_same_completions(const std::vector<RequestOutput>& got, const std::vector<RequestOutput>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(got[i].status.ok()) << got[i].status.to_string();
    ASSERT_EQ(got[i].completions.size(), want[i].completions.size());
    for (size_t c = 0; c < got[i].completions.size(); ++c) {
      const auto &a = got[i].completions[c], &b = want[i].completions[c];
      EXPECT_EQ(a.token_ids, b.token_ids);
      EXPECT_EQ(a.text, b.text);
      EXPECT_EQ(a.finish_reason, b.finish_reason);
      EXPECT_EQ(a.stop_reason, b.stop_reason);
      EXPECT_EQ(a.cumulative_logprob, b.cumulative_logprob);
      ASSERT_EQ(a.logprobs.size(), b.logprobs.size());
      for (size_t t = 0; t < a.logprobs.size(); ++t) {
        EXPECT_EQ(a.logprobs[t].chosen.logprob, b.logprobs[t].chosen.logprob);
        EXPECT_EQ(a.logprobs[t].top.size(), b.logprobs[t].top.size());
      }
    }
  }
}

TEST(OverlappedSteps, AnswersAreTheSame) {
  const auto plain = load_or_die(tiny_options());
  const auto want = plain->generate(requests_of_every_ending());
  const auto& with_logprobs = want[1].completions[0];
  EXPECT_EQ(with_logprobs.logprobs.size(), with_logprobs.token_ids.size());
  EXPECT_EQ(want[3].completions[0].finish_reason, FinishReason::kStop);
  for (const bool has_time : {true, false}) {
    auto engine = on_device({.has_time = has_time});
    expect_same_completions(engine.generate(requests_of_every_ending()), want);
    ASSERT_TRUE(engine.core().check_health(std::chrono::minutes(1)).ok());
    EXPECT_EQ(engine.stats().generated_tokens, stats_at_rest(*plain).generated_tokens);
    EXPECT_EQ(engine.stats().kv_blocks_free, engine.stats().kv_blocks_total);
  }
}

TEST(OverlappedSteps, AFailedStepTakesNothingThatCameBefore) {
  const auto want = load_or_die(tiny_options())->generate(requests_of_every_ending());
  for (const bool has_time : {true, false}) {
    auto engine = on_device({.has_time = has_time, .fails_at = 4});
    const auto got = engine.generate(requests_of_every_ending());
    for (const size_t i : {0, 1}) {
      EXPECT_EQ(got[i].status.code(), Code::kUnavailable);
      ASSERT_EQ(got[i].completions[0].token_ids.size(), 3U);
      EXPECT_TRUE(std::equal(got[i].completions[0].token_ids.begin(), got[i].completions[0].token_ids.end(),
                             want[i].completions[0].token_ids.begin()));
    }
    expect_same_completions(engine.generate(requests_of_every_ending()), want);
  }
}

TEST(OverlappedSteps, PiecesComeAfterAStepThatHadNoTime) {
  std::shared_ptr<Response> response;
  std::vector<size_t> seen;  // tokens, by the time that a step begins
  size_t tokens = 0;
  auto engine = on_device({.has_time = false, .at_step = [&](int) {
                             for (StreamEvent event; response->try_next(event) == StreamState::kEvent;)
                               tokens += event.token_ids.size();
                             seen.push_back(tokens);
                           }});
  auto request = greedy_request(random_prompt(20, 1), 5);
  request.sampling.logprobs.reset();
  auto admitted = engine.read(std::move(request));
  response = admitted.response;
  ASSERT_TRUE(engine.core().add_requests({&admitted, 1}).ok());
  response->wait();
  EXPECT_EQ(seen, (std::vector<size_t>{0, 0, 1, 2, 3}));
}

TEST(OverlappedSteps, AllocateNothing) {
  auto engine = on_device({});
  std::vector<AdmittedRequest> admitted;
  for (uint32_t i = 0; i < 8; ++i) {
    auto request = greedy_request(random_prompt(10 + static_cast<int>(i), i), 400);
    request.sampling.logprobs.reset();
    if (i % 2 == 0) request.sampling.stop = {"never in a text"};
    admitted.push_back(engine.read(std::move(request)));
  }
  ASSERT_TRUE(engine.core().add_requests(admitted).ok());
  expect_no_allocations(engine, 8);
}

// The answer outgrows the room reserved for it while a step that computes its next token is under way.
TEST(OverlappedSteps, AnAnswerThatCannotBeKeptEndsAlone) {
  const auto llm = load_or_die(tiny_options());
  int32_t longest = 0;
  for (int32_t id = 300; id < llm->info().vocab_size; ++id) {
    if (llm->token_text(id).size() > llm->token_text(longest).size()) longest = id;
  }
  ASSERT_GT(llm->token_text(longest).size(), kTextBytesPerToken + 1);
  auto engine = on_device({.always_token = longest});
  const auto ask = [&](int tokens) {
    auto request = greedy_request(random_prompt(20, 1), tokens);
    request.sampling.logprobs.reset();
    return request;
  };
  const auto want = engine.generate({ask(8), ask(200), ask(8)});  // scratch has grown to what it needs
  ASSERT_TRUE(want[1].status.ok()) << want[1].status.to_string();
  choral::testing::fail_allocations_of_others(300 * kTextBytesPerToken);
  const auto outputs = engine.generate({ask(8), ask(200), ask(8)});
  choral::testing::fail_allocations_of_others(0);
  EXPECT_EQ(outputs[1].status.code(), Code::kResourceExhausted) << outputs[1].status.to_string();
  EXPECT_NE(outputs[1].status.message().find("the answer cannot be kept"), std::string::npos) << outputs[1].status.message();
  EXPECT_GT(outputs[1].completions[0].token_ids.size(), 8U) << "it had room to begin with";
  for (const size_t i : {0, 2}) EXPECT_EQ(outputs[i].completions[0].text, want[i].completions[0].text);
  EXPECT_EQ(engine.generate({ask(200)}).front().completions[0].text, want[1].completions[0].text);
  ASSERT_TRUE(engine.core().check_health(std::chrono::minutes(1)).ok());
  EXPECT_EQ(engine.stats().kv_blocks_free, engine.stats().kv_blocks_total);
}

}  // namespace
}  // namespace choral::engine
