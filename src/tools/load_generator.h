// Load on a server that speaks OpenAI's API, this one or another: requests by a rate or with so many in flight, each for one of
// several adapters, and what they met. Latencies are kept in buckets of 1 %, so that a long run takes no more memory than a short
// one. With a rate, a request's times begin when it was due, not when this program came round to it: a server that stalls cannot
// hide it by slowing the generator down.
// One thread makes and runs it; stop() may be called from any.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace choral::tools {

enum class AdapterSkew { kInTurn, kUniform, kZipf };  // zipf: the k-th of the list with weight 1/k

struct LoadOptions {
  std::string url = "http://127.0.0.1:8000";  // or unix:/path/of/socket
  std::string api_key = {};
  std::string model = {};  // empty: the first of GET /v1/models
  bool chat = false;       // /v1/chat/completions instead of /v1/completions
  bool stream = true;
  int concurrency = 8;                     // requests in flight; with a rate, the most there may be
  double rate = 0;                         // requests a second on average, at random times (Poisson); 0: as fast as answers come
  int64_t requests = 100;                  // 0: no end but duration_s
  double duration_s = 0;                   // new requests until then; 0: no end but requests
  std::vector<std::string> adapters = {};  // names for the field `model`; empty: the model alone
  AdapterSkew skew = AdapterSkew::kInTurn;
  int prompt_tokens = 64;  // about: so many common words
  int shared_tokens = 0;   // of them, the same in every prompt; the others differ from the first on
  int max_tokens = 64;
  bool ignore_eos = true;  // asks for exactly max_tokens; servers that do not know the field ignore it
  double timeout_s = 600;  // of one request
  uint64_t seed = 0;       // of prompts, adapters and times
};

// In seconds.
struct LatencySummary {
  int64_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

struct LoadReport {
  std::string model;  // that was asked for
  double wall_s = 0;  // from the first request to the last answer
  int64_t sent = 0;
  int64_t finished = 0;                         // answered as they should be
  std::map<std::string, int64_t> errors;        // by kind: an HTTP status, "connect", "timeout", "closed", "protocol", "stream"
  std::map<std::string, std::string> examples;  // the first message of each kind
  int64_t prompt_tokens = 0;                    // as the server counts them
  int64_t output_tokens = 0;
  bool counted_pieces = false;                        // some answers had no usage: their pieces were counted for tokens
  LatencySummary first_token, between_tokens, whole;  // of finished requests; the first two of streams
  std::map<std::string, int64_t> by_model;            // requests sent
  bool stopped = false;
};

struct TrafficProgress {
  int64_t sent = 0, finished = 0, failed = 0;
  double elapsed_s = 0;
};

class LoadGenerator {
 public:
  static constexpr int kMaxConcurrency = 10'000;

  // Checks the options and finds the server's address; talks to nobody yet.
  static Result<std::unique_ptr<LoadGenerator>> make(LoadOptions options);
  virtual ~LoadGenerator() = default;

  // Sends everything and waits for the answers. An error: nothing could be asked at all (no server, no model). Refused and broken
  // requests are figures of the report. `on_progress` is called about ten times a second.
  virtual Result<LoadReport> run(const std::function<void(const TrafficProgress&)>& on_progress) = 0;
  // No new requests, those in flight are given up, and run() returns with what there is.
  virtual void stop() = 0;
};

}  // namespace choral::tools
