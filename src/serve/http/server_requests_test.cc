// How requests become exchanges and come back as answers: keep-alive, order, limits, refusals. Real sockets.
#include <gmock/gmock.h>

#include <atomic>
#include <tuple>

#include "serve/http/test_server_test.h"

namespace choral::serve {
namespace {

using std::chrono::milliseconds;
using testing::echo;
using ::testing::HasSubstr;
using testing::Held;
using testing::HeldServer;
using testing::on_a_free_port;
using testing::RawClient;
using testing::RawResponse;
using testing::serve;
using ::testing::StartsWith;

TEST(HttpServer, AnswersARequest) {
  const auto server = serve(echo);
  EXPECT_GT(server->port(), 0);
  EXPECT_THAT(server->addresses(), ::testing::ElementsAre("http://127.0.0.1:" + std::to_string(server->port())));
  RawClient client = RawClient::tcp(server->port());
  client.send("POST /a%20b?q=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "POST /a b q=1 hello");
  EXPECT_EQ(response.headers.get("Content-Type"), "text/plain");
  EXPECT_NE(response.headers.get("Date"), "");
  EXPECT_EQ(response.headers.find("Connection"), nullptr);
}

TEST(HttpServer, TellsWhoAsks) {
  const auto server = serve([](const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& request = exchange->request();
    exchange->respond({200, {}, request.peer + (request.loopback ? " here" : " there") + (request.tls ? " tls" : "")});
  });
  RawClient client = RawClient::tcp(server->port());
  const std::string body = client.get("/").body;
  EXPECT_THAT(body, StartsWith("127.0.0.1:"));
  EXPECT_THAT(body, HasSubstr(" here"));
}

TEST(HttpServer, KeepsConnectionsAndClosesThemWhenAsked) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.get("/" + std::to_string(i)).body, "GET /" + std::to_string(i) + "  ");
  EXPECT_EQ(server->connections(), 1);
  const RawResponse last = client.get("/", "Connection: close\r\n");
  EXPECT_EQ(last.status, 200);
  EXPECT_EQ(last.headers.get("Connection"), "close");
  EXPECT_TRUE(client.at_end());
  client.close();
  EXPECT_TRUE(testing::eventually([&] { return server->connections() == 0; }));
}

TEST(HttpServer, SpeaksHttp10) {
  const auto server = serve(echo);
  RawClient once = RawClient::tcp(server->port());
  once.send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(once.read_response().headers.get("Connection"), "close");
  EXPECT_TRUE(once.at_end());
  RawClient again = RawClient::tcp(server->port());
  for (int i = 0; i < 3; ++i) {
    again.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(again.read_response().headers.get("Connection"), "keep-alive");
  }
}

TEST(HttpServer, AnswersHeadWithoutABody) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  client.send("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n");
  const RawResponse response = client.read_response(true);
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.get("Content-Length"), "9");
  EXPECT_EQ(client.get("/b").body, "GET /b  ") << "nothing of the first answer's body stands before the second";
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  HeldServer server;
  RawClient client = server.client();
  std::string requests;
  for (int i = 0; i < 1000; ++i)
    requests += "GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";  // more than is read ahead
  std::thread sender([&] { client.send(requests); });
  for (int i = 0; i < 1000; ++i) {
    auto exchange = server.take();
    EXPECT_EQ(server.count(), 0u) << "the next request waits for the answer";
    EXPECT_EQ(exchange->request().path, "/" + std::to_string(i));
    exchange->respond({200, {}, exchange->request().path});
  }
  sender.join();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.read_response().body, "/" + std::to_string(i));
}

TEST(HttpServer, AConnectionThatNeverRestsLeavesOthersTheirTurn) {
  const auto server = serve(echo);
  RawClient greedy = RawClient::tcp(server->port()), patient = RawClient::tcp(server->port());
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    std::string requests;
    for (int i = 0; i < 200; ++i) requests += "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    while (!stop && greedy.send(requests)) {
    }
    greedy.half_close();
  });
  std::thread reader([&] { greedy.read_to_end(); });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(patient.get("/").status, 200);
  stop = true;
  sender.join();
  reader.join();
}

TEST(HttpServer, ReadsChunkedBodiesByteByByte) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  for (const char c :
       std::string("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n")) {
    client.send({&c, 1});
  }
  EXPECT_EQ(client.read_response().body, "POST /  abcdefg");
  EXPECT_EQ(client.get("/").status, 200);
}

TEST(HttpServer, TakesLargeBodies) {
  const auto server = serve([](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->respond({200, {}, exchange->request().body});
  });
  RawClient client = RawClient::tcp(server->port());
  std::string body(20 << 20, 'x');
  for (size_t i = 0; i < body.size(); i += 997) body[i] = static_cast<char>('a' + i % 26);
  std::thread sender(
      [&] { client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body); });
  EXPECT_TRUE(client.read_response().body == body);
  sender.join();
}

TEST(HttpServer, AsksForTheBodyThatWaits) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_EQ(client.read_response().body, "POST /  ok");
  client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nok");
  EXPECT_EQ(client.read_response().body, "POST /  ok");
  EXPECT_EQ(client.continues(), 0) << "a body that is there is not asked for";
  client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 999999999\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413) << "nor one that is too large";
  EXPECT_EQ(client.continues(), 0);
}

TEST(HttpServer, RefusesInOpenAIsShapeAndCloses) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.headers.get("Content-Type"), "application/json");
  EXPECT_EQ(response.headers.get("Connection"), "close");
  EXPECT_EQ(response.body,
            R"({"error":{"message":"the request cannot be read: HTTP/1.1 wants a Host header","type":"invalid_request_error",)"
            R"("param":null,"code":"malformed_request"}})");
  EXPECT_TRUE(client.at_end());
}

TEST(HttpServer, ManyMegabytesOfHeadersAreRefusedAndHeard) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  std::thread sender([&] {
    client.send("GET / HTTP/1.1\r\nHost: x\r\nA: ");
    for (int i = 0; i < 160; ++i) client.send(std::string(65536, 'b'));
  });
  EXPECT_EQ(client.read_response().status, 431);
  sender.join();
  RawClient other = RawClient::tcp(server->port());
  EXPECT_EQ(other.get("/").status, 200);
}

TEST(HttpServer, ABodyOverTheLimitIsRefusedWhileItComes) {
  HttpServerOptions options = on_a_free_port();
  options.limits.body_bytes = 1 << 20;
  const auto server = serve(options, echo);
  RawClient client = RawClient::tcp(server->port());
  std::thread sender([&] {
    client.send("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 64; ++i) client.send("10000\r\n" + std::string(65536, 'b') + "\r\n");
  });
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 413);
  EXPECT_THAT(response.body, HasSubstr("request_body_too_large"));
  sender.join();
}

TEST(HttpServer, SlowHeadersAndBodiesRunOutOfTime) {
  HttpServerOptions options = on_a_free_port();
  options.limits.header_time = milliseconds(100);
  options.limits.body_time = milliseconds(100);
  const auto server = serve(options, echo);
  RawClient head = RawClient::tcp(server->port()), body = RawClient::tcp(server->port());
  head.send("GET / HTT");
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  const RawResponse slow_head = head.read_response(), slow_body = body.read_response();
  EXPECT_EQ(slow_head.status, 408);
  EXPECT_THAT(slow_head.body, HasSubstr("headers took longer than 0.1 s"));
  EXPECT_EQ(slow_body.status, 408);
  EXPECT_THAT(slow_body.body, HasSubstr("body took longer than 0.1 s"));
  RawClient drip = RawClient::tcp(server->port());  // a byte now and then buys no time
  std::atomic<bool> answered{false};
  std::thread sender([&] {
    while (!answered && drip.send("X")) std::this_thread::sleep_for(milliseconds(5));
  });
  EXPECT_EQ(drip.read_response().status, 408);
  answered = true;
  sender.join();
}

TEST(HttpServer, IdleConnectionsAreClosedSilently) {
  HttpServerOptions options = on_a_free_port();
  options.limits.idle_time = milliseconds(50);
  const auto server = serve(options, echo);
  RawClient silent = RawClient::tcp(server->port()), used = RawClient::tcp(server->port());
  EXPECT_EQ(used.get("/").status, 200);
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_EQ(used.read_to_end(), "");
}

TEST(HttpServer, AHeadCanBeRefusedBeforeItsBody) {
  std::atomic<int> handled{0};
  const auto server = serve(
      on_a_free_port(),
      [&](const std::shared_ptr<HttpExchange>& exchange) {
        ++handled;
        exchange->respond({});
      },
      [](const HttpRequest& head) -> std::optional<HttpResponse> {
        if (head.headers.get("Authorization") == "Bearer k") return std::nullopt;
        return HttpResponse{401, {{"WWW-Authenticate", "Bearer"}}, "no"};
      });
  RawClient client = RawClient::tcp(server->port());
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.get("/").status, 401) << "without a body the connection goes on";
  EXPECT_EQ(client.get("/", "Authorization: Bearer k\r\n").status, 200);
  client.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
  const RawResponse refused = client.read_response();
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.headers.get("Connection"), "close") << "what follows would be the body";
  EXPECT_EQ(client.continues(), 0);
  EXPECT_EQ(handled, 1);
}

// Throws, as a library might.
void a_fault_in_a_test() { std::ignore = std::stoi("a_fault"); }

TEST(HttpServer, FaultsOfHandlersStayTheirOwn) {
  const auto server = serve([](const std::shared_ptr<HttpExchange>& exchange) {
    const std::string& path = exchange->request().path;
    if (path == "/throw") a_fault_in_a_test();
    if (path == "/late") {
      exchange->begin_stream(200, {});
      exchange->send("begun");
      a_fault_in_a_test();
    }
    if (path == "/callback") {
      exchange->post([] { a_fault_in_a_test(); });
      exchange->on_drained([] { a_fault_in_a_test(); });
      exchange->post_after(milliseconds(1), [exchange] { exchange->respond({200, {}, "fine"}); });
    }
  });  // any other path is dropped unanswered
  RawClient client = RawClient::tcp(server->port());
  for (const char* path : {"/throw", "/dropped"}) {
    const RawResponse response = client.get(path);
    EXPECT_EQ(response.status, 500) << path;
    EXPECT_THAT(response.body, HasSubstr("\"type\":\"server_error\""));
    EXPECT_THAT(response.body, ::testing::Not(HasSubstr("stoi"))) << "the reason is the log's";
  }
  EXPECT_EQ(client.get("/callback").body, "fine");
  EXPECT_FALSE(client.get("/late").complete);
  RawClient other = RawClient::tcp(server->port());
  EXPECT_EQ(other.get("/callback").body, "fine");
}

TEST(HttpServer, AFaultWinsOverAnAnswerThatComesLater) {
  Held held;
  auto server = serve([&, hold = held.handler()](const std::shared_ptr<HttpExchange>& exchange) {
    hold(exchange);
    a_fault_in_a_test();
  });
  RawClient client = RawClient::tcp(server->port());
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = held.take();
  EXPECT_EQ(client.read_response().status, 500);
  exchange->respond({200, {}, "too late"});
  exchange->begin_stream(200, {});
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 500);
}

TEST(HttpServer, AConnectionThatEndsInsideARequestIsTold) {
  const auto server = serve(echo);
  RawClient client = RawClient::tcp(server->port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  client.half_close();
  EXPECT_EQ(client.read_response().status, 400);
  RawClient silent = RawClient::tcp(server->port());
  silent.half_close();
  EXPECT_EQ(silent.read_to_end(), "");
}

TEST(HttpServer, TellsOfEveryRefusal) {
  HttpServerOptions options = on_a_free_port();
  options.limits.header_time = milliseconds(50);
  std::mutex mutex;
  std::vector<std::string> told;
  const auto server = HttpServer::start(
      options, echo,
      [](const HttpRequest& head) -> std::optional<HttpResponse> {
        if (head.path == "/closed") return HttpResponse{403, {}, ""};
        return std::nullopt;
      },
      [&](const HttpRequest& known, const HttpResponse& refusal) {
        const std::lock_guard lock(mutex);
        told.push_back(known.method + " " + known.path + " " + std::to_string(refusal.status) + (known.loopback ? " here" : ""));
      });
  ASSERT_TRUE(server.ok());
  const auto ask = [&](std::string_view bytes) {
    RawClient client = RawClient::tcp((*server)->port());
    client.send(bytes);
    client.read_response();
  };
  ask("GET /fine HTTP/1.1\r\nHost: x\r\n\r\n");
  ask("GET /closed HTTP/1.1\r\nHost: x\r\n\r\n");
  ask("GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n");
  ask("GET /slow HTTP/1.1\r\nHost: ");
  ask("nonsense\r\n\r\n");
  const std::lock_guard lock(mutex);
  EXPECT_THAT(told, ::testing::ElementsAre("GET /closed 403 here", "GET /a 400 here", "GET /slow 408 here", "  400 here"));
}

TEST(HttpServer, HeadersOfAnAnswerCannotEndItEarly) {
  const auto server = serve([](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->respond(
        {200, {{"X-Id", std::string(exchange->request().headers.get("X-Id")) + "\r\n\r\nx"}, {"Connection", "close"}}, "body"});
  });
  RawClient client = RawClient::tcp(server->port());
  const RawResponse response = client.get("/", "X-Id: i\r\n");
  EXPECT_EQ(response.headers.get("X-Id"), "i    x");
  EXPECT_EQ(response.body, "body");
  EXPECT_TRUE(client.at_end()) << "the handler asked to close";
}

}  // namespace
}  // namespace choral::serve
