#include "serve/http/sse.h"

namespace choral::serve {
namespace {

// A field's value may hold no line break: event names are ours, but one that came from a request must not start a field of its
// own.
void append_line(std::string& out, std::string_view field, std::string_view value) {
  out += field;
  out += ": ";
  out += value;
  out += '\n';
}

void append_data(std::string& out, std::string_view data) {
  // Any of CR, LF and CRLF ends a line for a reader of events.
  for (;;) {
    const size_t end = data.find_first_of("\r\n");
    append_line(out, "data", data.substr(0, end));
    if (end == std::string_view::npos) break;
    data.remove_prefix(data.substr(end).starts_with("\r\n") ? end + 2 : end + 1);
  }
  out += '\n';
}

}  // namespace

std::string sse_data(std::string_view data) {
  std::string out;
  out.reserve(data.size() + 8);
  append_data(out, data);
  return out;
}

std::string sse_event(std::string_view event, std::string_view data) {
  std::string out;
  out.reserve(event.size() + data.size() + 16);
  append_line(out, "event", event.substr(0, event.find_first_of("\r\n")));
  append_data(out, data);
  return out;
}

std::string sse_keep_alive() { return ": keep-alive\n\n"; }

Headers sse_headers() {
  return {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
}

}  // namespace choral::serve
