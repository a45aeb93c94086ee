#include "serve/batches/batch_runner.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "base/clock.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/thread.h"
#include "serve/http/error_response.h"
#include "serve/service/model_names.h"

namespace choral::serve {
namespace {

constexpr std::chrono::milliseconds kLookWhileBusy{50};  // live traffic does not say that it ends
constexpr std::chrono::milliseconds kLookWhileIdle{1000};
constexpr double kRetry_s = 1, kDropOld_s = 60;
constexpr int64_t kMostBytesInFlight = 64 << 20;
constexpr size_t kMostFaults = 100;  // that a batch tells

int64_t unix_time() { return static_cast<int64_t>(std::time(nullptr)); }

bool is_no_room(int status) { return status == 429 || status == 503; }

}  // namespace

int64_t most_lines(int64_t places, int64_t others, int64_t waiting) {
  if (others <= 0) return std::max<int64_t>(places / 2, 1);
  return waiting > 0 ? 0 : std::max<int64_t>(places / 8, 1);
}

Result<std::unique_ptr<BatchRunner>> BatchRunner::start(Service& service, Answer answer) {
  std::unique_ptr<BatchRunner> runner(new BatchRunner(service, std::move(answer)));
  CHORAL_TRY(runner->queue_, WorkQueue::make("the thread of batches' answers", 1, SIZE_MAX));
  CHORAL_TRY(runner->thread_, start_thread("the thread of batches", [r = runner.get()] { r->run(); }));
  return runner;
}

void BatchRunner::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  store_.wake();
  if (thread_.joinable()) thread_.join();
  std::vector<std::shared_ptr<LineExchange>> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, running] : running_) {
      for (const auto& [line, exchange] : running.in_flight) open.push_back(exchange.lock());
    }
  }
  for (const auto& exchange : open) {
    if (exchange) exchange->cancel();
  }
  open.clear();
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return in_flight_ == 0; });
  lock.unlock();
  if (queue_) queue_->stop();
}

void BatchRunner::run() {
  double dropped_s = now_s();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
    }
    Status status = or_out_of_memory("batches cannot be worked off", [this] { return look(); });
    if (status.ok() && now_s() - dropped_s > kDropOld_s) {
      dropped_s = now_s();
      status = store_.drop_old();
    }
    if (!status.ok()) CHORAL_LOG(kError, "batches: {}", status.message());
    bool is_idle = false;
    {
      const std::lock_guard lock(mutex_);
      is_idle = running_.empty() || !status.ok();
    }
    store_.wait(is_idle ? kLookWhileIdle : kLookWhileBusy);
  }
}

Status BatchRunner::look() {
  CHORAL_TRY(const auto batches, store_.unfinished());
  for (const auto& batch : batches) CHORAL_RETURN_IF_ERROR(look_at(batch));
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const auto& one) {
    return one.second.in_flight.empty() &&
           std::none_of(batches.begin(), batches.end(), [&](const StoredBatch& batch) { return batch.id == one.first; });
  });
  return {};
}

Status BatchRunner::look_at(const StoredBatch& batch) {
  if (batch.status == "validating") return validate(batch);
  if (batch.status == "cancelling") return ends_in_flight(batch) ? end(batch, "cancelled") : Status();
  if (batch.status == "finalizing") return end(batch, "completed");
  if (unix_time() >= batch.expires_unix_s) return expire(batch);
  return feed(batch);
}

bool BatchRunner::has_model(const std::string& name) {
  const std::string adapter(adapter_named(name, service_.base_names()));
  if (adapter.empty()) return true;
  const auto names = service_.adapter_names();
  if (std::binary_search(names->begin(), names->end(), adapter)) return true;
  return service_.llm()->vocabulary({{.name = adapter}}).status().code() != Code::kNotFound;
}

std::vector<LineFault> BatchRunner::check_lines(const StoredBatch& batch, int64_t& total) {
  std::vector<LineFault> faults;
  std::set<std::string> ids, models;
  const auto add = [&](LineFault fault, int64_t line) {
    fault.line = line;
    faults.push_back(std::move(fault));
  };
  for (int64_t next = 0; faults.size() < kMostFaults;) {
    const auto line = store_.unanswered(batch, next);
    if (!line.ok()) add({.code = "internal", .message = line.status().message()}, 0);
    if (!line.ok() || !*line) break;
    next = (*line)->number + 1;
    if (++total > BatchStore::kMostLines) {
      add({.code = "too_many_requests", .message = fmt::format("a batch has at most {} lines", BatchStore::kMostLines)}, 0);
      break;
    }
    BatchLine asked;
    if (auto fault = read_batch_line((*line)->text, batch.endpoint, asked)) {
      add(*std::move(fault), next);
    } else if (!ids.insert(asked.custom_id).second) {
      add({.code = "duplicate_custom_id",
           .message = fmt::format("The custom_id '{}' is used more than once in this file.", asked.custom_id),
           .param = "custom_id"},
          next);
    } else if (!asked.model.empty() && !models.contains(asked.model) && !has_model(asked.model)) {
      add({.code = "model_not_found",
           .message = fmt::format("The provided model '{}' is not here; GET /v1/models lists the base and its adapters",
                                  asked.model.substr(0, 128)),
           .param = "body.model"},
          next);
    } else {
      models.insert(asked.model);
    }
  }
  if (total == 0 && faults.empty()) add({.code = "empty_file", .message = "The batch input file has no line."}, 0);
  return faults;
}

Status BatchRunner::validate(const StoredBatch& batch) {
  int64_t total = 0;
  const auto faults = check_lines(batch, total);
  if (!faults.empty()) {
    return store_.end_batch(batch.id, [&](StoredBatch& b) {
      set_batch_errors(b, faults);
      set_batch_status(b, "failed", unix_time());
    });
  }
  return store_
      .change_batch(batch.id,
                    [&](StoredBatch& b) {
                      b.total = total;
                      if (b.status == "validating") set_batch_status(b, "in_progress", unix_time());
                    })
      .status();
}

bool BatchRunner::has_room() {
  const EngineStats stats = service_.llm()->stats();
  const std::lock_guard lock(mutex_);
  if (stopped_ || now_s() < wait_until_s_) return false;
  const int64_t others = int64_t{stats.running} + stats.waiting - in_flight_;
  return in_flight_bytes_ < kMostBytesInFlight && in_flight_ < most_lines(service_.most_answers_at_once(), others, stats.waiting);
}

Result<std::optional<FileLine>> BatchRunner::next_line(const StoredBatch& batch) {
  int64_t from = 0;
  bool is_again = false;
  {
    const std::lock_guard lock(mutex_);
    Running& running = running_[batch.id];
    is_again = !running.again.empty();
    from = is_again ? running.again.front() : running.next;
    if (is_again) running.again.pop_front();
  }
  if (is_again) return store_.line(batch.input_file, from);
  CHORAL_TRY(auto line, store_.unanswered(batch, from));
  const std::lock_guard lock(mutex_);
  if (line) running_[batch.id].next = line->number + 1;
  return line;
}

Status BatchRunner::feed(const StoredBatch& batch) {
  {
    const std::lock_guard lock(mutex_);
    running_[batch.id];  // it is looked at often from now on
  }
  while (has_room()) {
    CHORAL_TRY(auto line, next_line(batch));
    if (line) {
      begin(batch, *line);
      continue;
    }
    std::unique_lock lock(mutex_);
    const Running& running = running_[batch.id];
    const bool is_done = running.in_flight.empty() && running.again.empty();
    lock.unlock();
    if (!is_done) return {};
    // Unless it is being cancelled.
    return store_
        .change_batch(batch.id,
                      [](StoredBatch& b) {
                        if (b.status == "in_progress") set_batch_status(b, "finalizing", unix_time());
                      })
        .status();
  }
  return {};
}

void BatchRunner::begin(const StoredBatch& batch, const FileLine& line) {
  BatchLine asked;
  if (const auto fault = read_batch_line(line.text, batch.endpoint, asked))
    return keep(batch, line.number, true, fault_line(asked.custom_id, *fault));
  HttpRequest request = line_request(asked.url, std::move(asked.body));
  request.on_behalf_of = batch.owner;
  request.in_background = true;
  const Asked known{.line = line.number,
                    .bytes = std::ssize(line.text),
                    .custom_id = std::move(asked.custom_id),
                    .request_id = request.ids.request};
  if (service_.asks_for_keys() && !service_.key_holder(request)) {
    const auto refused =
        error_response({.status = 401, .message = "the API key that sent this batch is no more", .code = "invalid_api_key"});
    return keep(batch, line.number, true, answer_line(known.custom_id, refused, known.request_id));
  }
  const auto exchange = std::make_shared<LineExchange>(
      std::move(request), *queue_, [this, batch, known](const HttpResponse& answer) { on_answer(batch, known, answer); });
  {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
    in_flight_bytes_ += known.bytes;
    running_[batch.id].in_flight[known.line] = exchange;
  }
  answer_(exchange);
}

// What was cancelled has no answer; who cancelled it knows what becomes of the line.
void BatchRunner::on_answer(const StoredBatch& batch, const Asked& asked, const HttpResponse& answer) {
  BatchStore& store = store_;  // which outlives this, as nothing in flight may not
  const bool is_late = is_no_room(answer.status);
  if (answer.status != 0 && !is_late)
    keep(batch, asked.line, answer.status != 200, answer_line(asked.custom_id, answer, asked.request_id),
         used_tokens(answer.body));
  {
    const std::lock_guard lock(mutex_);
    Running& running = running_[batch.id];
    running.in_flight.erase(asked.line);
    if (is_late) {
      running.again.push_back(asked.line);
      wait_until_s_ = now_s() + kRetry_s;
    }
    --in_flight_;
    in_flight_bytes_ -= asked.bytes;
    ended_.notify_all();
  }
  store.wake();
}

void BatchRunner::keep(const StoredBatch& batch, int64_t line, bool has_failed, const std::string& text, const LineUsage& used) {
  Status status = store_.add_answer(batch, line, has_failed, text + "\n", used);
  if (status.ok()) return;
  CHORAL_LOG(kError, "batch {}: line {} is answered and cannot be kept: {}", batch.id, line + 1, status.message());
  status = fail(batch, {.code = "storage_full", .message = status.message()});
  if (!status.ok()) CHORAL_LOG(kError, "batch {}: {}", batch.id, status.message());
}

Status BatchRunner::fail(const StoredBatch& batch, const LineFault& fault) {
  return store_.end_batch(batch.id, [&](StoredBatch& b) {
    set_batch_errors(b, std::span(&fault, 1));
    set_batch_status(b, "failed", unix_time());
  });
}

// True once nothing of the batch is in flight any more.
bool BatchRunner::ends_in_flight(const StoredBatch& batch) {
  std::vector<std::shared_ptr<LineExchange>> open;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(batch.id);
    if (found == running_.end()) return true;
    found->second.again.clear();
    if (found->second.in_flight.empty()) return true;
    for (const auto& [line, exchange] : found->second.in_flight) open.push_back(exchange.lock());
  }
  for (const auto& exchange : open) {
    if (exchange) exchange->cancel();
  }
  return false;
}

Status BatchRunner::expire(const StoredBatch& batch) {
  if (!ends_in_flight(batch)) return {};
  for (int64_t next = 0;;) {
    CHORAL_TRY(const auto line, store_.unanswered(batch, next));
    if (!line) break;
    next = line->number + 1;
    BatchLine asked;
    std::ignore = read_batch_line(line->text, batch.endpoint, asked);
    CHORAL_RETURN_IF_ERROR(store_.add_answer(
        batch, line->number, true,
        fault_line(asked.custom_id, {.code = "batch_expired",
                                     .message = "This request could not be executed before the completion window expired."}) +
            "\n"));
  }
  return end(batch, "expired");
}

Status BatchRunner::end(const StoredBatch& batch, std::string_view status) {
  {
    const std::lock_guard lock(mutex_);
    running_.erase(batch.id);
  }
  return store_.end_batch(batch.id, [&](StoredBatch& b) { set_batch_status(b, status, unix_time()); });
}

}  // namespace choral::serve
