#include "serve/responses/background_exchange.h"

#include <utility>

namespace choral::serve {

void BackgroundExchange::cancel() {
  std::function<void()> left;
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    left.swap(on_closed_);
  }
  end_stream();
  if (left) post(std::move(left));
}

bool BackgroundExchange::has_begun() const {
  const std::lock_guard lock(mutex_);
  return begun_;
}

void BackgroundExchange::respond(HttpResponse response) {
  if (response.error) failed_(*response.error);
}

void BackgroundExchange::begin_stream(int, Headers) {
  const std::lock_guard lock(mutex_);
  begun_ = true;
}

void BackgroundExchange::send(std::string bytes) {
  if (events_) events_->append(bytes);
}

void BackgroundExchange::end_stream() {
  if (events_) events_->close();
}

void BackgroundExchange::abort() { failed_({.message = "the server lost this response", .code = "internal"}); }

void BackgroundExchange::on_closed(std::function<void()> callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) {
      on_closed_.swap(callback);
      return;
    }
  }
  post(std::move(callback));
}

bool BackgroundExchange::closed() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void BackgroundExchanges::add(std::string id, const std::shared_ptr<BackgroundExchange>& exchange) {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& one) { return one.second.expired(); });
  all_[std::move(id)] = exchange;
}

bool BackgroundExchanges::empty() {
  const std::lock_guard lock(mutex_);
  std::erase_if(all_, [](const auto& one) { return one.second.expired(); });
  return all_.empty();
}

std::shared_ptr<BackgroundExchange> BackgroundExchanges::find(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(id);
  return found == all_.end() ? nullptr : found->second.lock();
}

}  // namespace choral::serve
