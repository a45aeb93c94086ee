#include "serve/http/out_queue.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace choral::serve {
namespace {

constexpr size_t kShared = 16 << 10;  // the size of a TLS record
constexpr size_t kMoved = 4 << 10;

}  // namespace

void OutQueue::append(std::string_view bytes) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  if (pieces_.empty() || pieces_.back().size() + bytes.size() > kShared) {
    pieces_.push_back(std::exchange(spare_, {}));
    pieces_.back().clear();
  }
  pieces_.back() += bytes;
}

void OutQueue::append(std::string&& bytes) {
  if (bytes.size() < kMoved) return append(std::string_view(bytes));
  bytes_ += bytes.size();
  pieces_.push_back(std::move(bytes));
}

void OutQueue::append_chunk(std::string&& bytes) {
  std::array<char, 20> size{};
  const auto end = fmt::format_to(size.begin(), "{:x}\r\n", bytes.size());
  append(std::string_view(size.begin(), static_cast<size_t>(end - size.begin())));
  append(std::move(bytes));
  append(std::string_view("\r\n"));
}

void OutQueue::sent(size_t bytes) {
  bytes_ -= bytes;
  bytes += sent_of_front_;
  while (!pieces_.empty() && bytes >= pieces_.front().size()) {
    bytes -= pieces_.front().size();
    if (pieces_.front().capacity() <= kShared && pieces_.front().capacity() > spare_.capacity()) spare_.swap(pieces_.front());
    pieces_.pop_front();
  }
  sent_of_front_ = bytes;
}

}  // namespace choral::serve
