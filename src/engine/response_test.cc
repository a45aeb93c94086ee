// What a reader of an answer sees, whichever way it reads: pieces once and in order, a call for each time that there is news
// after it had found none, and no call once it has let go.
#include "engine/response.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/status.h"
#include "base/system_files.h"

namespace choral::engine {
namespace {

using ::testing::ElementsAre;
using namespace std::chrono_literals;

constexpr auto kGenerous = 60s;

Response response_of(int completions, int best = 0) {
  return {"id", {1, 2, 3}, {.completions = completions, .best = best, .expected_tokens = 16}};
}

TEST(Response, TryNextGivesPiecesThenNothingThenTheEnd) {
  auto response = response_of(1);
  StreamEvent event;
  EXPECT_EQ(response.try_next(event), StreamState::kPending);
  response.add_token(0, 7, -0.5F, "a");
  response.add_token(0, 8, -0.5F, "b");
  EXPECT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_EQ(event.text, "ab");
  EXPECT_THAT(event.token_ids, ElementsAre(7, 8));
  EXPECT_EQ(event.finish_reason, FinishReason::kNone);
  EXPECT_EQ(response.try_next(event), StreamState::kPending);
  EXPECT_EQ(event.text, "ab") << "written with an event only";
  response.finish(0, FinishReason::kStop, "the end", {});
  EXPECT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_EQ(event.text, "");
  EXPECT_EQ(event.finish_reason, FinishReason::kStop);
  EXPECT_EQ(event.stop_reason, "the end");
  EXPECT_EQ(response.try_next(event), StreamState::kEnd);
  EXPECT_FALSE(response.next(event));
  EXPECT_EQ(response.wait().completions[0].text, "ab");
  EXPECT_EQ(response.try_next(event), StreamState::kEnd) << "all of it was taken away";
}

TEST(Response, NextForWaitsNoLongerThanItsLimit) {
  auto response = response_of(1);
  StreamEvent event;
  EXPECT_EQ(response.next_for(event, 1ms), StreamState::kPending);
  EXPECT_EQ(response.next_for(event, -1ms), StreamState::kPending);
  std::thread engine([&] {
    response.add_token(0, 7, 0, "a");
    response.wake();
  });
  EXPECT_EQ(response.next_for(event, std::chrono::milliseconds::max()), StreamState::kEvent);
  engine.join();
  response.fail(0, cancelled("no more"));
  EXPECT_EQ(response.next_for(event, kGenerous), StreamState::kEvent);
  EXPECT_EQ(event.finish_reason, FinishReason::kError);
  EXPECT_EQ(response.next_for(event, kGenerous), StreamState::kEnd);
  EXPECT_EQ(response.wait().status.code(), Code::kCancelled);
  EXPECT_EQ(response.status().code(), Code::kCancelled) << "after the answer was taken too";
}

TEST(Response, CallsBackOnceForEachTimeThatTheReaderFoundNothing) {
  auto response = response_of(1);
  int calls = 0;
  response.on_ready([&] { ++calls; });
  EXPECT_EQ(calls, 0);
  response.wake();
  EXPECT_EQ(calls, 0) << "nothing is new";
  response.add_token(0, 1, 0, "a");
  EXPECT_EQ(calls, 0) << "not before the step is done with it";
  response.wake();
  EXPECT_EQ(calls, 1);
  response.add_token(0, 2, 0, "b");
  response.wake();
  EXPECT_EQ(calls, 1) << "the reader has not looked yet";
  StreamEvent event;
  EXPECT_EQ(response.try_next(event), StreamState::kEvent);
  response.add_token(0, 3, 0, "c");
  response.wake();
  EXPECT_EQ(calls, 1) << "it has not read to the end yet";
  EXPECT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_EQ(response.try_next(event), StreamState::kPending);
  response.finish(0, FinishReason::kLength, "", {});
  response.wake();
  EXPECT_EQ(calls, 2);
  response.wake();
  EXPECT_EQ(calls, 2);
}

TEST(Response, TellsOfWhatIsThereAlready) {
  auto response = response_of(1);
  response.add_token(0, 1, 0, "a");
  int calls = 0;
  response.on_ready([&] { ++calls; });
  EXPECT_EQ(calls, 1);
  StreamEvent event;
  EXPECT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_EQ(response.try_next(event), StreamState::kPending);
  response.on_ready([&] { calls += 10; });
  EXPECT_EQ(calls, 1);
  response.fail(0, internal_error("x"));
  response.wake();
  EXPECT_EQ(calls, 11) << "the callback before is forgotten";
  response.on_ready([&] { calls += 100; });
  EXPECT_EQ(calls, 111) << "the end is news too";
  response.on_ready({});
}

TEST(Response, TheReaderMayReadFromTheCallback) {
  auto response = response_of(1);
  std::vector<int32_t> read;
  response.on_ready([&] {
    for (StreamEvent event; response.try_next(event) == StreamState::kEvent;)
      read.insert(read.end(), event.token_ids.begin(), event.token_ids.end());
  });
  for (int32_t id = 0; id < 5; ++id) {
    response.add_token(0, id, 0, "x");
    response.wake();
  }
  EXPECT_THAT(read, ElementsAre(0, 1, 2, 3, 4));
}

TEST(Response, GivesTheBestAtTheEndOnly) {
  auto response = response_of(3, 2);
  int calls = 0;
  response.on_ready([&] { ++calls; });
  StreamEvent event;
  const auto add = [&](int index, std::initializer_list<float> logprobs) {
    for (const float logprob : logprobs) response.add_token(index, 10 + index, logprob, std::to_string(index));
  };
  add(0, {-2, -2});
  add(1, {-1, -1, -1});  // the least sum, the greatest mean
  add(2, {-1.5F});
  response.finish(1, FinishReason::kLength, "", {});
  response.finish(0, FinishReason::kLength, "", {});
  response.wake();
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(response.try_next(event), StreamState::kPending);
  response.finish(2, FinishReason::kStop, "x", {});
  response.wake();
  EXPECT_EQ(calls, 1);
  ASSERT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_EQ(event.index, 0);
  EXPECT_EQ(event.text, "111");
  ASSERT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_EQ(event.index, 1);
  EXPECT_EQ(event.text, "2");
  EXPECT_EQ(event.stop_reason, "x");
  EXPECT_EQ(response.try_next(event), StreamState::kEnd);
  const auto output = response.wait();
  ASSERT_EQ(output.completions.size(), 2U);
  EXPECT_EQ(output.completions[0].index, 0);
  EXPECT_EQ(output.completions[0].cumulative_logprob, -3);
  EXPECT_EQ(output.completions[1].token_ids, std::vector<int32_t>{12});
}

TEST(Response, WhatFailedIsNoneOfTheBest) {
  auto response = response_of(3, 1);
  response.add_token(0, 1, -0.1F, "a");
  response.fail(0, internal_error("broken"));
  response.finish(1, FinishReason::kStop, "", {});  // without a token
  response.add_token(2, 2, -9, "c");
  response.finish(2, FinishReason::kLength, "", {});
  const auto output = response.wait();
  EXPECT_EQ(output.completions.at(0).text, "c");
  EXPECT_EQ(output.status.code(), Code::kInternal);
}

TEST(Response, FactsAreThoseOfTheFirstStep) {
  auto response = response_of(2);
  EXPECT_EQ(response.facts().prompt_tokens, 3);
  EXPECT_FALSE(response.begun());
  response.begin(2, {{.name = "a", .generation = 4, .digest = "d"}});
  response.begin(3, {});
  EXPECT_TRUE(response.begun());
  EXPECT_EQ(response.facts().cached_tokens, 2);
  EXPECT_EQ(response.facts().adapters.at(0).generation, 4);
  for (const int index : {0, 1}) response.finish(index, FinishReason::kStop, "", {});
  const auto output = response.wait();
  EXPECT_EQ(output.cached_tokens, 2);
  EXPECT_EQ(output.adapters.at(0).name, "a");
}

TEST(Response, FactsCountWhatIsMadeWhetherItIsGivenOrRead) {
  Response response("r", {1, 2, 3}, {.completions = 3, .best = 1});
  EXPECT_FALSE(response.facts().begun);
  response.begin(0, {});
  for (const int index : {0, 1, 1, 2}) response.add_token(index, 5, -1, "x");
  EXPECT_EQ(response.facts().made_tokens, 4) << "nothing of it can be read yet";
  EXPECT_TRUE(response.facts().begun);
  for (const int index : {0, 1, 2}) response.finish(index, FinishReason::kStop, "", {});
  response.add_token(0, 6, -1, "y");  // after its end
  EXPECT_EQ(response.wait().completions.size(), 1U);
  EXPECT_EQ(response.facts().made_tokens, 4);
}

TEST(Response, PromptLogprobsComeWithTheFirstPiece) {
  auto response = response_of(2);
  std::vector<PositionLogprobs> positions(2);
  positions[0].chosen.token_id = 2;
  positions[1].chosen.token_id = 3;
  response.add_prompt_logprobs(0, positions);
  StreamEvent event;
  response.add_token(1, 5, 0, "x");
  EXPECT_EQ(response.try_next(event), StreamState::kEvent);
  EXPECT_TRUE(event.prompt_logprobs.empty()) << "they are the first completion's";
  for (const size_t expected : {2U, 0U}) {
    response.add_token(0, 6, 0, "y");
    EXPECT_EQ(response.try_next(event), StreamState::kEvent);
    EXPECT_EQ(event.prompt_logprobs.size(), expected);
  }
  response.finish(0, FinishReason::kStop, "", {});
  response.finish(1, FinishReason::kStop, "", {});
  EXPECT_EQ(response.wait().prompt_logprobs.size(), 2U);
}

// A thread that waits, for whatever it is, sleeps: its state in /proc is S.
void wait_until_asleep(pid_t thread) {
  const std::string stat = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (;; std::this_thread::yield()) {
    const std::string text = SystemFiles().text(stat);
    const size_t name_end = text.rfind(')');  // the name may hold anything
    if (name_end != text.npos && text.substr(name_end, 3) == ") S") return;
  }
}

TEST(Response, LettingGoWaitsForTheCallThatRuns) {
  auto response = response_of(1);
  const auto reader = static_cast<pid_t>(::syscall(SYS_gettid));
  std::atomic<bool> inside = false, lets_go = false, gone = false;
  response.on_ready([&] {
    inside = true;
    inside.notify_all();
    while (!lets_go) std::this_thread::yield();
    wait_until_asleep(reader);  // in on_ready(), or behind it for this thread's end
    EXPECT_FALSE(gone);
  });
  std::thread engine([&] {
    response.add_token(0, 1, 0, "a");
    response.wake();
  });
  inside.wait(false);
  lets_go = true;
  response.on_ready({});
  gone = true;
  engine.join();
}

// The engine's thread against a reader who reads when told, and lets go in the middle of an answer: what the callback touches is
// gone as soon as on_ready({}) has returned.
TEST(Response, NobodyIsCalledWhoLetGoAndNoNewsIsLost) {
  constexpr int kAnswerTokens = 50;
  for (int round = 0; round < 400; ++round) {
    auto response = response_of(1);
    std::thread engine([&] {
      for (int32_t id = 0; id < kAnswerTokens; ++id) {
        response.add_token(0, id, 0, "x");
        response.wake();
      }
      response.finish(0, FinishReason::kLength, "", {});
      response.wake();
    });
    auto news = std::make_unique<std::atomic<int>>(0);
    response.on_ready([seen = news.get()] {
      seen->fetch_add(1);
      seen->notify_one();
    });
    const size_t enough = round % 2 == 0 ? kAnswerTokens : static_cast<size_t>(round) % kAnswerTokens;
    std::vector<int32_t> read;
    StreamEvent event;
    auto state = StreamState::kPending;
    for (int seen = 0; state != StreamState::kEnd && read.size() < enough;) {
      news->wait(seen);  // for ever, if a call were lost
      seen = news->load();
      while ((state = response.try_next(event)) == StreamState::kEvent)
        read.insert(read.end(), event.token_ids.begin(), event.token_ids.end());
    }
    response.on_ready({});
    news.reset();
    engine.join();
    for (size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], static_cast<int32_t>(i));
  }
}

}  // namespace
}  // namespace choral::engine
