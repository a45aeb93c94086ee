// The load itself: who is sent when, and what is made of the answers.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/clock.h"
#include "tools/load/answer_reader.h"
#include "tools/load/http_client.h"
#include "tools/load/latencies.h"
#include "tools/load/request_maker.h"
#include "tools/load/sse_reader.h"

namespace choral::tools {
namespace {

constexpr double kProgressEvery_s = 0.1;
constexpr size_t kMaxKept = 64 << 20;  // of an answer that is no stream
constexpr size_t kMaxKinds = 64;       // of errors: HTTP has some hundred statuses

// GET, and what it gave.
class Fetch final : public HttpExchange {
 public:
  void on_head(int status, std::string_view) override { http_status = status; }
  Status on_body(std::string_view bytes) override {
    if (body.size() + bytes.size() > kMaxKept) return too_large("the answer has more than {} bytes", kMaxKept);
    body += bytes;
    return {};
  }
  void on_end(const Status& status) override { end = status; }

  int http_status = 0;
  std::string body;
  Status end;
};

// What a request met.
struct Meeting {
  int http_status = 0;
  Status end = {};
  std::string said = {};  // by the server, when it refused or broke off
  bool is_stream = false;
  bool complete = false;
  double due_s = 0, first_s = 0, last_s = 0, end_s = 0;
  int64_t pieces = 0;
  std::optional<int64_t> prompt_tokens = {}, completion_tokens = {};
};

class Exchange final : public HttpExchange {
 public:
  Exchange(double due_s, Latencies& gaps, std::function<void(const Meeting&)> done) : gaps_(gaps), done_(std::move(done)) {
    met_.due_s = due_s;
  }

  void on_head(int status, std::string_view content_type) override {
    met_.http_status = status;
    met_.is_stream = status == 200 && content_type.starts_with("text/event-stream");
  }
  Status on_body(std::string_view bytes) override {
    if (met_.is_stream) return events_.feed(bytes, [this](std::string_view data) { return take_event(data); });
    if (kept_.size() + bytes.size() > kMaxKept) return too_large("the answer has more than {} bytes", kMaxKept);
    kept_ += bytes;
    return {};
  }
  void on_end(const Status& status) override {
    met_.end = status;
    met_.end_s = now_s();
    if (status.ok() && !met_.is_stream) take_whole();
    done_(met_);
  }

 private:
  Status take_event(std::string_view data) {
    if (data == "[DONE]") {
      met_.complete = met_.said.empty();
      return {};
    }
    CHORAL_TRY(const auto piece, read_answer(data));
    if (!piece.error.empty()) met_.said = piece.error;
    take_counts(piece);
    if (!piece.has_text) return {};
    const double now = now_s();
    if (met_.pieces++ == 0) {
      met_.first_s = now;
    } else {
      gaps_.add(now - met_.last_s);
    }
    met_.last_s = now;
    return {};
  }
  void take_whole() {
    if (met_.http_status != 200) {
      met_.said = refusal_text(kept_);
      return;
    }
    const auto piece = read_answer(kept_);
    if (!piece.ok()) {
      met_.end = piece.status();
      return;
    }
    met_.said = piece->error;
    take_counts(*piece);
    met_.pieces = piece->has_text ? 1 : 0;
    met_.complete = piece->finished && piece->error.empty();
  }
  void take_counts(const AnswerPiece& piece) {
    if (piece.prompt_tokens) met_.prompt_tokens = piece.prompt_tokens;
    if (piece.completion_tokens) met_.completion_tokens = piece.completion_tokens;
  }

  Latencies& gaps_;
  const std::function<void(const Meeting&)> done_;
  Meeting met_;
  SseReader events_;
  std::string kept_;
};

// The kind of error that a report counts it under, and its words; empty when the answer was as it should be.
std::pair<std::string, std::string> error_of(const Meeting& met) {
  if (!met.end.ok()) {
    switch (met.end.code()) {
      case Code::kNotFound:
      case Code::kUnavailable: return {"connect", met.end.message()};
      case Code::kDeadlineExceeded: return {"timeout", met.end.message()};
      case Code::kCancelled: return {"stopped", met.end.message()};
      default: return {"protocol", met.end.message()};
    }
  }
  if (met.http_status != 200) return {std::to_string(met.http_status), met.said};
  if (!met.said.empty()) return {"stream", met.said};
  if (!met.complete)
    return {"incomplete", met.is_stream ? "the stream ended without [DONE]" : "the answer says no finish_reason"};
  return {};
}

class Load final : public LoadGenerator {
 public:
  Load(LoadOptions options, std::unique_ptr<HttpClient> client) : options_(std::move(options)), client_(std::move(client)) {}

  Result<LoadReport> run(const std::function<void(const TrafficProgress&)>& on_progress) override {
    report_.model = options_.model;
    if (report_.model.empty()) {
      CHORAL_TRY(report_.model, ask_for_model());
    }
    maker_ = std::make_unique<RequestMaker>(options_, report_.model);
    on_progress_ = on_progress;
    begin_s_ = now_s();
    next_due_s_ = begin_s_;
    if (options_.rate > 0) {
      arrive();
    } else {
      for (int i = 0; i < options_.concurrency && wants_more(); ++i) send(now_s());
    }
    tick();
    CHORAL_RETURN_IF_ERROR(client_->run());
    if (report_.finished == 0 && only_connect_failures())
      return unavailable("{}", report_.examples.begin()->second).while_("no request reached the server");
    report_.wall_s = (last_end_s_ > 0 ? last_end_s_ : now_s()) - begin_s_;
    report_.first_token = first_.summary();
    report_.between_tokens = gaps_.summary();
    report_.whole = whole_.summary();
    report_.stopped = stop_;
    return std::move(report_);
  }

  void stop() override {
    stop_ = true;
    client_->stop();
  }

 private:
  Result<std::string> ask_for_model() {
    const auto fetch = std::make_shared<Fetch>();
    client_->send({.method = "GET", .path = "/v1/models", .api_key = options_.api_key, .timeout_s = 30}, fetch);
    CHORAL_RETURN_IF_ERROR(client_->run());
    Status asked = fetch->end;
    if (asked.ok() && fetch->http_status != 200)
      asked = unavailable("the server answers {}: {}", fetch->http_status, refusal_text(fetch->body));
    CHORAL_RETURN_IF_ERROR(std::move(asked).while_("asking for the model (--model NAME says it)"));
    return first_model(fetch->body);
  }

  bool wants_more() const {
    if (stop_ || (options_.requests > 0 && report_.sent >= options_.requests)) return false;
    return options_.duration_s <= 0 || now_s() - begin_s_ < options_.duration_s;
  }
  bool only_connect_failures() const {
    return !report_.errors.empty() && report_.errors.size() == 1 && report_.errors.contains("connect");
  }

  void send(double due_s) {
    LoadRequest request = maker_->next();
    ++report_.sent;
    ++in_flight_;
    ++report_.by_model[request.model];
    client_->send({.path = options_.chat ? "/v1/chat/completions" : "/v1/completions",
                   .body = std::move(request.body),
                   .api_key = options_.api_key,
                   .timeout_s = options_.timeout_s},
                  std::make_shared<Exchange>(due_s, gaps_, [this](const Meeting& met) { end(met); }));
  }

  // With a rate: everything that is due by now, then sleeps until the next. What finds too many in flight waits, and its time
  // runs.
  void arrive() {
    while (wants_more() && next_due_s_ <= now_s()) {
      if (in_flight_ >= options_.concurrency) {
        overdue_ = true;  // end() goes on
        return;
      }
      send(next_due_s_);
      next_due_s_ += maker_->next_gap_s();
    }
    if (wants_more()) client_->after(std::max(0.0, next_due_s_ - now_s()), [this] { arrive(); });
  }

  void end(const Meeting& met) {
    --in_flight_;
    last_end_s_ = met.end_s;
    take(met);
    // A server that is not there would be asked without end.
    const bool gone = met.end.code() == Code::kUnavailable || met.end.code() == Code::kNotFound;
    const auto go_on = [this] {
      if (options_.rate <= 0) {
        if (wants_more()) send(now_s());
      } else if (overdue_) {
        overdue_ = false;
        arrive();
      }
    };
    if (gone) {
      client_->after(0.1, go_on);
    } else {
      go_on();
    }
  }

  void take(const Meeting& met) {
    auto [kind, words] = error_of(met);
    if (!kind.empty()) {
      if (report_.errors.size() >= kMaxKinds && !report_.errors.contains(kind)) kind = "protocol";
      ++report_.errors[kind];
      ++failed_;
      report_.examples.try_emplace(kind, std::move(words));
      return;
    }
    ++report_.finished;
    whole_.add(met.end_s - met.due_s);
    if (met.is_stream && met.pieces > 0) first_.add(met.first_s - met.due_s);
    report_.prompt_tokens += met.prompt_tokens.value_or(0);
    report_.output_tokens += met.completion_tokens.value_or(met.pieces);
    report_.counted_pieces |= !met.completion_tokens;
  }

  void tick() {
    if (on_progress_) on_progress_({report_.sent, report_.finished, failed_, now_s() - begin_s_});
    if (wants_more() || in_flight_ > 0) client_->after(kProgressEvery_s, [this] { tick(); });
  }

  const LoadOptions options_;
  const std::unique_ptr<HttpClient> client_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<RequestMaker> maker_;
  std::function<void(const TrafficProgress&)> on_progress_;
  LoadReport report_;
  Latencies first_, gaps_, whole_;
  double begin_s_ = 0, next_due_s_ = 0, last_end_s_ = 0;
  int64_t failed_ = 0;
  int in_flight_ = 0;
  bool overdue_ = false;
};

Status check_range(std::string_view flag, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return invalid_argument("{} {}: give {} to {}", flag, value, least, most);
}

Status check(const LoadOptions& o) {
  CHORAL_RETURN_IF_ERROR(check_range("--concurrency", o.concurrency, 1, LoadGenerator::kMaxConcurrency));
  CHORAL_RETURN_IF_ERROR(check_range("--rate", o.rate, 0, 1e6));
  CHORAL_RETURN_IF_ERROR(check_range("--requests", static_cast<double>(o.requests), 0, 1e9));
  CHORAL_RETURN_IF_ERROR(check_range("--duration", o.duration_s, 0, 1e7));
  CHORAL_RETURN_IF_ERROR(check_range("--prompt-tokens", o.prompt_tokens, 1, 1 << 20));
  CHORAL_RETURN_IF_ERROR(check_range("--shared-tokens", o.shared_tokens, 0, o.prompt_tokens));
  CHORAL_RETURN_IF_ERROR(check_range("--max-tokens", o.max_tokens, 1, 1 << 20));
  CHORAL_RETURN_IF_ERROR(check_range("--timeout", o.timeout_s, 0.001, 1e6));
  if (o.requests == 0 && o.duration_s == 0) return invalid_argument("give --requests or --duration, or the load has no end");
  if (o.api_key.find_first_of("\r\n") != o.api_key.npos) return invalid_argument("the key holds a line's end");
  return {};
}

}  // namespace

Result<std::unique_ptr<LoadGenerator>> LoadGenerator::make(LoadOptions options) {
  CHORAL_RETURN_IF_ERROR(check(options));
  CHORAL_TRY(const auto endpoint, parse_endpoint(options.url).while_("--url"));
  CHORAL_TRY(auto client, HttpClient::make(endpoint));
  return std::unique_ptr<LoadGenerator>(std::make_unique<Load>(std::move(options), std::move(client)));
}

}  // namespace choral::tools
