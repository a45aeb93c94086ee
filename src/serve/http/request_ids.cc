#include "serve/http/request_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>

#include "base/ascii.h"

namespace choral::serve {
namespace {

constexpr size_t kMostIdBytes = 128;
constexpr size_t kTraceDigits = 32, kSpanDigits = 16;
// "00-" trace "-" span "-" flags
constexpr size_t kTraceAt = 3, kSpanAt = kTraceAt + kTraceDigits + 1, kFlagsAt = kSpanAt + kSpanDigits + 1,
                 kParentBytes = kFlagsAt + 2;
constexpr uint8_t kKnownFlags = 3;  // sampled, random trace id

uint64_t random_bits() {
  thread_local std::mt19937_64 engine = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return engine();
}

bool is_good_id(std::string_view id) {
  return !id.empty() && id.size() <= kMostIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 0x7F && c != '"' && c != '\\'; });
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == text.npos; }

uint8_t hex_byte(std::string_view two) { return static_cast<uint8_t>(hex_digit(two[0]) * 16 + hex_digit(two[1])); }

// Of a later version all that is known may be followed by more.
bool is_good_parent(std::string_view parent) {
  if (parent.size() < kParentBytes || parent[kTraceAt - 1] != '-' || parent[kSpanAt - 1] != '-' || parent[kFlagsAt - 1] != '-')
    return false;
  const std::string_view version = parent.substr(0, 2), trace = parent.substr(kTraceAt, kTraceDigits),
                         span = parent.substr(kSpanAt, kSpanDigits), flags = parent.substr(kFlagsAt, 2);
  const bool ends = parent.size() == kParentBytes || (version != "00" && parent[kParentBytes] == '-');
  return ends && is_lower_hex(version) && version != "ff" && is_lower_hex(trace) && !is_zero(trace) && is_lower_hex(span) &&
         !is_zero(span) && is_lower_hex(flags);
}

}  // namespace

RequestIds make_request_ids(const Headers& headers) {
  RequestIds ids;
  const std::string_view given = headers.get("X-Request-Id");
  ids.request = is_good_id(given) ? std::string(given) : fmt::format("{:016x}{:08x}", random_bits(), random_bits() & 0xFFFFFFFF);
  const auto parents = std::count_if(headers.begin(), headers.end(),
                                     [](const auto& field) { return equal_ignoring_case(field.name, "traceparent"); });
  const std::string_view parent = headers.get("traceparent");
  if (parents != 1 || !is_good_parent(parent)) return ids;
  ids.trace = parent.substr(kTraceAt, kTraceDigits);
  ids.parent_span = parent.substr(kSpanAt, kSpanDigits);
  ids.trace_flags = static_cast<uint8_t>(hex_byte(parent.substr(kFlagsAt, 2)) & kKnownFlags);
  ids.span = fmt::format("{:016x}", std::max<uint64_t>(random_bits(), 1));
  return ids;
}

void add_ids(const RequestIds& ids, Headers& headers) {
  if (ids.request.empty()) return;
  headers.set("X-Request-Id", ids.request);
  if (!ids.trace.empty()) headers.set("traceparent", fmt::format("00-{}-{}-{:02x}", ids.trace, ids.span, ids.trace_flags));
}

std::string ids_text(const RequestIds& ids) {
  if (ids.request.empty()) return "";
  std::string text = " request=" + ids.request;
  if (!ids.trace.empty()) text += fmt::format(" trace={} span={} parent={}", ids.trace, ids.span, ids.parent_span);
  return text;
}

}  // namespace choral::serve
