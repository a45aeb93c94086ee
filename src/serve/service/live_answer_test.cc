#include "serve/service/live_answer.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>

namespace choral::serve {
namespace {

// An exchange whose I/O thread is the test.
class HandledExchange final : public HttpExchange {
 public:
  explicit HandledExchange(bool stopped) : stopped_(stopped) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override { status = response.status; }
  void begin_stream(int code, Headers) override { status = code; }
  void send(std::string) override {}
  void end_stream() override {}
  void abort() override {}
  size_t unsent_bytes() const override { return 0; }
  bool congested() const override { return false; }
  void on_drained(std::function<void()>) override {}
  void on_closed(std::function<void()> callback) override { closing_ = std::move(callback); }
  bool closed() const override { return is_closed_; }
  void post(std::function<void()> work) override {
    if (!stopped_) work_.push_back(std::move(work));
  }
  void post_after(std::chrono::milliseconds, std::function<void()>) override {}

  void close() {
    is_closed_ = true;
    if (const auto callback = std::exchange(closing_, {})) callback();
  }
  void turn() {
    while (!work_.empty()) {
      const auto work = std::move(work_.front());
      work_.pop_front();
      work();
    }
  }
  int status = 0;

 private:
  const bool stopped_;
  bool is_closed_ = false;
  HttpRequest request_;
  std::function<void()> closing_;
  std::deque<std::function<void()>> work_;
};

// Says a piece for each length that it is given, and then no more until it is cancelled.
class HandledStream final : public ResponseStream {
 public:
  explicit HandledStream(std::deque<size_t> lengths) : lengths_(std::move(lengths)) {}
  const std::string& id() const override { return id_; }
  bool next(StreamEvent&) override { return false; }
  StreamState try_next(StreamEvent& event) override {
    if (lengths_.empty()) return StreamState::kPending;
    event.token_ids.assign(lengths_.front(), 7);
    lengths_.pop_front();
    return StreamState::kEvent;
  }
  StreamState next_for(StreamEvent& event, std::chrono::milliseconds) override { return try_next(event); }
  void on_ready(std::function<void()> callback) override {
    if (callback && !lengths_.empty()) callback();
  }
  AnswerFacts facts() const override {
    AnswerFacts facts;
    facts.prompt_tokens = 10;
    return facts;
  }
  void cancel() override {}
  const Status& status() const override { return status_; }
  RequestOutput wait() override { return {}; }

 private:
  const std::string id_ = "one";
  const Status status_;
  std::deque<size_t> lengths_;
};

class LiveAnswerTest : public ::testing::Test, protected LiveAnswer::Owner {
 protected:
  ApiError explain(const Status& status) const override { return api_error(status); }
  void on_end(const LiveAnswer&) override { ++ends_; }

  std::shared_ptr<LiveAnswer> make(std::shared_ptr<HttpExchange> exchange, std::deque<size_t> lengths) {
    LiveAnswer::Streams streams;
    LiveStream& live = streams.emplace_back();
    live.stream = std::make_unique<HandledStream>(std::move(lengths));
    live.grant = limits_.admit("key", {}, 100, 0).grant;
    return std::make_shared<LiveAnswer>(static_cast<Owner&>(*this), std::move(exchange), std::move(streams), nullptr, false);
  }
  bool has_room_for(int64_t tokens) { return limits_.admit("key", {}, tokens, 0).status.ok(); }

  RequestLimits limits_{{.tokens_per_s = 1, .burst_tokens = 100}, {}};
  int ends_ = 0;
};

TEST_F(LiveAnswerTest, KeepsItselfFromTheFirstTurnUntilItsClientLeaves) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  auto answer = make(exchange, {});
  const std::weak_ptr<LiveAnswer> weak = answer;
  answer->start();
  answer.reset();
  EXPECT_FALSE(weak.expired());
  exchange->turn();
  EXPECT_FALSE(weak.expired());
  EXPECT_EQ(ends_, 0);
  exchange->close();
  EXPECT_EQ(ends_, 1);
  EXPECT_TRUE(weak.expired());
}

TEST_F(LiveAnswerTest, GoesWithItsLastReferenceWhereTheThreadHasStopped) {
  auto answer = make(std::make_shared<HandledExchange>(true), {});
  const std::weak_ptr<LiveAnswer> weak = answer;
  answer->start();
  answer.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(has_room_for(100)) << "it used nothing";
}

TEST_F(LiveAnswerTest, EndsAtOnceWhereTheClientHasLeftBefore) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  exchange->close();
  auto answer = make(exchange, {});
  const std::weak_ptr<LiveAnswer> weak = answer;
  answer->start();
  answer.reset();
  exchange->turn();
  EXPECT_EQ(ends_, 1);
  EXPECT_TRUE(weak.expired());
}

TEST_F(LiveAnswerTest, AnAbortAnswersWithWhy) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  const auto answer = make(exchange, {});
  answer->start();
  answer->abort(unavailable("the server stops"));
  exchange->turn();
  EXPECT_EQ(exchange->status, 503);
  EXPECT_EQ(ends_, 1);
}

TEST_F(LiveAnswerTest, WhoLeavesEarlyHasUsedWhatCame) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  auto answer = make(exchange, {20, 30});
  answer->start();
  exchange->turn();
  exchange->close();
  answer.reset();  // its place goes with it
  EXPECT_FALSE(has_room_for(41)) << "10 of the prompt and 50 of the answer are used";
  EXPECT_TRUE(has_room_for(40));
}

}  // namespace
}  // namespace choral::serve
