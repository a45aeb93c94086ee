#include "serve/http/response_head.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>

namespace choral::serve {
namespace {

bool is_token(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kMarks.find(c) != std::string_view::npos;
  });
}

bool is_the_servers(std::string_view name) {
  for (const std::string_view own : {"Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Date"}) {
    if (equal_ignoring_case(name, own)) return true;
  }
  return false;
}

void append_value(std::string& out, std::string_view value) {
  for (const char c : value) out += (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F ? ' ' : c;
}

// Made once a second for each thread.
std::string_view date_now() {
  thread_local int64_t made_at = -1;
  thread_local std::string text;
  const int64_t now = std::time(nullptr);
  if (now != made_at) {
    text = http_date(now);
    made_at = now;
  }
  return text;
}

}  // namespace

bool has_no_body(int status) { return status < 200 || status == 204 || status == 304; }

std::string http_date(int64_t unix_s) {
  constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t time = unix_s;
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays.at(static_cast<size_t>(utc.tm_wday)), utc.tm_mday,
                     kMonths.at(static_cast<size_t>(utc.tm_mon)), utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

std::string response_head(int status, const Headers& headers, const HeadFacts& facts) {
  std::string out;
  out.reserve(256);
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: {}\r\n", status, reason_phrase(status), date_now());
  for (const Headers::Field& field : headers) {
    if (!is_token(field.name) || is_the_servers(field.name)) continue;
    out += field.name;
    out += ": ";
    append_value(out, field.value);
    out += "\r\n";
  }
  switch (facts.end) {
    case BodyEnd::kLength: fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", facts.length); break;
    case BodyEnd::kChunks: out += "Transfer-Encoding: chunked\r\n"; break;
    case BodyEnd::kClose:
    case BodyEnd::kNoBody: break;
  }
  if (!facts.keep_alive) {
    out += "Connection: close\r\n";
  } else if (facts.minor_version == 0) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
  return out;
}

}  // namespace choral::serve
