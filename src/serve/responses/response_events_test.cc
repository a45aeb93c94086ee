#include "serve/responses/response_events.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <utility>

namespace choral::serve {
namespace {

// A client that follows: its I/O thread is the test.
class FollowingExchange final : public HttpExchange {
 public:
  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse) override {}
  void begin_stream(int, Headers) override { begun = true; }
  void send(std::string bytes) override {
    sent += bytes;
    unread_ += bytes.size();
  }
  void end_stream() override { ended = true; }
  void abort() override { aborted = true; }
  size_t unsent_bytes() const override { return unread_; }
  bool congested() const override { return unread_ >= most_unread; }
  void on_drained(std::function<void()> callback) override { drained_ = std::move(callback); }
  void on_closed(std::function<void()> callback) override { closed_ = std::move(callback); }
  bool closed() const override { return left_; }
  void post(std::function<void()> work) override { work_.push_back(std::move(work)); }
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}

  void turn() {
    for (; !work_.empty(); work_.pop_front()) work_.front()();
  }
  void read() {
    unread_ = 0;
    if (const auto callback = std::exchange(drained_, {})) callback();
    turn();
  }
  void leave() {
    left_ = true;
    if (const auto callback = std::exchange(closed_, {})) callback();
  }

  size_t most_unread = SIZE_MAX;
  std::string sent;
  bool begun = false, ended = false, aborted = false;

 private:
  HttpRequest request_;
  size_t unread_ = 0;
  bool left_ = false;
  std::function<void()> drained_, closed_;
  std::deque<std::function<void()>> work_;
};

std::string numbered(int number) { return fmt::format("event: e\ndata: {{\"sequence_number\":{}}}\n\n", number); }
std::string numbered(int from, int to) {
  std::string text;
  for (int i = from; i < to; ++i) text += numbered(i);
  return text;
}

TEST(ResponseEvents, WhoeverFollowsGetsWhatIsBehindANumber) {
  ResponseEventLogs logs;
  const auto events = logs.add("r");
  events->append(numbered(0, 3));
  const auto all = std::make_shared<FollowingExchange>(), later = std::make_shared<FollowingExchange>(),
             beyond = std::make_shared<FollowingExchange>();
  EXPECT_TRUE(events->follow(all, -1));
  EXPECT_TRUE(logs.find("r")->follow(later, 1));
  EXPECT_TRUE(events->follow(beyond, 4));
  // In pieces that are no events.
  const std::string more = numbered(3, 5);
  for (const char c : more) events->append({&c, 1});
  EXPECT_EQ(events->next(), 5);
  for (const auto& each : {all, later, beyond}) each->turn();
  EXPECT_EQ(all->sent, numbered(0, 5));
  EXPECT_EQ(later->sent, numbered(2, 5));
  EXPECT_EQ(beyond->sent, "") << "they are not behind it";
  events->append(": keep-alive\n\n");
  all->turn();
  EXPECT_EQ(all->sent, numbered(0, 5) + ": keep-alive\n\n");
  EXPECT_FALSE(all->ended);
  events->append(numbered(5));
  events->close();
  events->append(numbered(6));
  for (const auto& each : {all, later, beyond}) {
    each->turn();
    EXPECT_TRUE(each->ended);
    EXPECT_TRUE(each->sent.ends_with(numbered(5)));
  }
  const auto after_end = std::make_shared<FollowingExchange>();
  EXPECT_TRUE(events->follow(after_end, 3));
  after_end->turn();
  EXPECT_EQ(after_end->sent, numbered(4, 6));
  EXPECT_TRUE(after_end->ended);
}

TEST(ResponseEvents, AClientReadsAtItsOwnPaceAndMayLeave) {
  ResponseEventLogs logs;
  const auto events = logs.add("r");
  const auto slow = std::make_shared<FollowingExchange>(), gone = std::make_shared<FollowingExchange>();
  slow->most_unread = 1;
  ASSERT_TRUE(events->follow(slow, -1) && events->follow(gone, -1));
  gone->leave();
  events->append(numbered(0, 3));
  events->close();
  slow->turn();
  gone->turn();
  EXPECT_EQ(gone->sent, "");
  EXPECT_EQ(slow->sent, numbered(0));
  slow->read();
  slow->read();
  EXPECT_FALSE(slow->ended);
  slow->read();
  EXPECT_EQ(slow->sent, numbered(0, 3));
  EXPECT_TRUE(slow->ended);
  EXPECT_EQ(gone.use_count(), 1) << "nothing holds a client that left";
  EXPECT_EQ(slow.use_count(), 1);
}

TEST(ResponseEvents, TakeNoMoreMemoryThanTheyMay) {
  ResponseEventLogs logs(8 << 10);
  const auto ended = logs.add("ended");
  ended->append(numbered(0, 10));
  ended->close();
  const auto running = logs.add("running");
  running->append(numbered(0, 10));
  EXPECT_NE(logs.find("ended"), nullptr);
  const auto behind = std::make_shared<FollowingExchange>();
  ASSERT_TRUE(running->follow(behind, -1));
  for (int i = 10; i < 500; ++i) running->append(numbered(i));
  EXPECT_EQ(logs.find("ended"), nullptr);
  EXPECT_LE(logs.bytes(), (8 << 10) + 4096) << "all but what the test still holds";
  EXPECT_EQ(running->next(), 500);
  // Its oldest events are gone: a client that never read is cut off, one that asks for them is told.
  behind->turn();
  EXPECT_TRUE(behind->aborted);
  EXPECT_EQ(behind->sent, "");
  const auto late = std::make_shared<FollowingExchange>();
  EXPECT_FALSE(running->follow(late, 5));
  EXPECT_FALSE(late->begun);
  EXPECT_TRUE(running->follow(late, 498));
  late->turn();
  EXPECT_EQ(late->sent, numbered(499));
  logs.remove("running");
  EXPECT_EQ(logs.find("running"), nullptr);
  // An event that alone is more than all may have stays until the next.
  const auto large = logs.add("large");
  large->append("data: " + std::string(10 << 10, 'x') + "\n\n" + numbered(1));
  EXPECT_FALSE(large->follow(late, -1));
}

TEST(ResponseEvents, CountWhatTheyHold) {
  ResponseEventLogs logs;
  {
    const auto events = logs.add("r");
    events->append(numbered(0, 10));
    EXPECT_GT(logs.bytes(), 0);
    logs.remove("r");
  }
  EXPECT_EQ(logs.bytes(), 0);
}

}  // namespace
}  // namespace choral::serve
