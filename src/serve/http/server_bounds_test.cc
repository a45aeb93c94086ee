// What one client can take from others: memory of bodies, and the I/O thread's time. Real sockets.
#include <gmock/gmock.h>

#include "serve/http/peer.h"
#include "serve/http/test_server_test.h"

namespace choral::serve {
namespace {

using testing::echo;
using testing::Held;
using testing::on_a_free_port;
using testing::RawClient;
using testing::RawResponse;
using testing::serve;

std::string post(std::string_view client, size_t body_bytes) {
  return fmt::format("POST / HTTP/1.1\r\nHost: x\r\nX-Client: {}\r\nContent-Length: {}\r\n\r\n{}", client, body_bytes,
                     std::string(body_bytes, 'b'));
}

// A server that holds what has a large body and answers the rest, and tells clients apart by a header.
class BodyShares : public ::testing::Test {
 protected:
  static constexpr size_t kLarge = 2'000'000, kSmall = 60'000;

  BodyShares() {
    HttpServerOptions options = on_a_free_port();
    options.limits.all_bodies_bytes = 6 << 20;  // a large body takes 2 MiB of it
    server_ = serve(
        options,
        [this, hold = held_.handler()](const std::shared_ptr<HttpExchange>& exchange) {
          if (exchange->request().body.size() < kLarge) return exchange->respond({});
          hold(exchange);
        },
        [](HttpRequest& head) -> std::optional<HttpResponse> {
          if (const std::string* name = head.headers.find("X-Client")) head.payer = *name;
          return std::nullopt;
        });
  }

  // A client whose large body is taken, and not answered yet.
  RawClient holder(std::string_view name) {
    RawClient client = RawClient::tcp(server_->port());
    EXPECT_TRUE(client.send(post(name, kLarge)));
    exchanges_.push_back(held_.take());
    return client;
  }
  RawResponse ask(const std::string& request) {
    RawClient client = RawClient::tcp(server_->port());
    std::thread sender([&] { client.send(request); });
    RawResponse response = client.read_response();
    sender.join();
    return response;
  }

  Held held_;
  std::unique_ptr<HttpServer> server_;
  std::vector<std::shared_ptr<HttpExchange>> exchanges_;
};

TEST_F(BodyShares, OneClientLeavesRoomForAnother) {
  RawClient first = holder("a");
  const RawResponse refused = ask(post("a", kLarge));
  EXPECT_EQ(refused.status, 503) << "more than is left for others";
  EXPECT_EQ(refused.headers.get("Retry-After"), "1");
  RawClient other = holder("b");
  exchanges_.front()->respond({});
  exchanges_.erase(exchanges_.begin());
  EXPECT_EQ(first.read_response().status, 200);
  RawClient again = holder("a");  // what was answered counts no more
}

TEST_F(BodyShares, SmallRequestsAskForNothing) {
  const RawClient first = holder("a"), second = holder("b");
  EXPECT_EQ(ask(post("c", kLarge)).status, 503) << "all of it is taken";
  EXPECT_EQ(ask(post("a", kSmall)).status, 200);
  EXPECT_EQ(ask(post("c", kSmall)).status, 200);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\nX-Client: a\r\n\r\n").status, 200);
}

TEST(HttpServerBounds, ClientsAreToldApartByAddress) {
  const auto server = serve([](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->respond({200, {}, exchange->request().payer});
  });
  RawClient client = RawClient::tcp(server->port());
  EXPECT_EQ(client.get("/").body, kThisMachine);
}

// Whoever sends on behind a refusal is heard for so many bytes and no longer.
TEST(HttpServerBounds, ARefusedClientThatGoesOnSendingIsCutOff) {
  HttpServerOptions options = on_a_free_port();
  options.limits.dropped_bytes = 4 << 20;
  const auto server = serve(options, echo);
  RawClient client = RawClient::tcp(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 400);
  const std::string piece(1 << 20, 'x');
  constexpr int kInSystemsBuffers = 32;
  int sent = 0;
  while (sent < 4 + 2 * kInSystemsBuffers && client.send(piece)) ++sent;
  EXPECT_GE(sent, 4);
  EXPECT_LE(sent, 4 + kInSystemsBuffers);
  RawClient other = RawClient::tcp(server->port());
  EXPECT_EQ(other.get("/").status, 200);
}

}  // namespace
}  // namespace choral::serve
