// Works off the batches that are stored, in the gaps of live traffic: a thread looks at them, and has as many lines answered at a
// time as leave room. What is in flight when it stops is begun again by the next server. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "serve/batches/batch_json.h"
#include "serve/batches/line_exchange.h"
#include "serve/service/service.h"

namespace choral::serve {

// Lines in flight, of an engine with so many places: half of them while nobody else is there, an eighth beside others, and none
// that would wait with them.
int64_t most_lines(int64_t places, int64_t others, int64_t waiting);

class BatchRunner {
 public:
  // Has a request answered, by the exchange.
  using Answer = std::function<void(std::shared_ptr<HttpExchange>)>;

  // `service`: its engine is loaded, and it keeps batches; it outlives the runner.
  static Result<std::unique_ptr<BatchRunner>> start(Service& service, Answer answer);
  ~BatchRunner() { stop(); }
  // Returns when nothing is in flight.
  void stop();

 private:
  // What is known of a batch beside the store.
  struct Running {
    int64_t next = 0;           // lines before it were begun
    std::deque<int64_t> again;  // lines that found no room
    std::map<int64_t, std::weak_ptr<LineExchange>> in_flight;
  };

  BatchRunner(Service& service, Answer answer) : service_(service), store_(*service.batches()), answer_(std::move(answer)) {}
  void run();
  Status look();
  Status look_at(const StoredBatch& batch);
  Status validate(const StoredBatch& batch);
  std::vector<LineFault> check_lines(const StoredBatch& batch, int64_t& total);
  bool has_model(const std::string& name);
  Status feed(const StoredBatch& batch);
  Result<std::optional<FileLine>> next_line(const StoredBatch& batch);
  void begin(const StoredBatch& batch, const FileLine& line);
  struct Asked {
    int64_t line = 0, bytes = 0;
    std::string custom_id, request_id;
  };
  void on_answer(const StoredBatch& batch, const Asked& asked, const HttpResponse& answer);
  void keep(const StoredBatch& batch, int64_t line, bool has_failed, const std::string& text, const LineUsage& used = {});
  Status fail(const StoredBatch& batch, const LineFault& fault);
  Status expire(const StoredBatch& batch);
  bool ends_in_flight(const StoredBatch& batch);
  Status end(const StoredBatch& batch, std::string_view status);
  bool has_room();

  Service& service_;
  BatchStore& store_;
  const Answer answer_;
  std::unique_ptr<WorkQueue> queue_;
  std::thread thread_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable ended_;
  bool stopped_ = false;
  int64_t in_flight_ = 0, in_flight_bytes_ = 0;
  double wait_until_s_ = 0;  // a line found no room
  std::map<std::string, Running> running_;
};

}  // namespace choral::serve
