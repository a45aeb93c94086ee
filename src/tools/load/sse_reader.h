// Server-sent events, as they come in pieces of any size: the data of each event, as the HTML standard divides them. Events
// without data (comments, keep-alives) are none. Bounded: an event over the limit is an error. Not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "base/status.h"

namespace choral::tools {

class SseReader {
 public:
  static constexpr size_t kMaxEventBytes = 8 << 20;

  // Calls `on_event` with the data of each event that ends in `bytes`; its error ends the reading. After an error it is not used.
  Status feed(std::string_view bytes, FunctionRef<Status(std::string_view data)> on_event);

 private:
  Status end_line(FunctionRef<Status(std::string_view)> on_event);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_cr_ = false;
  bool first_line_ = true;
};

}  // namespace choral::tools
