#include "serve/service/live_answer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "serve/http/sse.h"
#include "serve/http/test_server_test.h"

namespace choral::serve {
namespace {

// An exchange whose I/O thread is the test.
class HandledExchange final : public HttpExchange {
 public:
  explicit HandledExchange(bool stopped) : stopped_(stopped) {}

  const HttpRequest& request() const override { return request_; }
  void respond(HttpResponse response) override { status = response.status; }
  void begin_stream(int code, Headers given) override {
    status = code;
    headers = std::move(given);
  }
  void send(std::string bytes) override {
    sent += bytes;
    unsent_ += bytes.size();
    most_unsent = std::max(most_unsent, unsent_);
  }
  void end_stream() override { is_ended = true; }
  void abort() override { is_aborted = true; }
  size_t unsent_bytes() const override { return unsent_; }
  bool congested() const override { return unsent_ >= kHighBytes; }
  void on_drained(std::function<void()> callback) override { drained_ = std::move(callback); }
  void on_closed(std::function<void()> callback) override { closing_ = std::move(callback); }
  bool closed() const override { return is_closed_; }
  void post(std::function<void()> work) override {
    if (!stopped_) work_.push_back(std::move(work));
  }
  void post_after(std::chrono::milliseconds, std::function<void()> work) override { later_ = std::move(work); }

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
  // The client reads all that was sent.
  void read() {
    unsent_ = 0;
    if (const auto callback = std::exchange(drained_, {})) callback();
  }
  // The next keep-alive's time comes.
  void pass_time() {
    if (const auto work = std::exchange(later_, {})) work();
  }
  int status = 0;
  Headers headers;   // of a stream
  std::string sent;  // by it
  size_t most_unsent = 0;
  bool is_ended = false;
  bool is_aborted = false;

 private:
  static constexpr size_t kHighBytes = 64 << 10;
  const bool stopped_;
  bool is_closed_ = false;
  HttpRequest request_;
  size_t unsent_ = 0;
  std::function<void()> drained_;
  std::function<void()> closing_;
  std::deque<std::function<void()>> work_;
  std::function<void()> later_;
};

// What an engine has made of an answer and what of that its reader has not taken, in the test's hand.
struct Handled {
  AnswerFacts facts;
  std::deque<size_t> pieces;  // lengths
  bool is_over = false;       // nothing follows them
  bool is_cancelled = false;
};

class HandledStream final : public ResponseStream {
 public:
  explicit HandledStream(Handled& handled) : handled_(handled) {}
  const std::string& id() const override { return id_; }
  bool next(StreamEvent&) override { return false; }
  StreamState try_next(StreamEvent& event) override {
    if (handled_.pieces.empty()) return handled_.is_over ? StreamState::kEnd : StreamState::kPending;
    event.token_ids.assign(handled_.pieces.front(), 7);
    handled_.pieces.pop_front();
    return StreamState::kEvent;
  }
  StreamState next_for(StreamEvent& event, std::chrono::milliseconds) override { return try_next(event); }
  void on_ready(std::function<void()> callback) override {
    if (callback && !handled_.pieces.empty()) callback();
  }
  AnswerFacts facts() const override { return handled_.facts; }
  std::vector<int32_t> prompt_token_ids() const override { return {}; }
  std::vector<StreamEvent> given() const override { return {}; }
  void cancel() override { handled_.is_cancelled = true; }
  const Status& status() const override { return status_; }
  RequestOutput wait() override { return {}; }

 private:
  const std::string id_ = "one";
  const Status status_;
  Handled& handled_;
};

constexpr size_t kTooMany = 999;  // tokens of a piece that there is no memory for

// Says that something came, and not what.
class PlainForm final : public AnswerForm {
 public:
  PlainForm(std::string piece, std::string end) : piece_(std::move(piece)), end_(std::move(end)) {}
  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>&) override { return std::make_unique<Text>(); }
  std::string piece(size_t, const StreamEvent& event, const Usage&) override {
    if (event.token_ids.size() == kTooMany) throw std::bad_alloc();
    return piece_;
  }
  std::string end(const Usage&) override { return std::exchange(end_, "another end"); }

 private:
  class Text : public AnswerText {
    bool write(size_t, std::string& out) override {
      out += "whole";
      return false;
    }
  };
  const std::string piece_;
  std::string end_;
};

// A text of so many bytes, no two places of which look alike.
std::string long_text(size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += fmt::format("{:x},", text.size());
  text.resize(bytes);
  return text;
}

class LiveAnswerTest : public ::testing::Test, protected LiveAnswer::Owner {
 protected:
  ApiError explain(const Status& status) const override { return api_error(status); }
  void on_end(const LiveAnswer&) override { ++ends_; }
  bool write_beside(std::function<void()>) override { return false; }

  // A body with a prompt for each of `handled_`, charged with 100 tokens.
  std::shared_ptr<LiveAnswer> make(std::shared_ptr<HttpExchange> exchange, bool is_streamed = false) {
    LiveRequest request;
    for (auto& handled : handled_) request.streams.push_back({std::make_unique<HandledStream>(handled), {}, {}});
    request.told = [this](const Usage& used, const std::string& reason) {
      told_.push_back(fmt::format("{} {} {} {}", used.prompt_tokens, used.cached_tokens, used.completion_tokens,
                                  reason.substr(0, reason.find(':'))));
    };
    request.grant = limits_.admit("key", {}, 100, 0).grant;
    return std::make_shared<LiveAnswer>(static_cast<Owner&>(*this), std::move(exchange), std::move(request),
                                        std::make_unique<PlainForm>(piece_, end_), is_streamed);
  }
  // A streamed one, after its first turn.
  std::pair<std::shared_ptr<HandledExchange>, std::shared_ptr<LiveAnswer>> begin_stream() {
    const auto exchange = std::make_shared<HandledExchange>(false);
    const auto answer = make(exchange, /*is_streamed=*/true);
    answer->start();
    exchange->turn();
    return {exchange, answer};
  }
  // Its client leaves after a turn.
  void leave() {
    const auto exchange = std::make_shared<HandledExchange>(false);
    const auto answer = make(exchange);
    answer->start();
    exchange->turn();
    exchange->close();
  }
  bool has_room_for(int64_t tokens) { return limits_.admit("key", {}, tokens, 0).status.ok(); }

  RequestLimits limits_{{.tokens_per_s = 1, .burst_tokens = 100}, {}};
  std::deque<Handled> handled_ = std::deque<Handled>(1);
  std::string piece_ = "piece", end_ = "end";  // of a stream
  std::vector<std::string> told_;
  int ends_ = 0;
};

TEST_F(LiveAnswerTest, KeepsItselfFromTheFirstTurnUntilItsClientLeaves) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  auto answer = make(exchange);
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
  auto answer = make(std::make_shared<HandledExchange>(true));
  const std::weak_ptr<LiveAnswer> weak = answer;
  answer->start();
  answer.reset();
  EXPECT_TRUE(weak.expired());
  EXPECT_TRUE(has_room_for(100)) << "it used nothing";
}

TEST_F(LiveAnswerTest, EndsAtOnceWhereTheClientHasLeftBefore) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  exchange->close();
  auto answer = make(exchange);
  const std::weak_ptr<LiveAnswer> weak = answer;
  answer->start();
  answer.reset();
  exchange->turn();
  EXPECT_EQ(ends_, 1);
  EXPECT_TRUE(weak.expired());
}

TEST_F(LiveAnswerTest, AnAbortAnswersWithWhy) {
  const auto exchange = std::make_shared<HandledExchange>(false);
  const auto answer = make(exchange);
  answer->start();
  answer->abort(unavailable("the server stops"));
  exchange->turn();
  EXPECT_EQ(exchange->status, 503);
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(told_, std::vector<std::string>{"0 0 0 unavailable"});
}

TEST_F(LiveAnswerTest, AStreamsHeadTellsTheAdaptersOfWhoeverWasFirst) {
  handled_.resize(2);  // the first prompt waits
  handled_[1] = {.facts = {.adapters = {{.name = "sql", .generation = 2, .digest = "d"}}, .begun = true}, .pieces = {1}};
  const auto [exchange, answer] = begin_stream();
  EXPECT_EQ(exchange->status, 200);
  EXPECT_EQ(exchange->headers.get("X-Choral-Adapter"), "sql; generation=2; digest=d");
  exchange->close();
}

TEST_F(LiveAnswerTest, AQuietStreamKeepsItsHeadBackUntilTheAdaptersAreKnown) {
  const auto [exchange, answer] = begin_stream();
  exchange->pass_time();
  EXPECT_EQ(exchange->status, 0);
  handled_[0].facts = {.adapters = {{.name = "sql", .generation = 2, .digest = "d"}}, .begun = true};
  exchange->pass_time();
  EXPECT_EQ(exchange->status, 200);
  EXPECT_EQ(exchange->headers.get("X-Choral-Adapter"), "sql; generation=2; digest=d");
  exchange->close();
}

TEST_F(LiveAnswerTest, AStreamThatWaitsLongIsKeptAliveAndItsErrorSaysItsStatus) {
  const auto [exchange, answer] = begin_stream();
  exchange->pass_time();
  answer->abort(unavailable("no room"));
  exchange->turn();
  EXPECT_EQ(exchange->status, 503) << "not yet begun";
  const auto [other, waiting] = begin_stream();
  other->pass_time();
  other->pass_time();
  EXPECT_EQ(other->status, 200);
  waiting->abort(unavailable("no room"));
  other->turn();
  EXPECT_NE(other->sent.find(R"("code":"unavailable","status":503)"), std::string::npos) << other->sent;
}

// More than the transport keeps of a stream (HttpLimits::stream_cap_bytes).
constexpr size_t kLargeBytes = 9 << 20;

TEST_F(LiveAnswerTest, ALargeEventReachesASlowClientWhole) {
  piece_ = long_text(kLargeBytes);
  handled_[0] = {.facts = {}, .pieces = {1, 1}, .is_over = true};
  testing::HeldServer server;
  testing::RawClient client = server.asking_client(/*receive_buffer=*/4096);
  make(server.take(), /*is_streamed=*/true)->start();
  const testing::RawResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body == piece_ + piece_ + "end");
  server.end();
  EXPECT_EQ(ends_, 1);
}

TEST_F(LiveAnswerTest, ALargeEventGoesOutAsTheClientReads) {
  piece_ = long_text(kLargeBytes);
  end_ = long_text((1 << 20) + 5);
  handled_[0] = {.facts = {}, .pieces = {1, 1}, .is_over = true};
  const auto [exchange, answer] = begin_stream();
  EXPECT_EQ(exchange->sent.size(), size_t{64} << 10) << "a slice a turn";
  int turns = 0;
  for (; !exchange->is_ended && turns < 1000; ++turns) {
    exchange->pass_time();  // a keep-alive
    exchange->read();
    exchange->turn();
  }
  EXPECT_TRUE(exchange->sent == piece_ + piece_ + end_);
  EXPECT_EQ(turns, 2 * kLargeBytes / (64 << 10) + 16);
  EXPECT_LT(exchange->most_unsent, size_t{128} << 10);
  EXPECT_EQ(ends_, 1);
}

TEST_F(LiveAnswerTest, KeepAlivesWaitForTheEndOfAnEvent) {
  piece_ = long_text(100 << 10);
  handled_[0] = {.facts = {}, .pieces = {1}};
  const auto [exchange, answer] = begin_stream();
  for (int i = 0; i < 3; ++i) exchange->pass_time();
  EXPECT_TRUE(exchange->sent == piece_.substr(0, 64 << 10)) << "the client does not read";
  exchange->read();
  EXPECT_TRUE(exchange->sent == piece_);
  exchange->pass_time();
  exchange->pass_time();
  EXPECT_TRUE(exchange->sent == piece_ + sse_keep_alive());
  exchange->close();
}

TEST_F(LiveAnswerTest, AFailureInTheMiddleOfAnEventCutsItOff) {
  piece_ = long_text(100 << 10);
  handled_[0] = {.facts = {}, .pieces = {1}};
  const auto [exchange, answer] = begin_stream();
  answer->abort(unavailable("the server stops"));
  exchange->turn();
  exchange->read();
  EXPECT_TRUE(exchange->is_aborted && !exchange->is_ended);
  EXPECT_EQ(exchange->sent.size(), size_t{64} << 10) << "nothing behind half of an event";
  EXPECT_EQ(ends_, 1);
  EXPECT_EQ(told_, std::vector<std::string>{"0 0 0 unavailable"});
}

TEST_F(LiveAnswerTest, AFailureBehindALargeEventIsAnEventOfItsOwn) {
  piece_ = long_text(100 << 10);
  handled_[0] = {.facts = {}, .pieces = {1}};
  const auto [exchange, answer] = begin_stream();
  exchange->read();
  answer->abort(unavailable("the server stops"));
  exchange->turn();
  EXPECT_TRUE(exchange->is_ended && !exchange->is_aborted);
  EXPECT_EQ(exchange->sent.substr(piece_.size(), 6), "data: ");
}

TEST_F(LiveAnswerTest, APieceThatThereIsNoMemoryForEndsTheAnswer) {
  handled_[0] = {.facts = {}, .pieces = {1, kTooMany, 1}};
  const auto [exchange, answer] = begin_stream();
  EXPECT_TRUE(exchange->is_ended);
  EXPECT_TRUE(exchange->sent.starts_with("piecedata: {")) << exchange->sent;
  EXPECT_NE(exchange->sent.find("resource_exhausted"), std::string::npos) << exchange->sent;
  EXPECT_EQ(ends_, 1);
}

TEST_F(LiveAnswerTest, WhoLeavesBeforeTheFirstStepPaysNothing) {
  handled_[0].facts.prompt_tokens = 90;
  leave();
  EXPECT_TRUE(handled_[0].is_cancelled);
  EXPECT_TRUE(has_room_for(100));
}

TEST_F(LiveAnswerTest, WhoLeavesInTheirPromptPaysForThePrompt) {
  handled_[0].facts = {.prompt_tokens = 90, .adapters = {}, .begun = true};
  leave();
  EXPECT_FALSE(has_room_for(11));
  EXPECT_TRUE(has_room_for(10));
}

TEST_F(LiveAnswerTest, WhoLeavesPaysForWhatWasMadeAndNotForWhatWasRead) {
  handled_[0] = {.facts = {.prompt_tokens = 10, .adapters = {}, .begun = true, .made_tokens = 70}, .pieces = {20, 30}};
  leave();
  EXPECT_FALSE(has_room_for(21));
  EXPECT_TRUE(has_room_for(20));
}

TEST_F(LiveAnswerTest, ABodyOfManyPromptsHasOnePlaceAndPaysForThemTogether) {
  handled_.resize(3);
  handled_[0].facts = {.prompt_tokens = 10, .adapters = {}, .begun = true, .made_tokens = 20};
  handled_[2].facts = {.prompt_tokens = 5, .adapters = {}, .begun = true};
  handled_[1].facts.prompt_tokens = 50;
  leave();
  EXPECT_FALSE(has_room_for(66));
  EXPECT_TRUE(has_room_for(65));
  EXPECT_EQ(told_, std::vector<std::string>{"15 0 20 cancelled"}) << "what waited is not told of";
}

}  // namespace
}  // namespace choral::serve
