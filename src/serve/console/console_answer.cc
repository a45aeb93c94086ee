#include "serve/console/console_answer.h"

#include <algorithm>

#include "base/ascii.h"
#include "serve/http/error_response.h"

namespace choral::serve {
namespace {

constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

// What stands before the separator; `text` keeps what stands behind it.
std::string_view cut(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view piece = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(end + 1, text.size()));
  return piece;
}

// "q=0", "q=0.", "q=0.000": not at all.
bool is_refusal(std::string_view weight) {
  if (!weight.starts_with("q=") && !weight.starts_with("Q=")) return false;
  weight.remove_prefix(2);
  return !weight.empty() && weight.find_first_not_of("0.") == weight.npos;
}

// Accept-Encoding of RFC 9110; a client that sends none takes anything.
bool takes_gzip(const HttpRequest& request) {
  const std::string* const accepted = request.headers.find("Accept-Encoding");
  if (accepted == nullptr) return true;
  bool any = false;
  for (std::string_view rest = *accepted; !rest.empty();) {
    std::string_view weight = cut(rest, ',');
    const std::string_view coding = cut(weight, ';');
    const bool good = !is_refusal(trimmed(weight));
    if (equal_ignoring_case(coding, "gzip") || equal_ignoring_case(coding, "x-gzip")) return good;
    if (coding == "*") any = good;
  }
  return any;
}

bool has_current(const HttpRequest& request, std::string_view etag) {
  for (std::string_view rest = request.headers.get("If-None-Match"); !rest.empty();) {
    std::string_view known = cut(rest, ',');
    if (known.starts_with("W/")) known.remove_prefix(2);
    if (known == etag || known == "*") return true;
  }
  return false;
}

Headers common_headers(const ConsoleFile& file) {
  Headers headers{{"ETag", std::string(file.etag)},
                  {"Cache-Control", file.is_named_by_content ? "public, max-age=31536000, immutable" : "no-cache"},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Cross-Origin-Resource-Policy", "same-origin"}};
  if (file.is_gzip) headers.add("Vary", "Accept-Encoding");
  if (file.name != kConsolePage) return headers;
  headers.add("Content-Security-Policy", std::string(kPolicy));
  headers.add("X-Frame-Options", "DENY");
  headers.add("Cross-Origin-Opener-Policy", "same-origin");
  return headers;
}

}  // namespace

const ConsoleFile* console_file(std::string_view name) {
  const auto files = console_files();
  const auto found = std::find_if(files.begin(), files.end(), [&](const ConsoleFile& f) { return f.name == name; });
  return found == files.end() ? nullptr : &*found;
}

HttpResponse console_answer(const ConsoleFile& file, const HttpRequest& request) {
  HttpResponse response{.headers = common_headers(file)};
  if (has_current(request, file.etag)) {
    response.status = 304;
    return response;
  }
  if (file.is_gzip && !takes_gzip(request)) {
    return error_response(
        {.status = 406, .message = "this file is kept compressed: send Accept-Encoding: gzip", .code = "not_acceptable"});
  }
  response.headers.add("Content-Type", std::string(file.content_type));
  if (file.is_gzip) response.headers.add("Content-Encoding", "gzip");
  response.body = file.bytes;
  return response;
}

}  // namespace choral::serve
