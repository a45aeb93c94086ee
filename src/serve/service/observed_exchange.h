// An exchange that tells what became of its request: once, when its last holder has gone. On the way routes note what they find
// out of it, for the log, and what of it has no effect, for the head of the answer, which is put
// into the route's dialect. All else is passed on. Thread-safe as the exchange it stands for.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/unix_clock.h"
#include "choral/types.h"
#include "serve/dialect.h"
#include "serve/http/exchange.h"
#include "serve/openai/answer_form.h"

namespace choral::serve {

// Never what was asked or answered.
struct RequestNotes {
  std::string model = {};                  // as the client named it, or the base
  std::vector<std::string> adapters = {};  // that answer, or that the request is about
  std::optional<Usage> usage = {};         // of what the engine has begun
  std::string reason = {};                 // of an error (error_body.h)
};

struct AnsweredRequest {
  const HttpRequest& request;
  int status = 0;  // 0: the client left before there was one
  double seconds = 0;
  double begin_unix_s = 0;
  RequestNotes notes = {};
  std::string key = {};  // the name of its key; empty: it showed none that counts
};

class ObservedExchange final : public HttpExchange {
 public:
  using Told = std::function<void(AnsweredRequest)>;  // from any thread, once

  // `more`: headers of every answer.
  ObservedExchange(std::shared_ptr<HttpExchange> inner, Dialect dialect, Told told, Headers more = {});
  ~ObservedExchange() override;

  void note_model(std::string model, const std::vector<AdapterUse>& adapters);
  void note_adapter(std::string name);
  void note_end(const Usage& usage, std::string reason);  // `reason`: empty for what ended well
  // What of the request has no effect, a line of ASCII each: a header X-Choral-Warnings of the answer, whatever that is.
  void warn(std::vector<std::string> warnings);

  const HttpRequest& request() const override { return inner_->request(); }
  void respond(HttpResponse response) override;
  void begin_stream(int status, Headers headers) override;
  void send(std::string bytes) override { inner_->send(std::move(bytes)); }
  void end_stream() override { inner_->end_stream(); }
  void abort() override { inner_->abort(); }
  size_t unsent_bytes() const override { return inner_->unsent_bytes(); }
  bool congested() const override { return inner_->congested(); }
  void on_drained(std::function<void()> callback) override { inner_->on_drained(std::move(callback)); }
  void on_closed(std::function<void()> callback) override { inner_->on_closed(std::move(callback)); }
  bool closed() const override { return inner_->closed(); }
  void post(std::function<void()> work) override { inner_->post(std::move(work)); }
  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    inner_->post_after(delay, std::move(work));
  }

 private:
  void add_more(Headers& headers);

  const std::shared_ptr<HttpExchange> inner_;
  const Dialect dialect_;
  const Told told_;
  const Headers more_;
  const double begin_s_, begin_unix_s_;
  std::atomic<int> status_ = 0;
  std::mutex mutex_;
  RequestNotes notes_;
  std::vector<std::string> warnings_;
};

}  // namespace choral::serve
