#include "serve/service/whole_answer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>

#include "serve/http/test_server_test.h"
#include "serve/service/work_queue.h"

namespace choral::serve {
namespace {

// A text of so many bytes, and how many of them were asked for.
class CountedForm : public AnswerForm {
 public:
  CountedForm(size_t bytes, std::atomic<size_t>& made) : bytes_(bytes), made_(made) {}
  std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>&) override { return std::make_unique<Text>(bytes_, made_); }
  std::string piece(size_t, const StreamEvent&, const Usage&) override { return {}; }
  std::string end(const Usage&) override { return {}; }

 private:
  class Text : public AnswerText {
   public:
    Text(size_t bytes, std::atomic<size_t>& made) : left_(bytes), made_(made) {}
    bool write(size_t enough, std::string& out) override {
      for (; left_ > 0; --left_) {
        if (out.size() >= enough) return true;
        out += static_cast<char>('a' + left_ % 26);
        ++made_;
      }
      return false;
    }

   private:
    size_t left_;
    std::atomic<size_t>& made_;
  };
  const size_t bytes_;
  std::atomic<size_t>& made_;
};

// What is written beside waits for run(); so the test knows when.
class WholeAnswerTest : public ::testing::Test {
 protected:
  // "/" is answered with so many bytes, anything else with ten.
  std::unique_ptr<HttpServer> server(size_t bytes, WholeAnswer::Beside beside) {
    return testing::serve([this, bytes, beside](const std::shared_ptr<HttpExchange>& exchange) {
      const size_t own = exchange->request().path == "/" ? bytes : 10;
      send_whole(exchange, {{"X-Kind", "whole"}}, {.outputs = {}, .form = std::make_unique<CountedForm>(own, made_)}, beside);
    });
  }
  std::unique_ptr<HttpServer> server(size_t bytes) {
    return server(bytes, [this](std::function<void()> work) {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
      return true;
    });
  }
  // The next piece, once it is asked for.
  void run() {
    ASSERT_TRUE(testing::eventually([this] { return waiting() > 0; }));
    std::function<void()> work;
    {
      const std::lock_guard lock(mutex_);
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
  size_t waiting() {
    const std::lock_guard lock(mutex_);
    return work_.size();
  }

  std::atomic<size_t> made_ = 0;
  std::mutex mutex_;
  std::deque<std::function<void()>> work_;
};

TEST_F(WholeAnswerTest, AShortOneGoesAtOnceWithItsLength) {
  const auto http = server(1000);
  testing::RawClient client = testing::RawClient::tcp(http->port());
  const auto response = client.get("/");
  EXPECT_EQ(response.headers.get("Content-Length"), "1000");
  EXPECT_EQ(response.headers.get("X-Kind"), "whole");
  EXPECT_EQ(response.body.size(), 1000U);
  EXPECT_EQ(waiting(), 0U);
}

TEST_F(WholeAnswerTest, ALongOneIsWrittenPieceByPieceAndNobodyWaitsForIt) {
  constexpr size_t kPieces = 10;
  const auto http = server(kPieces * WholeAnswer::kPieceBytes);
  testing::RawClient client = testing::RawClient::tcp(http->port()), other = testing::RawClient::tcp(http->port());
  testing::RawResponse response;
  std::thread reader([&] { response = client.get("/"); });
  for (size_t piece = 1; piece < kPieces; ++piece) {
    EXPECT_EQ(other.get("/short").body.size(), 10U) << "the I/O thread is free";
    ASSERT_TRUE(testing::eventually([this] { return waiting() > 0; })) << "the piece before was made and taken";
    const size_t before = made_;
    run();
    EXPECT_LE(made_ - before, WholeAnswer::kPieceBytes);
  }
  reader.join();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.headers.get("Transfer-Encoding"), "chunked");
  EXPECT_EQ(response.body.size(), kPieces * WholeAnswer::kPieceBytes);
}

TEST_F(WholeAnswerTest, NoMoreIsWrittenThanTheClientTakes) {
  constexpr size_t kText = 64 << 20, kRead = 1 << 20, kOnItsWay = 8 << 20;
  const auto writers = WorkQueue::make("a test's thread", 1, 1000);
  ASSERT_TRUE(writers.ok());
  const auto http = server(kText, [&](std::function<void()> work) { return (*writers)->push(std::move(work)); });
  testing::RawClient client = testing::RawClient::tcp(http->port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  for (size_t read = kRead; read <= kText; read += kRead) {
    ASSERT_EQ(client.read_bytes(kRead).size(), kRead);
    EXPECT_LE(made_, read + kOnItsWay);
  }
}

TEST_F(WholeAnswerTest, WithoutAThreadToWriteItIsCutOff) {
  const auto http = server(10 * WholeAnswer::kPieceBytes, [](const std::function<void()>&) { return false; });
  testing::RawClient client = testing::RawClient::tcp(http->port());
  EXPECT_FALSE(client.get("/").complete);
}

}  // namespace
}  // namespace choral::serve
