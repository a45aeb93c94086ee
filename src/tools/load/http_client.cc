#include "tools/load/http_client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <utility>

#include "fetch/curl_library.h"

namespace choral::tools {
namespace {

using Clock = std::chrono::steady_clock;

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// One request on its way. curl calls on_head_line() and on_body() from within curl_multi_perform().
struct Transfer {
  explicit Transfer(const fetch::CurlLibrary& opened) : library(opened) {}

  const fetch::CurlLibrary& library;
  HttpRequest asked;
  std::shared_ptr<HttpExchange> exchange;
  std::string url;
  CURL* easy = nullptr;
  curl_slist* fields = nullptr;
  char why[CURL_ERROR_SIZE] = "";
  uint64_t head_bytes = 0, body_bytes = 0;
  bool is_answered = false, has_head = false;
  Status given_up = {};

  ~Transfer() {
    if (easy != nullptr) library.easy_cleanup(easy);
    library.slist_free_all(fields);
  }

  size_t on_head_line(std::string_view line) {
    is_answered = true;
    head_bytes += line.size();
    if (head_bytes > HttpClient::kMaxHeadBytes)
      given_up = corrupt("the head of the answer has more than {} bytes", HttpClient::kMaxHeadBytes);
    long status = 0;
    const char* type = nullptr;
    library.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    library.easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
    const bool is_end = line == "\r\n" || line == "\n";
    has_head |= is_end && status >= 200;
    if (is_end && status >= 200) exchange->on_head(static_cast<int>(status), type == nullptr ? "" : type);
    return given_up.ok() ? line.size() : 0;  // 0 ends the transfer
  }
  size_t on_body(std::string_view bytes) {
    body_bytes += bytes.size();
    given_up = body_bytes > HttpClient::kMaxBodyBytes ? corrupt("the answer has more than {} bytes", HttpClient::kMaxBodyBytes)
                                                      : exchange->on_body(bytes);
    return given_up.ok() ? bytes.size() : 0;
  }
};

class CurlClient final : public HttpClient {
 public:
  CurlClient(Endpoint endpoint, const fetch::CurlLibrary& library, CURLM* multi)
      : endpoint_(std::move(endpoint)), library_(library), multi_(multi) {
    library_.multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMostKept);
  }
  ~CurlClient() override {
    for (const auto& [easy, transfer] : live_) library_.multi_remove_handle(multi_, easy);
    live_.clear();
    library_.multi_cleanup(multi_);
  }

  void send(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    if (stopped_) return exchange->on_end(cancelled("stopped"));
    auto transfer = std::make_unique<Transfer>(library_);
    transfer->asked = std::move(request);
    transfer->exchange = std::move(exchange);
    CURL* const easy = transfer->easy = library_.easy_init();
    if (easy == nullptr || !prepare(*transfer) || library_.multi_add_handle(multi_, easy) != CURLM_OK) {
      return transfer->exchange->on_end(internal_error("the HTTP client failed, for want of memory"));
    }
    live_.emplace(easy, std::move(transfer));
  }

  void after(double seconds, std::function<void()> call) override {
    if (!stopped_) timers_.emplace(Clock::now() + duration(seconds), std::move(call));
  }

  Status run() override {
    while (!live_.empty() || !timers_.empty()) {
      if (stopped_) {
        end_all();
        break;
      }
      while (!timers_.empty() && timers_.begin()->first <= Clock::now()) {
        const auto call = std::move(timers_.extract(timers_.begin()).mapped());
        call();
      }
      if (live_.empty() && timers_.empty()) break;
      int running = 0;
      CURLMcode code = library_.multi_perform(multi_, &running);
      if (!end_those_that_are_over() && code == CURLM_OK)
        code = library_.multi_poll(multi_, nullptr, 0, milliseconds_to_wait(), nullptr);
      if (code != CURLM_OK) return internal_error("the HTTP client failed: {}", library_.multi_strerror(code));
    }
    return {};
  }

  void stop() override {
    stopped_ = true;
    library_.multi_wakeup(multi_);
  }

 private:
  static constexpr long kMostKept = 4096;  // connections

  bool prepare(Transfer& t) const {
    const bool is_unix = !endpoint_.unix_path.empty();
    t.url = (endpoint_.is_tls ? "https://" : "http://") + (is_unix ? "localhost" : endpoint_.host_header()) + endpoint_.prefix +
            t.asked.path;
    bool fine = true;
    const auto set = [&](CURLoption option, auto value) { fine &= library_.easy_setopt(t.easy, option, value) == CURLE_OK; };
    const auto add_field = [&](const std::string& field) {
      curl_slist* const longer = library_.slist_append(t.fields, field.c_str());
      fine &= longer != nullptr;
      if (longer != nullptr) t.fields = longer;
    };
    add_field("Accept: application/json, text/event-stream");
    add_field("Expect:");  // no asking whether the body may come
    if (!t.asked.api_key.empty()) add_field("Authorization: Bearer " + t.asked.api_key);
    if (!t.asked.body.empty()) add_field("Content-Type: application/json");
    set(CURLOPT_URL, t.url.c_str());
    if (is_unix) set(CURLOPT_UNIX_SOCKET_PATH, endpoint_.unix_path.c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_PROXY, "");  // what is measured is the server
    set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    set(CURLOPT_USERAGENT, "choral-load");
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::min(t.asked.timeout_s, 2e6) * 1000));
    set(CURLOPT_HTTPHEADER, t.fields);
    set(CURLOPT_ERRORBUFFER, t.why);
    if (t.asked.method == "POST") {
      set(CURLOPT_POST, 1L);
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.asked.body.size()));
      set(CURLOPT_POSTFIELDS, t.asked.body.c_str());
    } else {
      set(CURLOPT_CUSTOMREQUEST, t.asked.method.c_str());
    }
    set(CURLOPT_HEADERDATA, &t);
    set(
        CURLOPT_HEADERFUNCTION, +[](char* bytes, size_t, size_t count, void* to) -> size_t {
          return static_cast<Transfer*>(to)->on_head_line({bytes, count});
        });
    set(CURLOPT_WRITEDATA, &t);
    set(
        CURLOPT_WRITEFUNCTION, +[](char* bytes, size_t, size_t count, void* to) -> size_t {
          return static_cast<Transfer*>(to)->on_body({bytes, count});
        });
    return fine;
  }

  int milliseconds_to_wait() const {
    constexpr int kLongest = 1000;
    if (timers_.empty()) return kLongest;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, kLongest));
  }

  std::unique_ptr<Transfer> take(CURL* easy) {
    library_.multi_remove_handle(multi_, easy);
    return std::move(live_.extract(easy).mapped());
  }

  bool end_those_that_are_over() {
    bool any = false;
    int left = 0;
    while (const CURLMsg* message = library_.multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      const auto transfer = take(message->easy_handle);
      transfer->exchange->on_end(status_of(code, *transfer));
      any = true;
    }
    return any;
  }

  void end_all() {
    timers_.clear();
    while (!live_.empty()) take(live_.begin()->first)->exchange->on_end(cancelled("stopped"));
  }

  Status status_of(CURLcode code, Transfer& t) const {
    if (!t.given_up.ok()) return std::move(t.given_up);
    const std::string_view why = t.why[0] != '\0' ? t.why : library_.easy_strerror(code);
    switch (code) {
      case CURLE_OK: return t.has_head ? Status() : corrupt("the server closed the connection within the head of its answer");
      case CURLE_OPERATION_TIMEDOUT:
        return deadline_exceeded("{}: the time limit passed", t.is_answered ? "reading the answer" : "waiting for the answer");
      case CURLE_COULDNT_RESOLVE_HOST: return not_found("{}: no such host", endpoint_.host);
      case CURLE_COULDNT_CONNECT:
      case CURLE_SSL_CONNECT_ERROR:
      case CURLE_PEER_FAILED_VERIFICATION: return unavailable("no connection to {}: {}", endpoint_.to_string(), why);
      case CURLE_GOT_NOTHING:
      case CURLE_PARTIAL_FILE:
      case CURLE_RECV_ERROR:
      case CURLE_SEND_ERROR: return corrupt("the server closed the connection: {}", why);
      default: return corrupt("{}", why);
    }
  }

  const Endpoint endpoint_;
  const fetch::CurlLibrary& library_;
  CURLM* const multi_;
  std::map<CURL*, std::unique_ptr<Transfer>> live_;
  std::multimap<Clock::time_point, std::function<void()>> timers_;
  std::atomic<bool> stopped_{false};
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::make(const Endpoint& endpoint) {
  CHORAL_TRY(const fetch::CurlLibrary* const library, fetch::CurlLibrary::open());
  CURLM* const multi = library->multi_init();
  if (multi == nullptr) return internal_error("libcurl does not start");
  return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(endpoint, *library, multi));
}

}  // namespace choral::tools
