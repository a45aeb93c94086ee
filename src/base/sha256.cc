#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace choral {

// OpenSSL's context is made once there is memory for ours, which frees it.
struct Sha256::Context {
  Context() = default;
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  const EVP_MD* digest = EVP_sha256();
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  CHORAL_CHECK(context_->evp != nullptr, "OpenSSL gave no digest context");
  reset();
}

Sha256::~Sha256() = default;

void Sha256::reset() { CHORAL_CHECK(EVP_DigestInit_ex(context_->evp, context_->digest, nullptr) == 1, "SHA-256 did not start"); }

void Sha256::update(std::span<const std::byte> bytes) {
  CHORAL_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest;
  CHORAL_CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), nullptr) == 1, "SHA-256 did not end");
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

std::string to_hex(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const uint8_t b : bytes) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

}  // namespace choral
