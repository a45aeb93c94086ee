// A server's beginning and end, and what it does when something runs out. Real sockets.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "serve/http/test_server_test.h"
#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using std::chrono::milliseconds;
using testing::echo;
using testing::eventually;
using ::testing::HasSubstr;
using testing::HeldServer;
using testing::on_a_free_port;
using testing::RawClient;
using testing::RawResponse;
using testing::serve;

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t all = 0, resident = 0;
  in >> all >> resident;
  return resident * 4096;
}

Status start_error(const HttpServerOptions& options) {
  auto server = HttpServer::start(options, echo);
  return server.ok() ? Status() : server.status();
}

TEST(HttpServerLife, ATakenPortNamesItsHolder) {
  const auto server = serve(echo);
  HttpServerOptions options;
  options.port = server->port();
  std::string program;
  std::ifstream("/proc/self/comm") >> program;
  const Status status = start_error(options);
  EXPECT_EQ(status.code(), Code::kAlreadyExists);
  EXPECT_THAT(status.message(),
              HasSubstr(fmt::format("cannot listen on 127.0.0.1:{}: the port is taken by {} (process {}); stop what holds it",
                                    server->port(), program, getpid())));
}

TEST(HttpServerLife, APortIsFreeAgainAtOnce) {
  auto server = serve(echo);
  HttpServerOptions options;
  options.port = server->port();
  RawClient client = RawClient::tcp(server->port());
  EXPECT_EQ(client.get("/").status, 200);
  server.reset();  // closes first: the port is left in TIME_WAIT
  EXPECT_TRUE(start_error(options).ok());
}

TEST(HttpServerLife, WrongAddressesAreTold) {
  HttpServerOptions options;
  options.host = "203.0.113.77";  // of no machine
  EXPECT_THAT(start_error(options).message(), HasSubstr("203.0.113.77:8000: this machine does not have that address"));
  options.host = "not a host";
  EXPECT_THAT(start_error(options).message(), HasSubstr("cannot listen on the host \"not a host\""));
  options.host = "127.0.0.1";
  options.port = 65536;
  EXPECT_THAT(start_error(options).message(), HasSubstr("port 65536"));
  options.host = "";
  EXPECT_THAT(start_error(options).message(), HasSubstr("nowhere to listen"));
}

TEST(HttpServerLife, ListensOnAllAddressesOfAName) {
  HttpServerOptions options = on_a_free_port();
  options.host = "localhost";
  const auto server = serve(options, echo);
  EXPECT_GE(server->addresses().size(), 1u);
  RawClient client = RawClient::tcp(server->port());
  EXPECT_EQ(client.get("/").status, 200);
}

TEST(HttpServerLife, ListensOnAUnixSocket) {
  const choral::testing::TempDir folder;
  HttpServerOptions options;
  options.host = "";
  options.unix_path = folder / "s.sock";
  auto server = serve(options, [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->respond({200, {}, exchange->request().peer + (exchange->request().loopback ? " here" : " there")});
  });
  EXPECT_EQ(server->port(), 0);
  EXPECT_THAT(server->addresses(), ::testing::ElementsAre("unix:" + options.unix_path));
  struct stat file {};
  ASSERT_EQ(::stat(options.unix_path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  RawClient client = RawClient::unix_socket(options.unix_path);
  EXPECT_EQ(client.get("/").body, "unix here");
  EXPECT_THAT(start_error(options).message(), HasSubstr("another program listens there"));
  server.reset();
  EXPECT_FALSE(std::filesystem::exists(options.unix_path));
}

TEST(HttpServerLife, AStaleUnixSocketIsReplacedAndNothingElse) {
  const choral::testing::TempDir folder;
  HttpServerOptions options;
  options.host = "";
  options.unix_path = folder / "s.sock";
  {
    const OwnedFd left(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    options.unix_path.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(left.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(std::filesystem::exists(options.unix_path));
  {
    const auto server = serve(options, echo);
    RawClient client = RawClient::unix_socket(options.unix_path);
    EXPECT_EQ(client.get("/").status, 200);
    std::filesystem::remove(options.unix_path);
    folder.write("s.sock", "somebody else's");
  }
  EXPECT_TRUE(std::filesystem::exists(options.unix_path)) << "what is not the server's stays";
  EXPECT_THAT(start_error(options).message(), HasSubstr("there is a file of that name that is no socket"));
  options.unix_path = folder / std::string(200, 'p');
  EXPECT_THAT(start_error(options).message(), HasSubstr("has 1 to 107 bytes"));
  options.unix_path = folder / "absent/s.sock";
  EXPECT_THAT(start_error(options).message(), HasSubstr("No such file or directory"));
}

TEST(HttpServerLife, ACloseOfAUnixClientIsNoticed) {
  const choral::testing::TempDir folder;
  HttpServerOptions options;
  options.host = "";
  options.unix_path = folder / "s.sock";
  HeldServer server(options);
  RawClient half = RawClient::unix_socket(options.unix_path), whole = RawClient::unix_socket(options.unix_path);
  half.send("GET /half HTTP/1.1\r\nHost: x\r\n\r\n");
  auto answered = server.take();
  whole.send("GET /whole HTTP/1.1\r\nHost: x\r\n\r\n");
  auto left = server.take();
  std::atomic<int> closed{0};
  left->on_closed([&] { ++closed; });
  half.half_close();
  whole.close();
  EXPECT_TRUE(eventually([&] { return closed == 1; }));
  answered->respond({200, {}, "half"});
  EXPECT_EQ(half.read_response().body, "half");
}

TEST(HttpServerLife, OneConnectionTooManyIsTold) {
  HttpServerOptions options = on_a_free_port();
  options.limits.max_connections = 2;
  const auto server = serve(options, echo);
  RawClient first = RawClient::tcp(server->port()), second = RawClient::tcp(server->port());
  EXPECT_EQ(first.get("/").status, 200);
  EXPECT_EQ(second.get("/").status, 200);
  RawClient third = RawClient::tcp(server->port());
  const RawResponse refused = third.read_response();
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.body, HasSubstr("as many connections as it may have"));
  EXPECT_EQ(refused.headers.get("X-Request-Id").size(), 24u);
  first.close();
  ASSERT_TRUE(eventually([&] { return server->connections() == 1; }));
  RawClient fourth = RawClient::tcp(server->port());
  EXPECT_EQ(fourth.get("/").status, 200);
}

TEST(HttpServerLife, WithoutFileDescriptorsItWaitsForSome) {
  const auto server = serve(echo);
  std::vector<RawClient> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(RawClient::tcp(server->port()));
  ASSERT_TRUE(eventually([&] { return server->connections() == 4; }));
  RawClient extra = RawClient::tcp(server->port());  // its own descriptor, and one at the server
  ASSERT_TRUE(eventually([&] { return server->connections() == 5; }));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  {
    OwnedFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    // One more may be opened: the client's end of a connection. None is left for the server's.
    const rlimit tight{static_cast<rlim_t>(next.get()) + 1, before.rlim_max};
    next.reset();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  }
  RawClient waiting = RawClient::tcp(server->port());
  waiting.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(clients[0].get("/").status, 200) << "who is connected is served";
  // A busy machine gives this process less of its time, never more: so this can overlook a spin, but not make one up.
  rusage used_before{}, used_after{};
  ::getrusage(RUSAGE_SELF, &used_before);
  EXPECT_FALSE(waiting.readable(500));
  ::getrusage(RUSAGE_SELF, &used_after);
  const auto cpu_ms = [](const rusage& usage) {
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  EXPECT_LT(cpu_ms(used_after) - cpu_ms(used_before), 250) << "it spins";
  clients[1].close();
  EXPECT_EQ(waiting.read_response().status, 200) << "a connection that closed made room";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(HttpServerLife, TwoThousandIdleConnectionsNeedLittle) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  constexpr int kConnections = 2000;
  if (limit.rlim_max < 2 * kConnections + 100) GTEST_SKIP() << "needs " << 2 * kConnections + 100 << " open files";
  limit.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 2 * kConnections + 100);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  const auto server = serve(echo);
  RawClient first = RawClient::tcp(server->port());
  EXPECT_EQ(first.get("/").status, 200);
  std::vector<RawClient> clients;
  clients.reserve(kConnections);
  const int64_t before = resident_bytes();
  for (int i = 0; i < kConnections; ++i) clients.push_back(RawClient::tcp(server->port()));
  ASSERT_TRUE(eventually([&] { return server->connections() == kConnections + 1; }));
  const int64_t silent = resident_bytes() - before;
  for (RawClient& client : clients) ASSERT_EQ(client.get("/").status, 200);
  const int64_t used = resident_bytes() - before;
  std::printf("%d idle connections: %.1f KiB each when silent, %.1f KiB after a request (the clients' side included)\n",
              kConnections, static_cast<double>(silent) / kConnections / 1024, static_cast<double>(used) / kConnections / 1024);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  EXPECT_LT(used, int64_t{60} << 20);
#endif
}

TEST(HttpServerLife, DrainingLetsAnswersEndAndTakesNoMore) {
  HeldServer server;
  RawClient idle = server.client(), busy = server.client();
  busy.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = server.take();
  ASSERT_TRUE(eventually([&] { return server->connections() == 2; }));
  server->stop_accepting();
  server->drain();
  EXPECT_TRUE(idle.at_end());
  const OwnedFd refused(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(refused.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), -1);
  EXPECT_FALSE(exchange->closed());
  exchange->respond({200, {}, "last"});
  const RawResponse response = busy.read_response();
  EXPECT_EQ(response.body, "last");
  EXPECT_EQ(response.headers.get("Connection"), "close");
  EXPECT_TRUE(busy.at_end());
  server->stop(milliseconds(60'000));
  EXPECT_EQ(server->connections(), 0);
}

TEST(HttpServerLife, StoppingWaitsForAnswers) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  std::thread answering([&, port = server->port()] {  // once it is being stopped
    EXPECT_TRUE(eventually([&] { return !RawClient::tcp_or_closed(port).open(); }));
    exchange->respond({200, {}, "soon"});
  });
  server->stop(std::chrono::minutes(10));
  answering.join();
  EXPECT_EQ(client.read_response().body, "soon");
  EXPECT_EQ(closed, 0);
  EXPECT_EQ(server->exchanges(), 0);
}

TEST(HttpServerLife, StoppingCutsOffWhatHasNoTime) {
  HeldServer server;
  RawClient client = server.asking_client();
  auto exchange = server.take();
  std::atomic<int> closed{0};
  exchange->on_closed([&] { ++closed; });
  exchange->begin_stream(200, {});
  exchange->send("begun");
  server->stop(milliseconds(1));
  EXPECT_FALSE(client.read_response().complete);
  EXPECT_EQ(closed, 1);
  EXPECT_TRUE(exchange->closed());
  exchange->send("too late");
  EXPECT_EQ(server->exchanges(), 0);
}

TEST(HttpServerLife, WorkThatWasPostedRunsBeforeTheEnd) {
  auto server = serve(echo);
  std::atomic<int> done{0};
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    server->post([&, i] {
      order.push_back(i);
      ++done;
    });
  }
  server->post_after(milliseconds(1), [&] { done += 10'000; });
  EXPECT_TRUE(eventually([&] { return done == 11'000; }));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  server->post_after(std::chrono::hours(1), [&] { done += 100'000; });
  server->post([&] { ++done; });
  server.reset();
  EXPECT_EQ(done, 11'001);
}

TEST(HttpServerLife, StopsUnderLoad) {
  for (int round = 0; round < 5; ++round) {
    HttpServerOptions options = on_a_free_port();
    options.io_threads = 2;
    std::atomic<int64_t> asked{0}, left{0};
    auto server = serve(options, [&](const std::shared_ptr<HttpExchange>& exchange) {
      ++asked;
      if (asked % 3 == 0) {
        exchange->begin_stream(200, {});
        for (int i = 0; i < 10; ++i) exchange->send("piece");
        exchange->on_closed([&left] { ++left; });
        exchange->post_after(milliseconds(1), [exchange] { exchange->end_stream(); });
      } else {
        exchange->respond({200, {}, "x"});
      }
    });
    std::atomic<bool> over{false};
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([&] {
        while (!over) {
          RawClient client = RawClient::tcp_or_closed(server->port());
          while (client.open() && client.get("/").complete) {
          }
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return asked > 500; }));
    server->stop(milliseconds(round % 2 == 0 ? 0 : 200));
    over = true;
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(server->connections(), 0);
    EXPECT_EQ(server->exchanges(), 0);
  }
}

}  // namespace
}  // namespace choral::serve
