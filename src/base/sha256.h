// SHA-256 (OpenSSL): content identity of files and adapters, and the keys of the prefix cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace choral {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void reset();
  void update(std::span<const std::byte> bytes);
  template <class T>
  void update_value(const T& value) {
    update(std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
  Sha256Digest finish();  // reset() before the next use; allocates nothing

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace choral
