#include "serve/http/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "base/printable.h"

namespace choral::serve {
namespace {

// Bytes between OpenSSL and a socket. Its own socket BIO writes with write(), which raises SIGPIPE when the peer is gone.
int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int bio_write(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = ::send(socket_of(bio), bytes, static_cast<size_t>(count), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int bio_read(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = ::recv(socket_of(bio), bytes, static_cast<size_t>(count), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(n);
}

long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* socket_method() {
  static const std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)> method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "choral socket");
    if (made != nullptr) {
      BIO_meth_set_write(made, bio_write);
      BIO_meth_set_read(made, bio_read);
      BIO_meth_set_ctrl(made, bio_control);
    }
    return std::unique_ptr<BIO_METHOD, decltype(&BIO_meth_free)>(made, &BIO_meth_free);
  }();
  return method.get();
}

std::string openssl_reason() {
  const unsigned long error = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(error);
  return reason == nullptr ? "no reason given" : reason;
}

// HTTP/1.1 is all we speak. A client that offers other protocols only is told so.
int choose_protocol(SSL*, const unsigned char** chosen, unsigned char* length, const unsigned char* offered, unsigned count,
                    void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  const int found = SSL_select_next_proto(const_cast<unsigned char**>(chosen), length, kOurs, sizeof kOurs - 1, offered, count);
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

// Instead of OpenSSL's own, which asks the terminal and waits.
int no_passphrase(char*, int, int, void* was_asked) {
  *static_cast<bool*>(was_asked) = true;
  return -1;
}

}  // namespace

void FreeTls::operator()(SSL* session) const { SSL_free(session); }
void FreeTls::operator()(SSL_CTX* context) const { SSL_CTX_free(context); }

IoResult TlsSession::handshake() {
  ERR_clear_error();
  const int done = SSL_accept(ssl_.get());
  if (done == 1) return {IoOutcome::kMoved, 1};
  const unsigned long error = ERR_peek_error();
  spoke_http_ = ERR_GET_LIB(error) == ERR_LIB_SSL && ERR_GET_REASON(error) == SSL_R_HTTP_REQUEST;
  return outcome_of(done);
}

IoResult TlsSession::read(std::span<char> into) {
  ERR_clear_error();
  size_t n = 0;
  const int done = SSL_read_ex(ssl_.get(), into.data(), into.size(), &n);
  return done == 1 ? IoResult{IoOutcome::kMoved, n} : outcome_of(done);
}

IoResult TlsSession::write(std::string_view bytes) {
  ERR_clear_error();
  size_t n = 0;
  const int done = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &n);
  return done == 1 ? IoResult{IoOutcome::kMoved, n} : outcome_of(done);
}

void TlsSession::say_goodbye() {
  ERR_clear_error();
  if (!broken_ && SSL_is_init_finished(ssl_.get()) != 0) SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

IoResult TlsSession::outcome_of(int done) {
  switch (SSL_get_error(ssl_.get(), done)) {
    case SSL_ERROR_WANT_READ: return {IoOutcome::kWantsRead};
    case SSL_ERROR_WANT_WRITE: return {IoOutcome::kWantsWrite};
    case SSL_ERROR_ZERO_RETURN: return {IoOutcome::kEnd};
    default: broken_ = true; return {IoOutcome::kFailed};  // an end without close_notify too: it may be anybody's
  }
}

std::unique_ptr<TlsSession> TlsContext::accept(int socket) {
  std::unique_ptr<SSL, FreeTls> ssl(SSL_new(context_.get()));
  BIO* bio = ssl == nullptr || socket_method() == nullptr ? nullptr : BIO_new(socket_method());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl.get(), bio, bio);
  SSL_set_accept_state(ssl.get());
  return std::make_unique<TlsSession>(std::move(ssl));
}

Result<std::shared_ptr<TlsContext>> TlsContext::load(const TlsOptions& options) {
  ERR_clear_error();
  auto context = std::make_shared<TlsContext>();
  context->context_.reset(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* const raw = context->context_.get();
  if (raw == nullptr) return internal_error("TLS cannot be set up: {}", openssl_reason());
  if (SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) != 1)
    return internal_error("TLS 1.2 cannot be set: {}", openssl_reason());
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);  // tickets need no memory of ours
  SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
  bool has_passphrase = false;
  SSL_CTX_set_default_passwd_cb(raw, no_passphrase);
  SSL_CTX_set_default_passwd_cb_userdata(raw, &has_passphrase);  // of what is read here
  if (SSL_CTX_use_certificate_chain_file(raw, options.certificate_file.c_str()) != 1) {
    return invalid_argument("the certificate {} cannot be read as PEM: {}", quoted(options.certificate_file), openssl_reason());
  }
  if (SSL_CTX_use_PrivateKey_file(raw, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    if (has_passphrase) {
      return invalid_argument("the private key {} has a passphrase; take it off: openssl pkey -in KEY -out NEW, chmod 600 NEW",
                              quoted(options.key_file));
    }
    return invalid_argument("the private key {} cannot be used with the certificate {}: {}", quoted(options.key_file),
                            quoted(options.certificate_file), openssl_reason());
  }
  if (SSL_CTX_check_private_key(raw) != 1) {
    return invalid_argument("the private key {} does not belong to the certificate {}: {}", quoted(options.key_file),
                            quoted(options.certificate_file), openssl_reason());
  }
  if (!options.client_ca_file.empty()) {
    if (SSL_CTX_load_verify_file(raw, options.client_ca_file.c_str()) != 1) {
      return invalid_argument("the clients' certificate authority {} cannot be read as PEM: {}", quoted(options.client_ca_file),
                              openssl_reason());
    }
    STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(options.client_ca_file.c_str());
    if (names == nullptr) {
      return invalid_argument("the clients' certificate authority {} names nobody: {}", quoted(options.client_ca_file),
                              openssl_reason());
    }
    SSL_CTX_set_client_CA_list(raw, names);
    SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    constexpr unsigned char kContext[] = "choral";
    SSL_CTX_set_session_id_context(raw, kContext, sizeof kContext - 1);
  }
  return context;
}

}  // namespace choral::serve
