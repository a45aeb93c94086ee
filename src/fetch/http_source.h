// GET over libcurl: small texts, and files from a place on. Redirects are followed, but the token goes to the endpoint's host
// alone. Times are limited by progress, not in all: a file may take hours. One thread at a time; stop() from any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"

namespace choral::fetch {

struct CurlLibrary;

// What messages call it, and whom else to trust.
struct HttpSourceWords {
  std::string name = "the hub";
  std::string brings_token = "HF_TOKEN";  // what the token comes by
  std::string ca_file = {};               // PEM; empty: the system's
};

class HttpSource {
 public:
  static Result<std::unique_ptr<HttpSource>> make(std::string endpoint, std::string token, HttpSourceWords words = {});
  ~HttpSource();
  HttpSource(const HttpSource&) = delete;
  HttpSource& operator=(const HttpSource&) = delete;

  // `path` begins with a slash and is quoted. kTooLarge over `most_bytes`. kUnavailable: it may go well another time.
  Result<std::string> get_text(const std::string& path, size_t most_bytes);
  // Nothing: it is what it was when it bore `etag`, which is that of the answer afterwards; empty: it has none.
  Result<std::optional<std::string>> get_if_changed(const std::string& path, size_t most_bytes, std::string& etag);
  void set_token(std::string token);
  // What is under way, or comes, ends with unavailable.
  void stop() { stopped_.store(true); }
  // Seconds that the hub asked to wait with the last kUnavailable; 0: it did not say.
  int64_t wait_s() const { return wait_s_; }
  // `begin` is told where the bytes that `take` is given begin: at `from`, or at 0 where the server sends all. An error of
  // `take` ends it.
  Status get_file(const std::string& path, int64_t from, FunctionRef<Status(int64_t first)> begin,
                  FunctionRef<Status(std::span<const std::byte>)> take);

  static std::string quoted(std::string_view segment);

 private:
  struct Transfer;
  HttpSource(std::string endpoint, HttpSourceWords words) : endpoint_(std::move(endpoint)), words_(std::move(words)) {}
  Status run(const std::string& path, Transfer& transfer);
  Status failed(int64_t http, const std::string& path, const std::string& said) const;
  int64_t asked_to_wait() const;
  std::string etag() const;

  const std::string endpoint_;
  const HttpSourceWords words_;
  std::string token_;
  std::atomic<bool> stopped_ = false;
  const CurlLibrary* library_ = nullptr;
  void* curl_ = nullptr;
  int64_t wait_s_ = 0;
};

}  // namespace choral::fetch
