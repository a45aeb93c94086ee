#include "serve/service/observed_exchange.h"

#include "base/clock.h"
#include "serve/http/fault_boundary.h"

namespace choral::serve {

ObservedExchange::ObservedExchange(std::shared_ptr<HttpExchange> inner, Dialect dialect, Told told, Headers more)
    : inner_(std::move(inner)),
      dialect_(dialect),
      told_(std::move(told)),
      more_(std::move(more)),
      begin_s_(now_s()),
      begin_unix_s_(unix_s()) {}

ObservedExchange::~ObservedExchange() {
  contained("telling of an answer", [this] {
    told_({.request = inner_->request(),
           .status = status_,
           .seconds = now_s() - begin_s_,
           .begin_unix_s = begin_unix_s_,
           .notes = std::move(notes_)});
  });
}

void ObservedExchange::note_model(std::string model, const std::vector<AdapterUse>& adapters) {
  const std::lock_guard lock(mutex_);
  notes_.model = std::move(model);
  notes_.adapters.clear();
  for (const auto& use : adapters) notes_.adapters.push_back(use.name);
}

void ObservedExchange::note_adapter(std::string name) {
  const std::lock_guard lock(mutex_);
  notes_.adapters = {std::move(name)};
}

void ObservedExchange::note_end(const Usage& usage, std::string reason) {
  const std::lock_guard lock(mutex_);
  notes_.usage = usage;
  if (!reason.empty()) notes_.reason = std::move(reason);
}

void ObservedExchange::warn(std::vector<std::string> warnings) {
  const std::lock_guard lock(mutex_);
  warnings_ = std::move(warnings);
}

void ObservedExchange::add_more(Headers& headers) {
  for (const auto& field : more_) headers.add(field.name, field.value);
  const std::lock_guard lock(mutex_);
  for (const auto& warning : warnings_) headers.add("X-Choral-Warnings", warning);
}

void ObservedExchange::respond(HttpResponse response) {
  status_ = response.status;
  {
    const std::lock_guard lock(mutex_);
    if (!response.reason.empty()) notes_.reason = response.reason;
  }
  add_more(response.headers);
  translate(dialect_, request().ids, response);
  inner_->respond(std::move(response));
}

void ObservedExchange::begin_stream(int status, Headers headers) {
  status_ = status;
  add_more(headers);
  translate(dialect_, request().ids, headers);
  inner_->begin_stream(status, std::move(headers));
}

}  // namespace choral::serve
