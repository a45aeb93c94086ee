// Which streams have news, for one reader that watches a file descriptor. The engine's thread writes to it when there is news and
// none was told before; it never waits for Python. Thread-safe.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "choral/status.h"

namespace choral::python {

// Shared with the callbacks, which may outlast the reader.
class News {
 public:
  static Result<std::shared_ptr<News>> make() {
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) return Status(Code::kResourceExhausted, "no file descriptor for the news of answers: too many are open");
    return std::shared_ptr<News>(new News(fd));
  }
  ~News() { ::close(fd_); }
  News(const News&) = delete;
  News& operator=(const News&) = delete;

  int fd() const { return fd_; }
  // tell() finds room without memory of its own.
  void reserve(size_t streams) {
    const std::lock_guard lock(mutex_);
    if (ready_.capacity() < streams) ready_.reserve(2 * streams);
  }
  void tell(uint64_t number) {
    const std::lock_guard lock(mutex_);
    ready_.push_back(number);
    if (ready_.size() > 1) return;
    const uint64_t one = 1;
    while (write(fd_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
  void take(std::vector<uint64_t>& out) {
    const std::lock_guard lock(mutex_);
    uint64_t count = 0;
    while (read(fd_, &count, sizeof count) < 0 && errno == EINTR) {
    }
    out.assign(ready_.begin(), ready_.end());
    ready_.clear();
  }

 private:
  explicit News(int fd) : fd_(fd) {}

  const int fd_;
  std::mutex mutex_;
  std::vector<uint64_t> ready_;  // each at most once, until it is read to its end
};

}  // namespace choral::python
