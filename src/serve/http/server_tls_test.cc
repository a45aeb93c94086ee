// The same server behind TLS. Certificates are made here; the client is OpenSSL's own.
#include <gmock/gmock.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <signal.h>

#include <atomic>

#include "serve/http/sse.h"
#include "serve/http/test_server_test.h"
#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using testing::echo;
using testing::eventually;
using ::testing::HasSubstr;
using testing::HeldServer;
using testing::on_a_free_port;
using testing::RawClient;
using testing::serve;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;

struct Identity {
  Key key;
  Certificate certificate;
};

// Signed by itself, and its own authority.
Identity make_identity(const char* name) {
  Identity made{Key(EVP_EC_gen("P-256")), Certificate(X509_new())};
  X509* const x509 = made.certificate.get();
  X509_set_version(x509, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x509), 1);
  X509_gmtime_adj(X509_getm_notBefore(x509), -60);
  X509_gmtime_adj(X509_getm_notAfter(x509), 3600);
  X509_set_pubkey(x509, made.key.get());
  X509_NAME* const subject = X509_get_subject_name(x509);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
  X509_set_issuer_name(x509, subject);
  CHORAL_CHECK(X509_sign(x509, made.key.get(), EVP_sha256()) > 0, "no certificate");
  return made;
}

template <class Write>
std::string pem(Write&& write) {
  const std::unique_ptr<BIO, Freed<BIO_free_all>> bio(BIO_new(BIO_s_mem()));
  CHORAL_CHECK(write(bio.get()) == 1, "no PEM");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}
std::string pem_of(const Certificate& certificate) {
  return pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate.get()); });
}
std::string pem_of(const Key& key) {
  return pem([&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
}
std::string locked_pem_of(const Key& key) {
  return pem(
      [&](BIO* bio) { return PEM_write_bio_PKCS8PrivateKey(bio, key.get(), EVP_aes_256_cbc(), "secret", 6, nullptr, nullptr); });
}

// OpenSSL's client writes with write(): where the server closed first, that would end the test. The server's threads are there by
// now and keep the signal.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before_);
  }
  ~WithoutPipeSignal() {
    const timespec none{};
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (sigtimedwait(&pipe, nullptr, &none) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t before_{};
};

class TlsClient {
 public:
  TlsClient(int port, const Identity& trusted, const Identity* shown = nullptr, int highest_version = 0)
      : raw_(RawClient::tcp(port)), context_(SSL_CTX_new(TLS_client_method())) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context_.get()), trusted.certificate.get());
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (highest_version != 0) SSL_CTX_set_max_proto_version(context_.get(), highest_version);
    if (highest_version != 0 && highest_version < TLS1_2_VERSION) SSL_CTX_set_security_level(context_.get(), 0);
    if (shown != nullptr) {
      SSL_CTX_use_certificate(context_.get(), shown->certificate.get());
      SSL_CTX_use_PrivateKey(context_.get(), shown->key.get());
    }
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), raw_.fd());
  }
  bool connect() { return SSL_connect(ssl_.get()) == 1; }
  std::string version() const { return SSL_get_version(ssl_.get()); }
  bool send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) == static_cast<int>(bytes.size());
  }
  std::string read_until(std::string_view mark) {
    while (received_.find(mark) == std::string::npos) {
      char bytes[16384];
      const int n = SSL_read(ssl_.get(), bytes, sizeof bytes);
      if (n <= 0) return std::exchange(received_, {});
      received_.append(bytes, static_cast<size_t>(n));
    }
    const size_t end = received_.find(mark) + mark.size();
    std::string taken = received_.substr(0, end);
    received_.erase(0, end);
    return taken;
  }
  // The server ended it in TLS's own words.
  bool said_goodbye() { return SSL_get_shutdown(ssl_.get()) == SSL_RECEIVED_SHUTDOWN; }
  void half_close() { SSL_shutdown(ssl_.get()); }
  RawClient& raw() { return raw_; }

 private:
  const WithoutPipeSignal quiet_;
  RawClient raw_;
  Context context_;
  std::unique_ptr<SSL, Freed<SSL_free>> ssl_;
  std::string received_;
};

class HttpTls : public ::testing::Test {
 protected:
  HttpServerOptions options() {
    HttpServerOptions made = on_a_free_port();
    made.tls =
        TlsOptions{folder_.write("cert.pem", pem_of(server_.certificate)), folder_.write("key.pem", pem_of(server_.key)), ""};
    return made;
  }

  const choral::testing::TempDir folder_;
  const Identity server_ = make_identity("localhost");
  const Identity client_ = make_identity("a client");
};

TEST_F(HttpTls, AnswersRequests) {
  const auto server = serve(options(), [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->respond({200, {}, exchange->request().tls ? "tls " + exchange->request().body : "plain"});
  });
  EXPECT_THAT(server->addresses()[0], ::testing::StartsWith("https://127.0.0.1:"));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server->port(), server_, nullptr, version);
    ASSERT_TRUE(client.connect());
    for (int i = 0; i < 3; ++i) {
      client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nok");
      EXPECT_THAT(client.read_until("tls ok"), ::testing::EndsWith("\r\n\r\ntls ok"));
    }
    client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    client.read_until("to the end");
    EXPECT_TRUE(client.said_goodbye());
  }
}

TEST_F(HttpTls, OldVersionsAreRefused) {
  const auto server = serve(options(), echo);
  EXPECT_FALSE(TlsClient(server->port(), server_, nullptr, TLS1_1_VERSION).connect());
}

TEST_F(HttpTls, CarriesLargeBodiesAndStreams) {
  HeldServer server(options());
  TlsClient client(server->port(), server_);
  ASSERT_TRUE(client.connect());
  const std::string body(5 << 20, 'b');
  std::thread sender(
      [&] { client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body); });
  auto exchange = server.take();
  sender.join();
  EXPECT_TRUE(exchange->request().body == body);
  exchange->begin_stream(200, sse_headers());
  std::string expected;
  std::thread producer([&] {
    for (int i = 0; i < 5000; ++i) exchange->send(sse_data(std::to_string(i) + std::string(1000, '.')));
    exchange->end_stream();
  });
  const std::string all = client.read_until("\r\n0\r\n\r\n");
  producer.join();
  for (int i = 0; i < 5000; ++i) ASSERT_NE(all.find("data: " + std::to_string(i) + "."), std::string::npos) << i;
}

TEST_F(HttpTls, AClientThatLeavesIsNoticed) {
  HeldServer server(options());
  for (const bool with_goodbye : {true, false}) {
    TlsClient client(server->port(), server_);
    ASSERT_TRUE(client.connect());
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    auto exchange = server.take();
    std::atomic<int> closed{0};
    exchange->on_closed([&] { ++closed; });
    if (with_goodbye) client.half_close();
    client.raw().close();
    EXPECT_TRUE(eventually([&] { return closed == 1; }));
  }
}

TEST_F(HttpTls, AHalfClosedClientGetsItsAnswer) {
  HeldServer server(options());
  TlsClient client(server->port(), server_);
  ASSERT_TRUE(client.connect());
  client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  auto exchange = server.take();
  client.half_close();
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  exchange->respond({200, {}, "still here"});
  EXPECT_THAT(client.read_until("still here"), ::testing::EndsWith("still here"));
}

TEST_F(HttpTls, PlainRequestsAreTold) {
  const auto server = serve(options(), echo);
  RawClient client = RawClient::tcp(server->port());
  const auto response = client.get("/");
  EXPECT_EQ(response.status, 400);
  EXPECT_THAT(response.body, HasSubstr("use https"));
}

TEST_F(HttpTls, GarbageAndSlowHandshakesEnd) {
  HttpServerOptions made = options();
  made.limits.header_time = std::chrono::milliseconds(100);
  const auto server = serve(made, echo);
  RawClient garbage = RawClient::tcp(server->port()), slow = RawClient::tcp(server->port());
  garbage.send(std::string(1000, '\x16'));
  slow.send("\x16\x03\x01");
  garbage.read_to_end();
  slow.read_to_end();
  EXPECT_TRUE(eventually([&] { return server->connections() == 0; }));
}

TEST_F(HttpTls, ClientsCanBeAskedForACertificate) {
  HttpServerOptions made = options();
  made.tls->client_ca_file = folder_.write("clients.pem", pem_of(client_.certificate));
  const auto server = serve(made, echo);
  TlsClient known(server->port(), server_, &client_);
  ASSERT_TRUE(known.connect());
  known.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(known.read_until("GET /"), HasSubstr("200 OK"));
  for (const Identity* shown : {static_cast<const Identity*>(nullptr), &server_}) {
    TlsClient unknown(server->port(), server_, shown);
    unknown.connect();  // in TLS 1.3 the refusal comes after it
    unknown.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(unknown.read_until("GET /"), "");
  }
}

TEST_F(HttpTls, ItsCertificateIsReadAgain) {
  const auto server = serve(options(), echo);
  const std::string request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  TlsClient before(server->port(), server_);
  ASSERT_TRUE(before.connect());

  const Identity renewed = make_identity("localhost");
  folder_.write("cert.pem", pem_of(renewed.certificate));  // the key does not belong to it yet
  EXPECT_THAT(server->reload_certificate().message(), HasSubstr("key.pem"));
  TlsClient meanwhile(server->port(), server_);
  EXPECT_TRUE(meanwhile.connect()) << "files that cannot be used took the certificate away";

  folder_.write("key.pem", pem_of(renewed.key));
  ASSERT_TRUE(server->reload_certificate().ok());
  TlsClient after(server->port(), renewed);
  ASSERT_TRUE(after.connect());
  TlsClient outdated(server->port(), server_);
  EXPECT_FALSE(outdated.connect()) << "the old certificate is still shown";
  for (TlsClient* client : {&before, &meanwhile, &after}) {
    client->send(request);
    EXPECT_THAT(client->read_until("GET /"), HasSubstr("200 OK")) << "a connection was lost";
  }
}

TEST_F(HttpTls, FilesThatCannotBeUsedAreNamed) {
  const auto error_of = [](HttpServerOptions made) {
    auto server = HttpServer::start(std::move(made), echo);
    return server.ok() ? std::string("none") : server.status().message();
  };
  HttpServerOptions made = options();
  made.tls->certificate_file = folder_ / "absent.pem";
  EXPECT_THAT(error_of(made), HasSubstr("absent.pem\" cannot be read as PEM"));
  made = options();
  made.tls->certificate_file = folder_.write("bad.pem", "no certificate");
  EXPECT_THAT(error_of(made), HasSubstr("bad.pem\" cannot be read as PEM"));
  made = options();
  made.tls->key_file = folder_.write("other.pem", pem_of(client_.key));
  EXPECT_THAT(error_of(made), HasSubstr("other.pem\" cannot be used with the certificate"));
  made.tls->key_file = folder_.write("locked.pem", locked_pem_of(server_.key));
  EXPECT_THAT(error_of(made), HasSubstr("locked.pem\" has a passphrase"));
  made = options();
  made.tls->client_ca_file = folder_ / "nobody.pem";
  EXPECT_THAT(error_of(made), HasSubstr("nobody.pem\" cannot be read as PEM"));
}

}  // namespace
}  // namespace choral::serve
