// A request whose answer is on its way from the engine to a client: pieces go out as they come, or the whole at the end. The
// engine's thread only says that there is news; everything else happens on the exchange's I/O thread, so that no thread waits for
// a stream. A client that reads slowly makes its own answer wait (back-pressure), one that leaves stops its generation. A large
// piece goes out in slices, as the client reads, and nothing else comes between them.
// Thread-safe: start() once, abort() from any thread; the rest is the I/O thread's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "choral/llm.h"
#include "serve/error_body.h"
#include "serve/http/exchange.h"
#include "serve/keys/queue_shares.h"
#include "serve/keys/request_limits.h"
#include "serve/metrics/metrics.h"
#include "serve/openai/answer_form.h"

namespace choral::serve {

// The answer to one prompt, with what is counted of it and its place in its key's share of the queue.
struct LiveStream {
  std::unique_ptr<ResponseStream> stream;
  RequestMeter meter;
  QueueShares::Place place = {};
};

// What the engine took of one body, and the place that the body has within its key's and its adapters' limits.
struct LiveRequest {
  std::vector<LiveStream> streams;  // one a prompt
  RequestLimits::Grant grant;
  // At its end, once: what was used, and why it failed, for the log. May be empty.
  std::function<void(const Usage& used, const std::string& reason)> told = {};
};

class LiveAnswer : public std::enable_shared_from_this<LiveAnswer> {
 public:
  // Outlives the answer. Called from I/O threads.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual ApiError explain(const Status& status) const = 0;  // as clients may see it
    virtual void on_end(const LiveAnswer& answer) = 0;         // its last call
    // Runs what writes a long answer on a thread for that; false: no more. Outlives the answer.
    virtual bool write_beside(std::function<void()> work) = 0;
  };
  LiveAnswer(Owner& owner, std::shared_ptr<HttpExchange> exchange, LiveRequest request, std::unique_ptr<AnswerForm> form,
             bool is_streamed);

  // From the I/O thread's first turn on the answer keeps itself alive until it has ended. Where that thread has stopped there is
  // no turn, and the answer goes with its last reference.
  void start();
  // Ends it with an error, as the last event of a stream that has begun.
  void abort(Status status);

 private:
  void begin_reading();
  void replay_given();
  void pump();
  void go_on();
  void pump_when_drained();
  bool drain(size_t index);  // false: the client must read first
  void send(std::string piece);
  bool send_rest();  // false: the client must read first
  void take(size_t index, const StreamEvent& event);
  void pace(size_t index, const StreamEvent& event);
  void complete(size_t index);
  void begin(size_t index);
  void keep_alive();
  void finish();
  void fail(const Status& status, bool adapter_unusable = false);
  void end(FinishReason reason);

  Owner& owner_;
  const std::shared_ptr<HttpExchange> exchange_;
  std::vector<LiveStream> streams_;
  RequestLimits::Grant grant_;
  const std::function<void(const Usage&, const std::string&)> told_;
  std::unique_ptr<AnswerForm> form_;
  const bool is_streamed_;
  std::shared_ptr<LiveAnswer> self_;                   // from begin_reading() to the end
  std::vector<std::optional<RequestOutput>> outputs_;  // one a stream, once it has ended
  Usage usage_;
  std::vector<bool> counted_;  // one a stream: its prompt is in usage_
  const double begun_s_;       // when the engine had the request
  struct Pace {
    Progress progress;
    double first_s = 0;  // when its first piece came
  };
  std::vector<Pace> paces_;  // one a stream, when the answer streams
  bool replayed_ = false;    // the form knows what was given of the answer
  bool begun_ = false;       // the head of a stream is out
  std::string piece_;        // that is not out yet; empty: there is none
  size_t piece_sent_ = 0;    // bytes of it that are: over 0, the client is in the middle of an event
  std::string reason_;       // of its failure
  bool is_quiet_ = true;     // since the last keep-alive nothing went out
  int quiet_times_ = 0;      // that it said nothing because it had not begun
};

}  // namespace choral::serve
