// What a Prometheus server reads from GET /metrics: vLLM's names, labels, types and buckets, so that boards, alerts and the
// endpoint picker of the Gateway API work unchanged, and under choral: what vLLM does not tell. Requests are counted by events,
// each a few atomic additions and at most one short lock; what the engine counts itself is taken from its own figures at the
// scrape, so nothing is counted twice. docs/serving/metrics.md lists all of it.
// Thread-safe. Times are now_s() (base/clock.h), handed in.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "choral/llm.h"

namespace choral::serve {

// Why a request was refused before it had an engine's place: values of the label `reason`.
enum class Rejection : uint8_t { kQueueFull, kQueueShare, kKeyLimit, kAdapterLimit, kDraining };
std::string_view rejection_name(Rejection reason);  // "queue_full"

// Of the catalogue that this server follows.
struct CatalogueFigures {
  int64_t adapters = 0;
  int64_t drifted = 0;  // are served with another content here
  double read_unix_s = 0;
  int64_t failures = 0;  // times it could not be read
};

// What the engine says of itself, at one scrape.
struct EngineView {
  EngineStats stats = {};
  std::vector<AdapterInfo> adapters = {};
  EngineActivity activity = {};
  EngineHeartbeat heartbeat = {};
  size_t device_notes = 0;  // what a device took up or gave up: LLM::device_notes()
  std::optional<CatalogueFigures> catalogue = {};
};

// What is known of a request at its end, from its RequestOutput.
struct RequestTotals {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of them, from the prefix cache
  double queue_s = 0;
  int preemptions = 0;
};

// Counts one request that the engine took, from its arrival to its end. Every method is called with the stream's own order of
// events, by one thread at a time. A meter that goes without end() counts what has not finished as aborted: its client left.
class RequestMeter {
 public:
  RequestMeter();  // counts nothing
  RequestMeter(RequestMeter&&) noexcept;
  RequestMeter& operator=(RequestMeter&&) noexcept;
  ~RequestMeter();

  // `count` tokens of completion `index` came at once. What is no token (an empty last event) is not counted.
  void on_tokens(int index, int64_t count, double now);
  void on_guesses(const GuessCounts& more);  // of any completion
  void on_finish(int index, FinishReason reason, double now);
  // The stream is over: completions without on_finish() ended with `reason`.
  void end(const RequestTotals& totals, FinishReason reason, double now);

 private:
  friend class Metrics;
  struct State;
  explicit RequestMeter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

class Metrics {
 public:
  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

  // `model_name`: the base, as clients name it. Of adapters, `max_adapters` have series of their own at a time.
  Metrics(const std::string& model_name, const ModelInfo& model, const EngineOptions& options, size_t max_adapters = 100);
  ~Metrics();  // after the last meter
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // A request that the engine took, which came at `arrival_s`. `adapters` exist.
  RequestMeter begin(std::span<const AdapterUse> adapters, const SamplingParams& sampling, double arrival_s);
  void reject(Rejection reason);
  // An answer went out. `route` is one of the server's own, never what a client wrote; empty: no route was found.
  void http_answer(std::string_view route, int status);
  void unknown_fields(int64_t count);   // of a request's body, ignored with a warning
  void adapter_loaded(double seconds);  // a load that a client asked for by name, from its request to its answer

  // All of it in Prometheus' text format 0.0.4. `unix_s` is the wall clock's.
  std::string exposition(const EngineView& view, double unix_s);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  friend class RequestMeter;
};

}  // namespace choral::serve
