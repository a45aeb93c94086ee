#include "serve/service/access_log.h"

#include <fmt/format.h>

#include <utility>

#include "base/printable.h"
#include "serve/error_body.h"
#include "serve/http/request_ids.h"

namespace choral::serve {
namespace {

constexpr size_t kMostPathBytes = 256;

std::string text_line(const AnsweredRequest& answered) {
  const HttpRequest& r = answered.request;
  const auto shown = [](std::string_view text) { return text.empty() ? "-" : terminal_line(text); };
  return fmt::format("choral: {} {} {} {} {:.3f} s{}", r.peer, shown(r.method), shown(r.path.substr(0, kMostPathBytes)),
                     answered.status, answered.seconds, ids_text(r.ids));
}

std::string json_line(const AnsweredRequest& answered) {
  const HttpRequest& r = answered.request;
  const std::string path = terminal_line(r.path.substr(0, kMostPathBytes));
  std::string line = "{";
  const auto put = [&line](std::string_view name, std::string_view value) {
    line += fmt::format("\"{}\":", name);
    append_json_string(line, value);
    line += ',';
  };
  put("peer", r.peer);
  put("method", r.method);
  put("path", path);
  if (!r.ids.request.empty()) put("request_id", r.ids.request);
  if (!r.ids.trace.empty()) {
    put("trace_id", r.ids.trace);
    put("span_id", r.ids.span);
    put("parent_span_id", r.ids.parent_span);
  }
  return line + fmt::format("\"status\":{},\"seconds\":{:.6f}}}", answered.status, answered.seconds);
}

}  // namespace

std::string access_line(AccessLog form, const AnsweredRequest& answered) {
  return form == AccessLog::kJson ? json_line(answered) : text_line(answered);
}

}  // namespace choral::serve
