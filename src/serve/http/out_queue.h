// The bytes that a connection has yet to send, in as few strings as they fit: small pieces share one, large ones are moved. A
// queue that runs empty keeps one small string for what comes next, so that a stream of small pieces allocates nothing. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace choral::serve {

class OutQueue {
 public:
  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }

  void append(std::string_view bytes);
  void append(std::string&& bytes);
  void append_chunk(std::string&& bytes);  // as one chunk of a chunked body

  // For ByteStream::write.
  const std::deque<std::string>& pieces() const { return pieces_; }
  size_t sent_of_front() const { return sent_of_front_; }
  void sent(size_t bytes);

  void release_spare() { std::string().swap(spare_); }

 private:
  std::deque<std::string> pieces_;  // none is empty
  size_t bytes_ = 0;
  size_t sent_of_front_ = 0;
  std::string spare_;
};

}  // namespace choral::serve
