#include "serve/http/io_thread.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/thread.h"
#include "serve/http/fault_boundary.h"

namespace choral::serve {
namespace {

namespace asio = boost::asio;

constexpr size_t kScratchBytes = 64 << 10;

class AsioThread final : public IoThread, public std::enable_shared_from_this<AsioThread> {
 public:
  ~AsioThread() override { stop(); }

  Status run(int index) {
    auto thread = start_thread("a thread of the HTTP server", [this, index] {
      pthread_setname_np(pthread_self(), fmt::format("http-io-{}", index).c_str());
      while (!contained("an I/O thread", [this] { context_.run(); })) {
      }
    });
    if (!thread.ok()) return std::move(thread).status();
    thread_ = std::move(thread).value();
    id_ = thread_.get_id();
    return {};
  }

  asio::io_context& context() override { return context_; }
  bool on_it() const override { return std::this_thread::get_id() == id_; }

  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    asio::post(context_, [work = std::move(work)] { contained("posted work", work); });
  }

  void post_after(std::chrono::milliseconds delay, std::function<void()> work) override {
    post([self = weak_from_this(), delay, work = std::move(work)]() mutable {
      if (auto thread = self.lock()) thread->set_timer(delay, std::move(work));
    });
  }

  std::span<char> scratch() override { return scratch_; }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
      stopped_ = true;
    }
    if (!thread_.joinable()) return;
    CHORAL_CHECK(!on_it(), "an I/O thread cannot wait for itself");
    idle_guard_.reset();
    context_.stop();
    thread_.join();
    // What is left holds references to this object: it must go now, not with it.
    contained("an I/O thread", [this] {
      for (asio::steady_timer* timer : timers_) timer->cancel();
      context_.restart();
      context_.poll();
    });
  }

 private:
  void set_timer(std::chrono::milliseconds delay, std::function<void()> work) {
    auto timer = std::make_unique<asio::steady_timer>(context_, delay);
    asio::steady_timer* key = timer.get();
    timers_.insert(key);
    key->async_wait([this, timer = std::move(timer), work = std::move(work)](const boost::system::error_code& cancelled) {
      timers_.erase(timer.get());
      if (!cancelled) contained("a timer", work);
    });
  }

  asio::io_context context_{1};  // one thread runs it
  asio::executor_work_guard<asio::io_context::executor_type> idle_guard_{context_.get_executor()};
  std::vector<char> scratch_ = std::vector<char>(kScratchBytes);
  std::unordered_set<asio::steady_timer*> timers_;  // on the thread only; their handlers own them
  std::mutex mutex_;
  bool stopped_ = false;
  std::thread thread_;
  std::thread::id id_;
};

}  // namespace

Result<std::shared_ptr<IoThread>> IoThread::start(int index) {
  auto thread = std::make_shared<AsioThread>();
  CHORAL_RETURN_IF_ERROR(thread->run(index));
  return std::shared_ptr<IoThread>(std::move(thread));
}

}  // namespace choral::serve
