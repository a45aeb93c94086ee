#include "serve/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <functional>
#include <new>
#include <utility>

#include "base/ascii.h"
#include "base/printable.h"
#include "base/size_text.h"
#include "base/utf8.h"

namespace choral::serve {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

constexpr size_t kMaxChunkExtension = 256;  // nobody sends any; a kilobyte before each byte would be work without a body
// Whatever is missing of a chunked body ends in this; Beast asserts that it is given as much when it comes back to a last chunk.
constexpr std::string_view kLastChunk = "0\r\n\r\n";
constexpr size_t kMaxMethod = 32;
constexpr size_t kMaxEmptyLines = 4;  // before the request line (RFC 9112, 2.2)

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

// The request line speaks of a version of HTTP that exists, but is not 1.0 or 1.1.
bool names_other_version(std::string_view input) {
  const std::string_view line = input.substr(0, input.find('\n'));
  if (!line.ends_with('\r') || line.size() < 10) return false;
  const std::string_view version = line.substr(line.size() - 10, 9);  // " HTTP/d.d"
  return version.starts_with(" HTTP/") && is_digit(version[6]) && version[7] == '.' && is_digit(version[8]);
}

std::string_view words_for(http::error error) {
  switch (error) {
    case http::error::bad_line_ending: return "a line does not end in CR LF";
    case http::error::bad_method: return "the method is no token";
    case http::error::bad_target: return "the request target is empty or holds a character that must be escaped";
    case http::error::bad_version: return "the request line does not end in HTTP/1.1 or HTTP/1.0 and CR LF";
    case http::error::bad_field: return "a header's name is no token, or no colon follows it at once";
    case http::error::bad_value: return "a header's value holds a control character, or is no list where one is wanted";
    case http::error::bad_content_length: return "Content-Length is no number, or a chunked body has one";
    case http::error::multiple_content_length: return "Content-Length is given twice";
    case http::error::bad_transfer_encoding: return "Transfer-Encoding is given twice, or beside Content-Length";
    case http::error::bad_chunk: return "a chunk has no valid size, or does not end where it says";
    case http::error::bad_chunk_extension: return "a chunk's extension is malformed";
    default: return "it breaks the rules of HTTP/1.1";
  }
}

}  // namespace

std::optional<std::string> decoded_path(std::string_view raw) {
  std::string path;
  path.reserve(raw.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    char c = raw[i];
    if (c == '%') {
      const int high = i + 2 < raw.size() ? hex_digit(raw[i + 1]) : -1;
      const int low = i + 2 < raw.size() ? hex_digit(raw[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return std::nullopt;
    path += c;
  }
  for (std::string_view rest = path; !rest.empty();) {
    const uint32_t length = check_utf8(rest).length;
    if (length == 0) return std::nullopt;
    rest.remove_prefix(length);
  }
  return path;
}

class RequestParser::Beast final : public http::basic_parser<true> {
 public:
  explicit Beast(const HttpLimits& limits) : limits_(limits) {
    header_limit(static_cast<uint32_t>(limits.header_bytes));
    body_limit(static_cast<uint64_t>(limits.body_bytes));
  }

  size_t feed(std::string_view input) {
    size_t taken = 0;
    try {
      if (!started_) taken = skip_empty_lines(input);
      if (taken < input.size() && !fault_) taken += parse(input.substr(taken));
    } catch (const std::bad_alloc&) {
      refuse(503, "out_of_memory", "the server has no memory for this request now");
    }
    return taken;
  }

  void refuse(int status, std::string_view code, std::string message) {
    if (!fault_) fault_ = ApiError{status, std::move(message), std::string(code), ""};
  }

  const HttpLimits& limits_;
  HttpRequest request_;
  std::optional<ApiError> fault_;
  bool started_ = false;
  bool expects_continue_ = false;

 private:
  size_t skip_empty_lines(std::string_view input) {
    size_t at = 0;
    while (input.substr(at).starts_with("\r\n")) {
      at += 2;
      if (++empty_lines_ > kMaxEmptyLines) {
        malformed("it begins with empty lines");
        return at;
      }
    }
    // A lone CR may be half a line.
    started_ = at < input.size() && input.substr(at) != "\r";
    return at;
  }

  size_t parse(std::string_view input) {
    if (!started_) return 0;
    const bool in_head = !is_header_done();
    input_ = input;
    eager(!in_head);
    ErrorCode error;
    size_t taken = 0;
    while (taken < input.size() && !is_done()) {
      input_ = input.substr(taken);
      if (!in_head && chunked() && input_.size() < kLastChunk.size()) break;
      const size_t used = put({input_.data(), input_.size()}, error);
      taken += used;
      if (error || (in_head && is_header_done())) break;
    }
    if (in_head) head_bytes_ += taken;
    const size_t rest = input.size() - taken;
    const bool wants_more = error == http::error::need_more || !error;
    if (!wants_more && !fault_) explain(error, input.substr(taken));
    if (fault_ || !wants_more) return taken;
    if (in_head) {
      check_head_size(rest, input);
    } else if (!is_done() && rest > static_cast<size_t>(limits_.header_bytes)) {
      headers_too_large();
    }
    return taken;
  }

  // The request line is not read yet, and longer than one with a target as long as it may be.
  bool first_line_is_long(std::string_view input) const {
    const size_t longest = static_cast<size_t>(limits_.target_bytes) + kMaxMethod + std::string_view("  HTTP/1.1\r\n").size();
    return request_.method.empty() && input.substr(0, longest).find('\n') == std::string_view::npos && input.size() > longest;
  }

  // While the head is incomplete nothing but it was read; afterwards `rest` may be the body.
  void check_head_size(size_t rest, std::string_view input) {
    if (first_line_is_long(input)) {
      target_too_long();
    } else if (head_bytes_ + (is_header_done() ? 0 : rest) > static_cast<size_t>(limits_.header_bytes)) {
      headers_too_large();
    }
  }

  void explain(const ErrorCode& error, std::string_view at) {
    if (error == http::error::header_limit) return first_line_is_long(at) ? target_too_long() : headers_too_large();
    if (error == http::error::body_limit) {
      return refuse(413, "request_body_too_large",
                    fmt::format("the request's body is longer than {} allowed here", size_text(limits_.body_bytes)));
    }
    if (error == http::error::bad_version && names_other_version(at)) {
      return refuse(505, "http_version_not_supported", "this server speaks HTTP/1.1 and HTTP/1.0");
    }
    malformed(words_for(static_cast<http::error>(error.value())));
  }

  void malformed(std::string_view why) { refuse(400, "malformed_request", fmt::format("the request cannot be read: {}", why)); }
  void headers_too_large() {
    refuse(431, "request_headers_too_large",
           fmt::format("the request line and headers are longer than {} allowed here", size_text(limits_.header_bytes)));
  }
  void target_too_long() {
    refuse(414, "request_target_too_long",
           fmt::format("the path and query are longer than {} allowed here", size_text(limits_.target_bytes)));
  }

  // Beast goes on while `error` is clear.
  void stop_if_refused(ErrorCode& error) const {
    if (fault_) error = http::error::bad_field;
  }

  void on_request_impl(http::verb, boost::beast::string_view method, boost::beast::string_view target, int version,
                       ErrorCode& error) override {
    if (method.size() > kMaxMethod) refuse(501, "method_not_implemented", "no method of HTTP has such a long name");
    request_.method = std::string(view(method));
    request_.minor_version = version - 10;
    if (!fault_) take_target(view(target));
    stop_if_refused(error);
  }

  void take_target(std::string_view target) {
    if (target.size() > static_cast<size_t>(limits_.target_bytes)) return target_too_long();
    for (const char c : target) {
      if (static_cast<unsigned char>(c) >= 0x7F || c == '#') {
        return malformed("the request target holds a character that must be escaped");
      }
    }
    if (request_.method == "CONNECT") return refuse(405, "method_not_allowed", "this server is no proxy");
    if (target == "*" && request_.method == "OPTIONS") {
      request_.path = "*";
      return;
    }
    for (const std::string_view scheme : {"http://", "https://"}) {  // the absolute form, as proxies get it
      if (!equal_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
      target.remove_prefix(scheme.size());
      target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
      if (!target.starts_with('/')) {  // no path
        request_.path = "/";
        request_.query = std::string(target.substr(target.empty() ? 0 : 1));
        return;
      }
    }
    const size_t mark = target.find('?');
    auto path = decoded_path(target.substr(0, mark));
    if (!target.starts_with('/')) return malformed("the request target does not begin with '/'");
    if (!path) return malformed("the path holds a broken escape, a control character or bytes that are no UTF-8");
    request_.path = std::move(*path);
    if (mark != std::string_view::npos) request_.query = std::string(target.substr(mark + 1));
  }

  void on_field_impl(http::field field, boost::beast::string_view name, boost::beast::string_view value,
                     ErrorCode& error) override {
    if (++fields_ > limits_.header_count) {
      refuse(431, "too_many_headers", fmt::format("the request has more than {} headers", limits_.header_count));
    } else if (is_folded(view(name), view(value))) {
      malformed("a header is folded over several lines");
    } else if (!is_header_done()) {  // trailers come later, and are dropped
      take_field(field, view(name), view(value));
    }
    stop_if_refused(error);
  }

  // Beast puts the lines of a folded value together, elsewhere or behind a line break.
  bool is_folded(std::string_view name, std::string_view value) const {
    const std::less_equal<const char*> not_after;
    const char* name_end = name.data() + name.size();
    if (!not_after(name_end, value.data()) || !not_after(value.data() + value.size(), input_.data() + input_.size())) return true;
    return std::string_view(name_end, static_cast<size_t>(value.data() - name_end)).find('\n') != std::string_view::npos;
  }

  void take_field(http::field field, std::string_view name, std::string_view value) {
    if (field == http::field::content_length && (++lengths_ > 1 || value.find(',') != std::string_view::npos)) {
      return malformed("Content-Length is given twice");
    }
    if (field == http::field::host && ++hosts_ > 1) return malformed("Host is given twice");
    if (field == http::field::transfer_encoding) {
      if (request_.minor_version == 0) return malformed("HTTP/1.0 has no Transfer-Encoding");
      if (!equal_ignoring_case(value, "chunked")) {
        return refuse(501, "transfer_encoding_not_supported", "the only Transfer-Encoding taken here is chunked");
      }
    }
    if (field == http::field::content_encoding && !equal_ignoring_case(value, "identity")) {
      return refuse(415, "content_encoding_not_supported",
                    fmt::format("a body encoded as {} is not taken here: send it plain", printable(value, 40)));
    }
    if (field == http::field::expect && request_.minor_version == 1) {
      if (!equal_ignoring_case(value, "100-continue")) {
        return refuse(417, "expectation_failed", "the only expectation met here is 100-continue");
      }
      expects_continue_ = true;
    }
    request_.headers.add(std::string(name), std::string(value));
  }

  void on_header_impl(ErrorCode& error) override {
    if (request_.minor_version == 1 && hosts_ == 0) malformed("HTTP/1.1 wants a Host header");
    stop_if_refused(error);
  }

  void on_body_init_impl(const boost::optional<uint64_t>& length, ErrorCode&) override {
    constexpr uint64_t kAtOnce = 256 << 10;  // a length that was only claimed costs no more
    if (length) request_.body.reserve(std::min(*length, kAtOnce));
  }
  size_t on_body_impl(boost::beast::string_view piece, ErrorCode&) override {
    request_.body += view(piece);
    return piece.size();
  }
  void on_chunk_header_impl(uint64_t, boost::beast::string_view extension, ErrorCode& error) override {
    if (extension.size() > kMaxChunkExtension) malformed("a chunk's extension is too long");
    stop_if_refused(error);
  }
  size_t on_chunk_body_impl(uint64_t, boost::beast::string_view piece, ErrorCode&) override {
    request_.body += view(piece);
    return piece.size();
  }
  void on_finish_impl(ErrorCode&) override {}
  void on_response_impl(int, boost::beast::string_view, int, ErrorCode&) override {}

  std::string_view input_;  // of put() while it runs
  size_t head_bytes_ = 0;
  size_t empty_lines_ = 0;
  int64_t fields_ = 0;
  int lengths_ = 0;
  int hosts_ = 0;
};

RequestParser::RequestParser(const HttpLimits& limits) : beast_(std::make_unique<Beast>(limits)) {}
RequestParser::~RequestParser() = default;

size_t RequestParser::feed(std::string_view input) { return done() || fault() != nullptr ? 0 : beast_->feed(input); }
bool RequestParser::started() const { return beast_->started_; }
bool RequestParser::head_done() const { return beast_->is_header_done(); }
bool RequestParser::done() const { return beast_->is_done(); }
const ApiError* RequestParser::fault() const { return beast_->fault_ ? &*beast_->fault_ : nullptr; }
bool RequestParser::keep_alive() const { return beast_->is_header_done() && beast_->keep_alive(); }
bool RequestParser::expects_continue() const { return beast_->expects_continue_; }
HttpRequest& RequestParser::request() { return beast_->request_; }
const HttpRequest& RequestParser::request() const { return beast_->request_; }

}  // namespace choral::serve
