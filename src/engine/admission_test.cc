// Who gets into the queue: bounds in requests and in tokens, several completions that each take a place, the best of several; and
// what the engine says of itself meanwhile.
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

EngineOptions one_at_a_time() {
  auto options = tiny_options();
  options.max_num_seqs = 1;
  return options;
}

Request ask(int prompt, int tokens = 400, int n = 1) {
  auto request = greedy_request(random_prompt(prompt, static_cast<uint32_t>(prompt)), tokens);
  request.sampling.n = n;
  return request;
}

class AdmissionTest : public ::testing::Test {
 protected:
  static Result<size_t> add(GatedEngine& engine, AdmittedRequest request) { return engine.core().add_requests({&request, 1}); }
};

TEST_F(AdmissionTest, TokensThatWaitAreBounded) {
  auto options = one_at_a_time();
  options.max_waiting_tokens = 100;
  GatedEngine engine(options);
  engine.submit(ask(300));  // alone it is never too long
  engine.gate().wait_for_asked(1);
  engine.submit(ask(60));
  engine.submit(ask(40));
  const auto refused = add(engine, engine.read(ask(1)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("tokens: 100 are waiting, this request brings 1"));
  EXPECT_THAT(refused.status().message(), HasSubstr("(--max-num-queued-tokens; in the library max_waiting_tokens)"));
  engine.gate().allow(1);
  engine.gate().wait_for_asked(2);  // those that wait are the scheduler's now
  EXPECT_FALSE(add(engine, engine.read(ask(1))).ok());
  EXPECT_EQ(engine.stats().waiting_tokens, 100);
}

// Completions share one; what is to be computed is counted without it.
TEST_F(AdmissionTest, TokensOfPredictionsWaitToo) {
  auto options = one_at_a_time();
  options.max_waiting_tokens = 100;
  options.speculative = "ngram";
  auto predicting = ask(10, 20, 2);
  predicting.prediction = "It is said, and said again, that nobody waits alone.";
  const auto count = static_cast<int64_t>(load_or_die(options)->tokenize(predicting.prediction, false)->size());
  ASSERT_GT(count, 5);
  {
    GatedEngine engine(options);
    engine.submit(ask(300));
    engine.gate().wait_for_asked(1);
    engine.submit(predicting);
    const auto room = static_cast<int>(100 - 20 - count);
    EXPECT_FALSE(add(engine, engine.read(ask(room + 1))).ok());
    engine.gate().allow(1);
    engine.gate().wait_for_asked(2);  // those that wait are the scheduler's now
    EXPECT_FALSE(add(engine, engine.read(ask(room + 1))).ok());
    EXPECT_EQ(engine.stats().waiting_tokens, 20);
    engine.submit(ask(room));
  }
  options.speculative = "off";
  GatedEngine engine(options);
  engine.submit(ask(300));
  engine.gate().wait_for_asked(1);
  engine.submit(predicting);
  engine.submit(ask(80));
}

TEST_F(AdmissionTest, ACompletionIsAPlaceInTheQueue) {
  auto options = one_at_a_time();
  options.max_waiting = 4;
  GatedEngine engine(options);
  engine.submit(ask(10));
  engine.gate().wait_for_asked(1);
  engine.submit(ask(10, 4, 3));
  EXPECT_TRUE(engine.core().check_room(1).ok());
  const Status full = engine.core().check_room(2);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("(--max-num-queued-reqs; in the library max_waiting)"));
  EXPECT_EQ(add(engine, engine.read(ask(10, 4, 2))).status().code(), Code::kResourceExhausted);
  const auto never = add(engine, engine.read(ask(10, 4, 5)));
  EXPECT_EQ(never.status().code(), Code::kTooLarge) << "trying again would not help";
  EXPECT_THAT(never.status().message(), AllOf(HasSubstr("5 completions"), HasSubstr("--max-num-queued-reqs")));
  auto best = ask(10, 4, 1);
  best.sampling.best_of = 2;
  EXPECT_EQ(add(engine, engine.read(best)).status().code(), Code::kResourceExhausted);
}

TEST_F(AdmissionTest, TogetherMeansAllOrNone) {
  auto options = one_at_a_time();
  options.max_waiting = 4;
  GatedEngine engine(options);
  engine.submit(ask(10));
  engine.gate().wait_for_asked(1);
  const auto together = [&](std::initializer_list<int> ns) {
    std::vector<AdmittedRequest> requests;
    for (const int n : ns) requests.push_back(engine.read(ask(10, 4, n)));
    return engine.core().add_together(requests);
  };
  ASSERT_TRUE(together({1, 1}).ok());
  EXPECT_EQ(together({2, 1}).code(), Code::kResourceExhausted);
  EXPECT_EQ(engine.stats().waiting, 2) << "the first of those that were refused stayed";
  EXPECT_EQ(together({3, 2}).code(), Code::kTooLarge) << "trying again would not help";
  EXPECT_TRUE(together({1, 1}).ok());
}

TEST_F(AdmissionTest, ListsAreKeptOnceHoweverManyAnswersAreMade) {
  GatedEngine engine(one_at_a_time());
  auto request = ask(10, 4, 3);
  request.sampling.allowed_token_ids = {1, 2, 3};
  request.sampling.logit_bias = {{1, 2.0F}};
  const auto admitted = engine.read(request);
  const SamplingRule &first = admitted.completions[0]->rule, &last = admitted.completions[2]->rule;
  EXPECT_THAT(first.allowed_ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(first.allowed_ids.data(), last.allowed_ids.data());
  EXPECT_EQ(first.bias.data(), last.bias.data());
  request.prompt_token_ids.clear();
  const auto each = engine.read_each(request, {std::vector<int32_t>{5}, std::vector<int32_t>{6, 7}});
  ASSERT_EQ(each.size(), 2U);
  EXPECT_EQ(each[0].completions[0]->rule.allowed_ids.data(), each[1].completions[2]->rule.allowed_ids.data());
  EXPECT_THAT(each[1].completions[2]->tokens, ElementsAre(6, 7));
}

TEST(Admission, ABodyOfManyPromptsIsTakenAsAWholeOrNotAtAll) {
  auto options = tiny_options();
  options.max_waiting = 8;
  const auto llm = load_or_die(options);
  auto request = ask(0, 4);
  request.id = "body";
  const std::vector<Prompt> prompts{random_prompt(20, 1), random_prompt(30, 2), random_prompt(10, 3)};
  auto streams = llm->submit_each(request, prompts);
  ASSERT_TRUE(streams.ok()) << streams.status().to_string();
  ASSERT_EQ(streams->size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ((*streams)[i]->id(), "body-" + std::to_string(i));
    auto alone = request;
    alone.prompt_token_ids = std::get<std::vector<int32_t>>(prompts[i]);
    expect_same_bits((*streams)[i]->wait(), llm->generate({alone}).front());
  }
  auto one = llm->submit_each(request, {prompts[0]});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->front()->id(), "body");
  one->clear();

  const auto steps = stats_at_rest(*llm).steps;
  const auto refused = [&](const Request& asked, std::vector<Prompt> given) { return llm->submit_each(asked, given).status(); };
  const Status wrong = refused(request, {prompts[0], std::vector<int32_t>{-1}});
  EXPECT_EQ(wrong.code(), Code::kInvalidArgument);
  EXPECT_THAT(wrong.message(), HasSubstr("prompt 1: prompt_token_ids holds -1"));
  const Status many = refused(request, std::vector<Prompt>(9, prompts[0]));
  EXPECT_EQ(many.code(), Code::kTooLarge);
  EXPECT_THAT(many.message(), HasSubstr("9 completions (n, best_of or beam_width, for each of its prompts)"));
  EXPECT_EQ(refused(request, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused(ask(10), {prompts[0]}).code(), Code::kInvalidArgument) << "it has a prompt already";
  EXPECT_EQ(stats_at_rest(*llm).steps, steps) << "something of a refused body was computed";
}

TEST(Admission, LogProbabilitiesOfABodyAreBoundedTogether) {
  auto options = tiny_options();
  options.max_waiting = 1024;
  const auto llm = load_or_die(options);
  auto request = ask(0, 100);
  request.sampling.logprobs = 100;
  const Status refused = llm->submit_each(request, std::vector<Prompt>(1024, random_prompt(10, 1))).status();
  EXPECT_EQ(refused.code(), Code::kTooLarge);
  EXPECT_THAT(refused.message(), HasSubstr("the prompts, 1024, ask for up to 10342400 log probabilities"));
  request.sampling.logprobs.reset();
  request.sampling.prompt_logprobs = 100;
  request.sampling.n = 128;
  request.sampling.max_tokens = 1;
  EXPECT_TRUE(llm->submit_each(request, {random_prompt(300, 1)}).ok());
  EXPECT_EQ(llm->submit_each(request, {random_prompt(400, 1)}).status().code(), Code::kTooLarge) << "128 times 40400";
}

TEST(Admission, SubmitRefusesBeforeItReads) {
  auto options = tiny_options();
  options.max_waiting = 2;
  const auto llm = load_or_die(options);
  auto unreadable = ask(10);
  unreadable.messages_json = "[";
  unreadable.sampling.n = 3;
  EXPECT_EQ(llm->submit(unreadable).status().code(), Code::kTooLarge);
  for (const int n : {0, -1, 129, 1'000'000'000}) {
    EXPECT_THAT(llm->submit(ask(10, 4, n)).status().message(), HasSubstr("n is"));
    auto best = ask(10, 4, 1);
    best.sampling.best_of = n;
    const auto refused = llm->submit(best);
    EXPECT_EQ(refused.ok(), n == 0) << n;
    EXPECT_THAT(refused.status().message(), HasSubstr(n == 0 ? "" : "best_of is"));
  }
  auto fewer = ask(10, 4, 2);
  fewer.sampling.best_of = 1;
  EXPECT_THAT(llm->submit(fewer).status().message(), HasSubstr("best_of must be at least n"));
}

TEST(Admission, TheBestAreThoseOfTheHighestMeanLogprob) {
  const auto llm = load_or_die(tiny_options());
  auto request = ask(20, 12, 6);
  request.sampling.temperature = 1.5F;
  request.sampling.seed = 3;
  request.sampling.logprobs = 1;
  auto all = llm->generate({request}).front().completions;
  std::stable_sort(all.begin(), all.end(), [](const Completion& a, const Completion& b) {
    return a.cumulative_logprob / static_cast<double>(a.token_ids.size()) >
           b.cumulative_logprob / static_cast<double>(b.token_ids.size());
  });
  EXPECT_GT(all[1].cumulative_logprob, all[5].cumulative_logprob);
  request.sampling.n = 2;
  request.sampling.best_of = 6;
  for (const bool with_logprobs : {true, false}) {
    if (!with_logprobs) request.sampling.logprobs.reset();
    const auto best = llm->generate({request}).front().completions;
    ASSERT_EQ(best.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(best[i].index, static_cast<int>(i));
      EXPECT_EQ(best[i].token_ids, all[i].token_ids);
      EXPECT_EQ(best[i].cumulative_logprob, all[i].cumulative_logprob);
      EXPECT_EQ(best[i].logprobs.size(), with_logprobs ? 12U : 0U);
    }
  }
  auto stream = llm->submit(request);
  ASSERT_TRUE(stream.ok());
  StreamEvent event;
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE((*stream)->next(event));
    EXPECT_EQ(event.index, static_cast<int>(i));
    EXPECT_EQ(event.token_ids, all[i].token_ids);
    EXPECT_EQ(event.finish_reason, FinishReason::kLength);
  }
  EXPECT_FALSE((*stream)->next(event));
}

TEST(Health, AnAnswerMeansThatTheLoopHasTurned) {
  GatedEngine engine(one_at_a_time());
  EXPECT_TRUE(engine.core().check_health(5min).ok()) << "idle";
  EXPECT_EQ(engine.stats().steps, 0) << "that took no step";
  engine.submit(ask(10));
  engine.gate().wait_for_asked(1);
  const Status hangs = engine.core().check_health(1ms);
  EXPECT_EQ(hangs.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(hangs.message(), HasSubstr("within 1 ms"));
  Status turned;
  std::thread prober([&] { turned = engine.core().check_health(5min); });
  engine.gate().open();
  prober.join();
  EXPECT_TRUE(turned.ok()) << turned.to_string();
}

TEST(Health, AnEngineThatEndsIsUnavailable) {
  GatedEngine engine(one_at_a_time());
  const auto open = engine.submit(ask(10));
  engine.gate().wait_for_asked(1);
  Status told;
  std::thread prober([&] { told = engine.core().check_health(5min); });
  std::thread ender([&] { engine.core().stop(); });
  prober.join();
  EXPECT_EQ(told.code(), Code::kUnavailable) << told.to_string();
  engine.gate().open();
  ender.join();
  EXPECT_EQ(open.response->wait().status.code(), Code::kUnavailable);
  EXPECT_EQ(engine.core().check_health(1ms).code(), Code::kUnavailable);
}

TEST(Activity, NamesTheAdaptersThatRunAndWait) {
  const AdapterFiles files;
  auto options = one_at_a_time();
  options.max_num_seqs = 2;
  options.adapter_root = files.root().string();
  for (const char* name : {"a", "b", "c"}) files.write(name, 4, static_cast<uint64_t>(name[0]));
  GatedEngine engine(options);
  EXPECT_THAT(engine.core().activity().running_adapters, IsEmpty());
  engine.submit(with_adapters(ask(20), {{"b"}, {"a"}}));
  engine.gate().wait_for_asked(1);
  for (const char* name : {"", "c", "a", "c"}) {
    engine.submit(with_adapters(ask(20), *name == '\0' ? std::vector<AdapterUse>{} : std::vector<AdapterUse>{{name}}));
  }
  const EngineActivity busy = engine.core().activity();  // while the step waits
  EXPECT_THAT(busy.running_adapters, ElementsAre("a", "b"));
  ASSERT_EQ(busy.running.size(), 1);
  EXPECT_EQ(busy.running[0].adapters.size(), 2);
  EXPECT_EQ(busy.running[0].adapters[0].name, "b");
  EXPECT_GT(busy.running[0].prompt_tokens, 0);
  EXPECT_EQ(busy.running[0].read_tokens, 0) << "its first step is being computed";
  EXPECT_EQ(busy.running[0].made_tokens, 0);
  EXPECT_THAT(busy.waiting_adapters, ElementsAre("a", "c"));
  EXPECT_EQ(busy.waiting, 4);
  EXPECT_EQ(busy.deferred, 0) << "nobody looked at them yet";
  engine.gate().allow(1);
  engine.gate().wait_for_asked(2);
  const EngineActivity later = engine.core().activity();
  EXPECT_THAT(later.running_adapters, ::testing::IsSupersetOf({"a", "b"}));
  EXPECT_EQ(later.running.at(0).read_tokens, later.running.at(0).prompt_tokens);
  EXPECT_EQ(later.running.at(0).made_tokens, 1);
  EXPECT_LE(later.deferred, later.waiting);
}

TEST(Heart, BeatsWhileAStepIsComputed) {
  std::atomic<double> time = 100;
  GatedEngine engine(one_at_a_time(), [&time] { return time.load(); });
  engine.turn();
  time = 200;
  const EngineHeartbeat idle = engine.core().heartbeat();
  EXPECT_EQ(idle.turn_age_s, 100);
  EXPECT_EQ(idle.silent_s, 0) << "there is nothing to do";
  EXPECT_EQ(idle.step_tokens, 0);
  EXPECT_TRUE(idle.is_alive());
  engine.submit(ask(10));
  engine.gate().wait_for_asked(1);
  time = 220;
  const EngineHeartbeat busy = engine.core().heartbeat();
  EXPECT_EQ(busy.silent_s, 20);
  EXPECT_GT(busy.step_tokens, 0);
  EXPECT_TRUE(busy.is_alive());
  time = 200 + busy.limit_s + 1;
  EXPECT_FALSE(engine.core().heartbeat().is_alive());
}

}  // namespace
}  // namespace choral::engine
