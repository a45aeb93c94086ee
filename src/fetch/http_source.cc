#include "fetch/http_source.h"

#include <algorithm>
#include <charconv>

#include "base/printable.h"
#include "choral/llm.h"
#include "fetch/curl_library.h"

namespace choral::fetch {
namespace {

constexpr long kConnectSeconds = 30, kStalledSeconds = 60;
constexpr size_t kMostErrorBytes = 2000;

}  // namespace

// What a transfer does with what comes.
struct HttpSource::Transfer {
  const CurlLibrary& library;
  CURL* curl = nullptr;
  int64_t from = 0;
  FunctionRef<Status(int64_t)> begin;
  FunctionRef<Status(std::span<const std::byte>)> take;
  bool begun = false;
  int64_t http = 0;
  std::string error_body = {};
  Status status = {};

  size_t write(std::span<const std::byte> bytes) {
    library.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http);
    if (http != 200 && http != 206) {
      const auto* text = reinterpret_cast<const char*>(bytes.data());
      error_body.append(text, std::min(bytes.size(), kMostErrorBytes - std::min(kMostErrorBytes, error_body.size())));
      return bytes.size();
    }
    if (!begun) status = begin(http == 206 ? from : 0);
    begun = true;
    if (status.ok()) status = take(bytes);
    return status.ok() ? bytes.size() : 0;  // 0 ends the transfer
  }
};

Result<std::unique_ptr<HttpSource>> HttpSource::make(std::string endpoint, std::string token, HttpSourceWords words) {
  const bool is_tls = endpoint.starts_with("https://");
  if (!is_tls && !endpoint.starts_with("http://"))
    return invalid_argument("the address of {}, '{}', begins neither with https:// nor with http://", words.name, endpoint);
  std::unique_ptr<HttpSource> made(new HttpSource(std::move(endpoint), std::move(words)));
  CHORAL_TRY(made->library_, CurlLibrary::open());
  made->curl_ = made->library_->easy_init();
  if (made->curl_ == nullptr) return internal_error("libcurl does not start");
  const CurlLibrary& library = *made->library_;
  CURL* const curl = made->curl_;
  const char* const protocols = is_tls ? "https" : "http,https";
  library.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
  library.easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
  library.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  library.easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
  library.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  library.easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  library.easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  library.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  library.easy_setopt(curl, CURLOPT_USERAGENT, fmt::format("choral/{}", version()).c_str());
  if (!made->words_.ca_file.empty()) library.easy_setopt(curl, CURLOPT_CAINFO, made->words_.ca_file.c_str());
  library.easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  library.easy_setopt(curl, CURLOPT_XFERINFODATA, made.get());
  library.easy_setopt(
      curl, CURLOPT_XFERINFOFUNCTION, +[](void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) -> int {
        return static_cast<HttpSource*>(self)->stopped_.load() ? 1 : 0;
      });
  made->set_token(std::move(token));
  return made;
}

void HttpSource::set_token(std::string token) {
  token_ = std::move(token);
  library_->easy_setopt(curl_, CURLOPT_HTTPAUTH, token_.empty() ? CURLAUTH_BASIC : CURLAUTH_BEARER);
  library_->easy_setopt(curl_, CURLOPT_XOAUTH2_BEARER, token_.empty() ? nullptr : token_.c_str());
}

HttpSource::~HttpSource() {
  if (curl_ != nullptr) library_->easy_cleanup(curl_);
}

std::string HttpSource::quoted(std::string_view segment) {
  std::string out;
  for (const char c : segment) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                       c == '.' || c == '~';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Status HttpSource::failed(int64_t http, const std::string& path, const std::string& said) const {
  const std::string where = terminal_line(fmt::format("{}{}", endpoint_, path.substr(0, path.find('?'))));
  if (http == 401 || http == 403) {
    return permission_denied("{} is not given (HTTP {}): it is private, gated, or not there. {}", where, http,
                             token_.empty() ? words_.brings_token + " brings a token"
                                            : fmt::format("the token ({}) has no access to it", words_.brings_token));
  }
  if (http == 404) return not_found("{} is not there (HTTP 404)", where);
  const std::string reason = said.empty() ? "" : ": " + printable(said, 200);
  if (http == 408 || http == 429 || http >= 500) return unavailable("{} cannot be had now (HTTP {}){}", where, http, reason);
  return invalid_argument("{} was refused (HTTP {}){}", where, http, reason);
}

// Retry-After, or the hub's own header, `ratelimit: "api";r=0;t=55`.
int64_t HttpSource::asked_to_wait() const {
  curl_off_t seconds = 0;
  library_->easy_getinfo(curl_, CURLINFO_RETRY_AFTER, &seconds);
  if (seconds > 0) return seconds;
  curl_header* limit = nullptr;
  if (library_->easy_header(curl_, "ratelimit", 0, CURLH_HEADER, -1, &limit) != CURLHE_OK) return 0;
  const std::string_view text = limit->value;
  const size_t at = text.find(";t=");
  if (at == text.npos) return 0;
  int64_t until = 0;
  std::from_chars(text.data() + at + 3, text.data() + text.size(), until);
  return std::max<int64_t>(until, 0);
}

Status HttpSource::run(const std::string& path, Transfer& transfer) {
  const CurlLibrary& library = *library_;
  CURL* const curl = transfer.curl = curl_;
  wait_s_ = 0;
  const std::string url = endpoint_ + path;
  char why[CURL_ERROR_SIZE] = "";
  library.easy_setopt(curl, CURLOPT_URL, url.c_str());
  library.easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(transfer.from));
  library.easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  library.easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  library.easy_setopt(
      curl, CURLOPT_WRITEFUNCTION, +[](char* bytes, size_t, size_t count, void* to) -> size_t {
        return static_cast<Transfer*>(to)->write(std::as_bytes(std::span(bytes, count)));
      });
  const CURLcode code = library.easy_perform(curl);
  library.easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (stopped_.load()) return unavailable("{}: it is no longer waited for", endpoint_);
  if (!transfer.status.ok()) return std::move(transfer.status);
  if (code == CURLE_RANGE_ERROR) {  // from the beginning then
    transfer.from = 0;
    return run(path, transfer);
  }
  if (code != CURLE_OK) return unavailable("{}: {}", endpoint_, why[0] != '\0' ? why : library.easy_strerror(code));
  library.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &transfer.http);
  if (transfer.http == 304) return {};
  if (transfer.http != 200 && transfer.http != 206) wait_s_ = asked_to_wait();
  if (transfer.http != 200 && transfer.http != 206) return failed(transfer.http, path, transfer.error_body);
  return transfer.begun ? Status() : transfer.begin(transfer.http == 206 ? transfer.from : 0);
}

Result<std::string> HttpSource::get_text(const std::string& path, size_t most_bytes) {
  std::string text;
  const auto begin = [](int64_t) { return Status(); };
  const auto take = [&](std::span<const std::byte> bytes) -> Status {
    if (text.size() + bytes.size() > most_bytes)
      return too_large("the answer of {} has more than {} bytes", words_.name, most_bytes);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  Transfer transfer{.library = *library_, .begin = begin, .take = take};
  CHORAL_RETURN_IF_ERROR(run(path, transfer));
  return text;
}

std::string HttpSource::etag() const {
  curl_header* header = nullptr;
  return library_->easy_header(curl_, "etag", 0, CURLH_HEADER, -1, &header) == CURLHE_OK ? header->value : "";
}

Result<std::optional<std::string>> HttpSource::get_if_changed(const std::string& path, size_t most_bytes, std::string& etag) {
  curl_slist* headers = nullptr;
  if (!etag.empty()) headers = library_->slist_append(nullptr, ("If-None-Match: " + etag).c_str());
  library_->easy_setopt(curl_, CURLOPT_HTTPHEADER, headers);
  auto text = get_text(path, most_bytes);
  library_->easy_setopt(curl_, CURLOPT_HTTPHEADER, nullptr);
  library_->slist_free_all(headers);
  if (!text.ok()) return text.status();
  int64_t http = 0;
  library_->easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &http);
  if (http == 304) return std::optional<std::string>();
  etag = this->etag();
  return std::optional(*std::move(text));
}

Status HttpSource::get_file(const std::string& path, int64_t from, FunctionRef<Status(int64_t)> begin,
                            FunctionRef<Status(std::span<const std::byte>)> take) {
  Transfer transfer{.library = *library_, .from = from, .begin = begin, .take = take};
  return run(path, transfer);
}

}  // namespace choral::fetch
