// Answers that take their time, and peers that don't wait for them, or do so in odd ways. Real sockets.
#include <gmock/gmock.h>

#include <atomic>
#include <random>

#include "serve/http/sse.h"
#include "serve/http/test_server_test.h"

namespace choral::serve {
namespace {

using std::chrono::milliseconds;
using testing::eventually;
using testing::HeldServer;
using testing::on_a_free_port;
using testing::RawClient;
using testing::RawResponse;

TEST(HttpStream, ComesPieceByPiece) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  exchange->begin_stream(200, sse_headers());
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, ::testing::HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(head, ::testing::HasSubstr("text/event-stream"));
  exchange->send(sse_data("1"));
  EXPECT_EQ(client.read_until("\n\n\r\n"), "9\r\ndata: 1\n\n\r\n");
  exchange->send("");  // would be the end
  exchange->send(sse_data("22"));
  EXPECT_EQ(client.read_until("\n\n\r\n"), "a\r\ndata: 22\n\n\r\n");
  exchange->end_stream();
  EXPECT_EQ(client.read_bytes(5), "0\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return server->exchanges() == 0; }));
  client.send("GET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  server.take()->respond({200, {}, "again"});
  EXPECT_EQ(client.read_response().body, "again");
}

TEST(HttpStream, Http10ReadsUntilTheEnd) {
  HeldServer server;
  RawClient client = server.client();
  client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  auto exchange = server.take();
  exchange->begin_stream(200, {});
  exchange->send("a");
  exchange->send("b");
  exchange->end_stream();
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.headers.get("Connection"), "close");
  EXPECT_EQ(response.body, "ab");
  EXPECT_TRUE(response.complete);
}

TEST(HttpStream, HeadGetsTheHeadAlone) {
  HeldServer server;
  RawClient client = server.client();
  client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = server.take();
  exchange->begin_stream(200, {});
  exchange->send("unseen");
  exchange->end_stream();
  EXPECT_EQ(client.read_response(true).status, 200);
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  server.take()->respond({200, {}, "seen"});
  EXPECT_EQ(client.read_response().body, "seen");
}

TEST(HttpStream, AnAbortIsNoEnd) {
  HeldServer server;
  for (const char* version : {"1.0", "1.1"}) {
    RawClient client = server.client();
    client.send(std::string("GET / HTTP/") + version + "\r\nHost: x\r\n\r\n");
    auto exchange = server.take();
    exchange->begin_stream(200, {});
    exchange->send("last words");
    client.read_until("last words");
    exchange->abort();
    exchange->send("nobody hears this");
    EXPECT_EQ(client.read_to_end(), std::string(version) == "1.1" ? "\r\n" : "");
    EXPECT_TRUE(client.was_reset() || std::string(version) == "1.1");
  }
  EXPECT_TRUE(eventually([&] { return server->exchanges() == 0; }));
}

TEST(HttpStream, ADroppedStreamIsCutOff) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  exchange->begin_stream(200, {});
  exchange->send("a");
  exchange.reset();
  EXPECT_FALSE(client.read_response().complete);
}

TEST(HttpStream, ASlowReaderHoldsTheProducerBack) {
  HttpServerOptions options = on_a_free_port();
  options.limits.stream_high_bytes = 32 << 10;
  HeldServer server(options);
  RawClient client = server.asking_client(4096);
  auto exchange = server.take();
  exchange->begin_stream(200, {});
  std::atomic<size_t> sent{0};
  std::atomic<int> pauses{0};
  std::function<void()> produce = [&] {
    while (sent < 8 << 20) {
      if (exchange->congested()) {
        ++pauses;
        exchange->on_drained(produce);
        return;
      }
      exchange->send(std::string(1000, static_cast<char>('a' + sent / 1000 % 26)));
      sent += 1000;
    }
    exchange->end_stream();
  };
  exchange->post(produce);
  ASSERT_TRUE(eventually([&] { return pauses > 0 && exchange->unsent_bytes() >= size_t{16} << 10; }));
  EXPECT_LT(exchange->unsent_bytes(), size_t{64} << 10);
  EXPECT_LT(sent, size_t{6} << 20) << "the system buffers little for a stream";
  std::string expected;
  for (size_t i = 0; i < (8 << 20); i += 1000) expected += std::string(1000, static_cast<char>('a' + i / 1000 % 26));
  const RawResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_TRUE(response.body == expected);
  EXPECT_GT(pauses, 10);
}

TEST(HttpStream, OnDrainedComesAtOnceWhenNothingWaits) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  std::atomic<int> calls{0};
  exchange->on_drained([&] { ++calls; });
  EXPECT_TRUE(eventually([&] { return calls == 1; }));
  exchange->respond({});
  EXPECT_EQ(client.read_response().status, 200);
  EXPECT_EQ(calls, 1);
}

TEST(HttpStream, AReaderThatStopsIsGivenUp) {
  HttpServerOptions options = on_a_free_port();
  options.limits.write_stall_time = milliseconds(200);
  HeldServer server(options);
  RawClient client = server.asking_client(4096);
  auto exchange = server.take();
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  exchange->begin_stream(200, {});
  for (int i = 0; i < 40; ++i) exchange->send(std::string(100'000, 'x'));
  EXPECT_TRUE(eventually([&] { return closed == 1; }));
  EXPECT_TRUE(exchange->closed());
  EXPECT_EQ(exchange->unsent_bytes(), 0u);
  std::atomic<int> late{0};
  exchange->on_closed([&] { ++late; });
  EXPECT_TRUE(eventually([&] { return late == 1; })) << "whoever asks later is told, too";
  EXPECT_TRUE(eventually([&] { return server->connections() == 0; }));
}

TEST(HttpStream, MemoryOfAStreamIsBounded) {
  HttpServerOptions options = on_a_free_port();
  options.limits.stream_cap_bytes = 1 << 20;
  HeldServer server(options);
  RawClient client = server.asking_client(4096);
  auto exchange = server.take();
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  exchange->begin_stream(200, {});
  size_t most = 0;
  EXPECT_TRUE(eventually([&] {
    exchange->send(std::string(50'000, 'x'));
    most = std::max(most, exchange->unsent_bytes());
    return closed == 1;
  }));
  EXPECT_GT(most, size_t{1} << 19) << "up to the cap it is kept";
  EXPECT_LE(most, (size_t{1} << 20) + 51'000) << "and the piece that went over it, with its frame";
}

// The peer leaves while its answer is being made: on_closed comes, though nothing is sent.
void expect_noticed(HeldServer& server, const std::function<void(RawClient&)>& leave,
                    const std::function<void(HttpExchange&)>& before = {}) {
  RawClient client = server.client();
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}");
  auto exchange = server.take();
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  if (before) before(*exchange);
  leave(client);
  EXPECT_TRUE(eventually([&] { return closed == 1; }));
  exchange->respond({});  // comes too late, and is nobody's fault
  EXPECT_TRUE(eventually([&] { return server->exchanges() == 0 && server->connections() == 0; }));
}

TEST(HttpStream, AResetIsNoticedWhileNothingIsSent) {
  HeldServer server;
  expect_noticed(server, [](RawClient& client) { client.close_with_reset(); });
}

TEST(HttpStream, ACloseIsNoticedWhileNothingIsSent) {
  HeldServer server;
  expect_noticed(server, [](RawClient& client) { client.close(); });
}

TEST(HttpStream, ACloseBehindRequestsThatWaitIsNoticed) {
  HeldServer server;
  expect_noticed(server, [](RawClient& client) {
    for (int i = 0; i < 20; ++i) client.send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
    client.close();
  });
}

TEST(HttpStream, AResetBehindMoreThanIsReadAheadIsNoticed) {
  HeldServer server;
  expect_noticed(server, [](RawClient& client) {
    client.send(std::string(100'000, 'x'));
    client.close_with_reset();
  });
}

TEST(HttpStream, ACloseInTheMiddleOfAStreamIsNoticedByTheNextPiece) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  exchange->begin_stream(200, {});
  exchange->send("a");
  client.read_until("a\r\n");
  client.close();
  exchange->send("b");
  EXPECT_TRUE(eventually([&] { return closed == 1; }));
}

TEST(HttpStream, AResetInTheMiddleOfAStreamIsNoticedAtOnce) {
  HeldServer server;
  expect_noticed(
      server,
      [](RawClient& client) {
        client.read_until("a\r\n");
        client.close_with_reset();
      },
      [](HttpExchange& exchange) {
        exchange.begin_stream(200, {});
        exchange.send("a");
      });
}

TEST(HttpStream, AHalfClosedClientGetsItsAnswers) {
  HeldServer server;
  RawClient client = server.client();
  client.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
  client.half_close();
  auto first = server.take();
  // The server asks whether the client is there, and goes on.
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_FALSE(first->closed());
  first->respond({200, {}, "one"});
  EXPECT_EQ(client.read_response().body, "one");
  auto second = server.take();
  second->begin_stream(200, {});
  for (int i = 0; i < 1000; ++i) second->send("two");
  second->end_stream();
  const RawResponse response = client.read_response();
  EXPECT_TRUE(response.complete);
  EXPECT_EQ(response.body.size(), 3000u);
  EXPECT_TRUE(client.at_end());
}

TEST(HttpStream, AHalfClosedClientOfHttp10GetsItsAnswerAlone) {
  HeldServer server;
  RawClient client = server.client();
  client.send("GET / HTTP/1.0\r\n\r\n");
  client.half_close();
  auto exchange = server.take();
  // Another closed its half later and was asked, so what the server does about the first is done.
  RawClient later = server.asking_client();
  later.half_close();
  EXPECT_EQ(later.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  exchange->respond({200, {}, "one"});
  EXPECT_EQ(client.read_response().body, "one");
  EXPECT_EQ(client.continues(), 0) << "HTTP/1.0 knows no answer before the answer";
}

TEST(HttpStream, CallsAfterTheEndDoNothing) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  std::atomic<int> calls{0};
  exchange->on_closed([&] { ++calls; });
  exchange->respond({200, {}, "x"});
  EXPECT_EQ(client.read_response().body, "x");
  EXPECT_TRUE(eventually([&] { return server->exchanges() == 0; }));
  exchange->abort();
  exchange->on_drained([&] { ++calls; });
  exchange->on_closed([&] { ++calls; });
  EXPECT_EQ(exchange->unsent_bytes(), 0u);
  server.end();
  exchange->post([&] { ++calls; });
  exchange->post_after(milliseconds(0), [&] { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(HttpStream, TwoHundredStreamsAtOnceKeepApart) {
  constexpr int kStreams = 200, kPieces = 200, kProducers = 4;
  HttpServerOptions options = on_a_free_port();
  options.io_threads = 2;
  HeldServer server(options);
  std::vector<RawClient> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(server.client());
    clients.back().send("GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }
  std::vector<std::shared_ptr<HttpExchange>> exchanges;
  for (int i = 0; i < kStreams; ++i) exchanges.push_back(server.take());
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      std::mt19937 random(static_cast<unsigned>(p));
      for (int i = p; i < kStreams; i += kProducers) exchanges[static_cast<size_t>(i)]->begin_stream(200, sse_headers());
      for (int piece = 0; piece < kPieces; ++piece) {
        for (int i = p; i < kStreams; i += kProducers) {
          auto& exchange = exchanges[static_cast<size_t>(i)];
          exchange->send(sse_data(exchange->request().path + " " + std::to_string(piece) + std::string(random() % 50, '.')));
        }
      }
      for (int i = p; i < kStreams; i += kProducers) exchanges[static_cast<size_t>(i)]->end_stream();
    });
  }
  for (std::thread& producer : producers) producer.join();
  for (int i = 0; i < kStreams; ++i) {
    const RawResponse response = clients[static_cast<size_t>(i)].read_response();
    ASSERT_TRUE(response.complete);
    size_t at = 0;
    for (int piece = 0; piece < kPieces; ++piece) {
      const std::string wanted = "data: /" + std::to_string(i) + " " + std::to_string(piece);
      ASSERT_EQ(response.body.substr(at, wanted.size()), wanted);
      at = response.body.find("\n\n", at) + 2;
    }
    ASSERT_EQ(at, response.body.size());
  }
}

}  // namespace
}  // namespace choral::serve
