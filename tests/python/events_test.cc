// The event path below the Python package, without Python, so that the sanitizers see it: the engine's thread tells of news, a
// reader that watches the file descriptor takes them, other threads submit, cancel and end the engine. Gather likewise.
#include <gmock/gmock.h>
#include <poll.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "choral/llm.h"
#include "gather.h"
#include "news.h"

namespace choral::python {
namespace {

constexpr int kStreams = 256, kMostTokens = 24;

std::unique_ptr<LLM> load_tiny(int max_waiting = 1024) {
  auto llm = LLM::load({.model = CHORAL_TEST_DATA "/models/tiny-llama3", .threads = 2, .max_waiting = max_waiting});
  EXPECT_TRUE(llm.ok()) << llm.status().to_string();
  return llm.ok() ? *std::move(llm) : nullptr;
}

Request request_of(int tokens) {
  Request request{.prompt_token_ids = {1, 2, 3, 4}};
  request.sampling = {.max_tokens = tokens, .temperature = 0, .ignore_eos = true};
  return request;
}

// What streams.cc does for asyncio, with a thread in the loop's place.
class Reader {
 public:
  ~Reader() {
    stop_ = true;
    news_->tell(0);
    thread_.join();
  }

  void submit(LLM& llm, int tokens) {
    auto stream = llm.submit(request_of(tokens));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    const std::lock_guard lock(mutex_);
    const uint64_t number = ++next_;
    news_->reserve(streams_.size() + 2);
    auto& kept = streams_.emplace(number, *std::move(stream)).first->second;
    expected_[number] = tokens;
    kept->on_ready([news = news_, number] { news->tell(number); });
  }
  void cancel(uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (const auto found = streams_.find(number); found != streams_.end()) found->second->cancel();
  }
  size_t left() {
    const std::lock_guard lock(mutex_);
    return streams_.size();
  }
  void wait_for_all() {
    while (left() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // How many ended with all their tokens.
  int complete() const { return complete_; }
  int ended() const { return ended_; }
  int wakes() const { return wakes_; }

 private:
  void run() {
    std::vector<uint64_t> ready;
    while (!stop_) {
      pollfd watched{news_->fd(), POLLIN, 0};
      ASSERT_GE(poll(&watched, 1, -1), 0);
      news_->take(ready);
      ++wakes_;
      for (const uint64_t number : ready) read(number);
    }
  }
  void read(uint64_t number) {
    std::unique_ptr<ResponseStream> done;
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(number);
    if (found == streams_.end()) return;
    StreamState state = StreamState::kEvent;
    for (StreamEvent event; (state = found->second->try_next(event)) == StreamState::kEvent; event = {})
      tokens_[number] += static_cast<int>(event.token_ids.size());
    if (state != StreamState::kEnd) return;
    done = std::move(found->second);
    streams_.erase(found);
    ++ended_;
    if (tokens_[number] == expected_[number]) ++complete_;
  }

  const std::shared_ptr<News> news_ = *News::make();
  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<ResponseStream>> streams_;
  std::map<uint64_t, int> expected_, tokens_;
  uint64_t next_ = 0;
  std::atomic<int> complete_{0}, ended_{0}, wakes_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_{[this] { run(); }};
};

TEST(PythonEvents, NoneIsLostAndNobodySpins) {
  const auto llm = load_tiny();
  ASSERT_NE(llm, nullptr);
  Reader reader;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = caller; i < kStreams; i += 2) reader.submit(*llm, 1 + i % kMostTokens);
    });
  }
  for (auto& caller : callers) caller.join();
  reader.wait_for_all();
  EXPECT_EQ(reader.complete(), kStreams);
  // Each piece of each stream wakes at most once; many share a wake-up.
  EXPECT_LE(reader.wakes(), kStreams * (kMostTokens + 2));
}

TEST(PythonEvents, CancelledStreamsEndToo) {
  const auto llm = load_tiny();
  ASSERT_NE(llm, nullptr);
  Reader reader;
  for (int i = 0; i < 64; ++i) reader.submit(*llm, i % 2 == 0 ? 4 : 400);
  std::thread canceller([&] {
    for (uint64_t number = 2; number <= 64; number += 2) reader.cancel(number);
  });
  canceller.join();
  reader.wait_for_all();
  EXPECT_EQ(reader.ended(), 64);
  EXPECT_GE(reader.complete(), 32);
}

TEST(PythonEvents, AnEngineThatEndsTellsAllWhoWait) {
  auto llm = load_tiny();
  ASSERT_NE(llm, nullptr);
  Reader reader;
  for (int i = 0; i < 64; ++i) reader.submit(*llm, 400);
  llm.reset();
  reader.wait_for_all();
  EXPECT_EQ(reader.ended(), 64);
}

TEST(PythonEvents, GatherAnswersInOrderThroughAShortQueue) {
  const auto llm = load_tiny(/*max_waiting=*/4);
  ASSERT_NE(llm, nullptr);
  std::vector<Request> requests;
  for (int i = 0; i < 100; ++i) requests.push_back(request_of(1 + i % 5));
  Gather gather(*llm, std::move(requests));
  size_t done = 0;
  while (!gather.wait(done)) {
  }
  const auto outputs = std::move(gather).outputs();
  ASSERT_EQ(outputs.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(outputs[i].status.ok()) << outputs[i].status.to_string();
    EXPECT_EQ(std::ssize(outputs[i].completions.front().token_ids), 1 + i % 5);
  }
}

TEST(PythonEvents, GatherThatIsDroppedCancels) {
  const auto llm = load_tiny();
  ASSERT_NE(llm, nullptr);
  {
    Gather gather(*llm, std::vector<Request>(50, request_of(400)));
    size_t done = 0;
    gather.wait(done);
  }
  while (llm->stats().running > 0 || llm->stats().waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace choral::python
