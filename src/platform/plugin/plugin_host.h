// The host's side of include/choral/plugin.h: the services it offers, and what crosses the border turned into the house's types.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/printable.h"
#include "base/status.h"
#include "choral/plugin.h"

namespace choral {
class ThreadPool;
}

// The compute threads as one open device gets them: for its loops while the host calls it.
struct choral_pool {
  choral::ThreadPool& threads;
  std::atomic<int> calls{0};  // of the host's that are under way
};

namespace choral::platform {

// A call into the plug-in, while it lasts.
class HostCall {
 public:
  explicit HostCall(choral_pool& pool) : pool_(pool) { pool_.calls.fetch_add(1, std::memory_order_relaxed); }
  ~HostCall() { pool_.calls.fetch_sub(1, std::memory_order_relaxed); }
  HostCall(const HostCall&) = delete;
  HostCall& operator=(const HostCall&) = delete;

 private:
  choral_pool& pool_;
};

// One for the process, never changed.
const choral_host& plugin_host();

// A text of a plug-in's for people: one line, without control bytes. Null is empty; one of `max_bytes` or more, or without its
// end in an array of so many, is cut and ends in "…".
std::string plugin_text(const char* text, size_t max_bytes = 4096);

// Takes the status over; null is fine.
Status take_status(choral_status* status);

// `from` as this host knows the struct: what the other side does not have is zero, what it has more is left out. `from` begins
// with a choral_header.
template <class Struct>
Struct negotiated(const Struct& from) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  Struct own;
  std::memset(&own, 0, sizeof own);
  std::memcpy(&own, &from, std::min<size_t>(from.header.struct_size, sizeof own));
  return own;
}

// Element i of an array whose elements have the size that the other side gave its first one.
template <class Struct>
Struct element(const Struct* first, int64_t i) {
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  return negotiated(*reinterpret_cast<const Struct*>(bytes + i * static_cast<int64_t>(first->header.struct_size)));
}

template <class Struct>
Struct with_header() {
  Struct s;
  std::memset(&s, 0, sizeof s);
  s.header = CHORAL_HEADER(Struct);
  return s;
}

// A text in a fixed array of the border, whole or refused, and back again.
template <size_t kSize>
Status put_text(char (&to)[kSize], std::string_view text, std::string_view what) {
  if (text.size() >= kSize || text.find('\0') != std::string_view::npos) {
    return invalid_argument("{} = {} can't be told to a plug-in, whose interface takes {} bytes of it", what, quoted(text),
                            kSize - 1);
  }
  std::memcpy(to, text.data(), text.size());
  to[text.size()] = 0;
  return {};
}
template <size_t kSize>
Result<std::string> get_text(const char (&from)[kSize], std::string_view what) {
  const size_t size = strnlen(from, kSize);
  if (size == kSize) return corrupt("{} does not end within its {} bytes", what, kSize);
  return std::string(from, size);
}

}  // namespace choral::platform
