#include "serve/local_batch.h"

#include <condition_variable>
#include <mutex>

#include "serve/batches/batch_json.h"
#include "serve/batches/line_exchange.h"
#include "serve/routes/router.h"
#include "serve/service_options.h"

namespace choral::serve {

// Its answer, once there is one.
struct LocalBatch::Line {
  const int64_t number;
  BatchLine asked = {};
  std::mutex mutex = {};
  std::condition_variable answered = {};
  bool is_done = false, had_no_room = false;
  Answered answer = {};
  std::weak_ptr<LineExchange> exchange = {};

  void end(std::string line, std::string error, bool no_room = false) {
    const std::lock_guard lock(mutex);
    answer = {.number = number, .line = std::move(line), .error = std::move(error)};
    had_no_room = no_room;
    is_done = true;
    answered.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    answered.wait(lock, [&] { return is_done; });
  }
};

LocalBatch::LocalBatch() = default;

Result<std::unique_ptr<LocalBatch>> LocalBatch::make(LLM& llm, const EngineOptions& options, const ServerOptions& settings) {
  std::unique_ptr<LocalBatch> batch(new LocalBatch());
  CHORAL_TRY(auto service, service_options(settings));
  CHORAL_TRY(batch->service_, Service::make(std::move(service)));
  CHORAL_TRY(batch->queue_, WorkQueue::make("the thread of a batch's answers", 1, SIZE_MAX));
  CHORAL_RETURN_IF_ERROR(batch->service_->attach(llm, options));
  return batch;
}

// Ends what is open first: it uses all of this.
LocalBatch::~LocalBatch() {
  for (const auto& line : open_) {
    if (const auto exchange = line->exchange.lock()) exchange->cancel();
  }
  while (!open_.empty()) next();
  if (service_) service_->stop();
  if (queue_) queue_->stop();
}

void LocalBatch::add(int64_t number, std::string_view text) {
  const auto line = std::make_shared<Line>(number);
  open_.push_back(line);
  if (const auto fault = read_batch_line(text, "", line->asked))
    return line->end(fault_line(line->asked.custom_id, *fault), fault->message);
  ask(line);
}

void LocalBatch::ask(const std::shared_ptr<Line>& line) {
  HttpRequest request = line_request(line->asked.url, line->asked.body);
  const Dialect dialect = dialect_of(request);
  const std::string id = request.ids.request;
  const auto exchange = std::make_shared<LineExchange>(std::move(request), *queue_, [line, id](const HttpResponse& answer) {
    const bool had_no_room = answer.status == 429 || answer.status == 503;
    std::string error;
    if (answer.status != 200) error = answer.reason.empty() ? fmt::format("status {}", answer.status) : answer.reason;
    line->end(answer_line(line->asked.custom_id, answer, id), std::move(error), had_no_room);
  });
  line->exchange = exchange;
  route(*service_, std::make_shared<ObservedExchange>(exchange, dialect, [](const AnsweredRequest&) {}));
}

LocalBatch::Answered LocalBatch::next() {
  const auto line = std::move(open_.front());
  open_.pop_front();
  line->wait();
  if (line->had_no_room) {  // others had the queue's room; now it has all of it
    for (const auto& other : open_) other->wait();
    line->is_done = false;
    ask(line);
    line->wait();
  }
  return std::move(line->answer);
}

}  // namespace choral::serve
