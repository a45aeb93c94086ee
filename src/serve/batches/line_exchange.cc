#include "serve/batches/line_exchange.h"

#include <utility>

#include "serve/http/error_response.h"
#include "serve/http/fault_boundary.h"
#include "serve/http/request_ids.h"

namespace choral::serve {

HttpRequest line_request(std::string path, std::string body) {
  HttpRequest request;
  request.method = "POST";
  request.path = std::move(path);
  request.headers.add("Content-Type", "application/json");
  request.body = std::move(body);
  request.peer = request.payer = "batch";
  request.ids = make_request_ids(request.headers);
  return request;
}

LineExchange::~LineExchange() {
  contained("the end of a batch's line", [this] {
    if (cancelled_) return end({.status = 0});
    abort();
  });
}

void LineExchange::end(HttpResponse response) {
  Ended ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(ended_);
    on_closed_ = {};
  }
  if (ended) ended(std::move(response));
}

void LineExchange::cancel() {
  std::function<void()> left;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    left.swap(on_closed_);
  }
  if (left) post(std::move(left));
}

void LineExchange::begin_stream(int status, Headers headers) {
  const std::lock_guard lock(mutex_);
  gathered_.status = status;
  gathered_.headers = std::move(headers);
}

void LineExchange::send(std::string bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (gathered_.body.size() + bytes.size() <= kMostBytes) {
      gathered_.body += bytes;
      return;
    }
  }
  end(error_response(too_large("the answer has more than {} bytes", kMostBytes)));
}

void LineExchange::end_stream() {
  HttpResponse whole;
  {
    const std::lock_guard lock(mutex_);
    whole = std::exchange(gathered_, {});
  }
  end(std::move(whole));
}

void LineExchange::abort() { end(error_response({.status = 500, .message = "the server lost this answer", .code = "internal"})); }

void LineExchange::on_closed(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      on_closed_.swap(callback);
      return;
    }
  }
  post(std::move(callback));
}

bool LineExchange::closed() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

}  // namespace choral::serve
