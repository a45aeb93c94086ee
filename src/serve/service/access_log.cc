#include "serve/service/access_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/json_quoted.h"
#include "base/printable.h"
#include "serve/error_body.h"
#include "serve/http/request_ids.h"

namespace choral::serve {
namespace {

constexpr size_t kMostPathBytes = 256, kMostNameBytes = 128;
constexpr size_t kMostAdapters = 16;  // that are named

// "2026-11-25T09:10:11.123Z"
std::string time_text(double unix_s) {
  const auto ms = static_cast<int64_t>(std::llround(unix_s * 1000));
  const auto whole = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  if (::gmtime_r(&whole, &parts) == nullptr) return "-";
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec, ms % 1000);
}

std::vector<std::string> shown_adapters(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const auto& name : names) {
    if (shown.size() == kMostAdapters) break;
    shown.push_back(name.substr(0, kMostNameBytes));
  }
  return shown;
}

// A value that could be taken for more than one stands in quotes.
void put_field(std::string& line, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  const bool is_plain = std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c < 0x7F && c != '"'; });
  line += fmt::format(" {}={}", name, is_plain ? std::string(value) : quoted(value));
}

std::string text_line(const AnsweredRequest& answered) {
  const HttpRequest& r = answered.request;
  const RequestNotes& notes = answered.notes;
  const auto shown = [](std::string_view text) { return text.empty() ? "-" : terminal_line(text); };
  std::string line = fmt::format("choral: {} {} {} {} {} {:.3f} s", time_text(answered.begin_unix_s), r.peer, shown(r.method),
                                 shown(r.path.substr(0, kMostPathBytes)), answered.status, answered.seconds);
  put_field(line, "key", answered.key);
  put_field(line, "model", std::string_view(notes.model).substr(0, kMostNameBytes));
  put_field(line, "adapters", fmt::format("{}", fmt::join(shown_adapters(notes.adapters), ",")));
  if (notes.usage) {
    line += fmt::format(" prompt_tokens={} cached_tokens={} completion_tokens={}", notes.usage->prompt_tokens,
                        notes.usage->cached_tokens, notes.usage->completion_tokens);
  }
  line += ids_text(r.ids);
  put_field(line, "reason", notes.reason);
  return line;
}

std::string json_line(const AnsweredRequest& answered) {
  const HttpRequest& r = answered.request;
  const RequestNotes& notes = answered.notes;
  std::string line = "{";
  const auto put = [&line](std::string_view name, std::string_view value) {
    line += fmt::format("\"{}\":{},", name, json_quoted(value));
  };
  const auto put_some = [&put](std::string_view name, std::string_view value) {
    if (!value.empty()) put(name, terminal_line(value));
  };
  put("time", time_text(answered.begin_unix_s));
  put("peer", r.peer);
  put("method", r.method);
  put("path", terminal_line(r.path.substr(0, kMostPathBytes)));
  put_some("key", answered.key);
  put_some("model", std::string_view(notes.model).substr(0, kMostNameBytes));
  if (!notes.adapters.empty()) {
    line += "\"adapters\":[";
    for (const auto& name : shown_adapters(notes.adapters)) {
      line += json_quoted(terminal_line(name)) + ",";
    }
    line.back() = ']';
    line += ',';
  }
  if (notes.usage) {
    line += fmt::format(R"("prompt_tokens":{},"cached_tokens":{},"completion_tokens":{},)", notes.usage->prompt_tokens,
                        notes.usage->cached_tokens, notes.usage->completion_tokens);
  }
  if (!r.ids.request.empty()) put("request_id", r.ids.request);
  if (!r.ids.trace.empty()) {
    put("trace_id", r.ids.trace);
    put("span_id", r.ids.span);
    put("parent_span_id", r.ids.parent_span);
  }
  put_some("reason", notes.reason);
  return line + fmt::format("\"status\":{},\"seconds\":{:.6f}}}", answered.status, answered.seconds);
}

}  // namespace

std::string access_line(AccessLog form, const AnsweredRequest& answered) {
  return form == AccessLog::kJson ? json_line(answered) : text_line(answered);
}

}  // namespace choral::serve
