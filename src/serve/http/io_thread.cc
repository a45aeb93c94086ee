#include "serve/http/io_thread.h"

#include <pthread.h>

#include <boost/asio/post.hpp>

#include "base/thread.h"
#include "serve/http/fault_boundary.h"

namespace choral::serve {

namespace asio = boost::asio;

Result<std::shared_ptr<IoThread>> IoThread::start(int index) {
  auto started = std::make_shared<IoThread>();
  CHORAL_TRY(started->thread_, start_thread("a thread of the HTTP server", [io = started.get(), index] {
               pthread_setname_np(pthread_self(), fmt::format("http-io-{}", index).c_str());
               while (!contained("an I/O thread", [io] { io->context_.run(); })) {
               }
             }));
  started->id_ = started->thread_.get_id();
  return started;
}

void IoThread::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  asio::post(context_, [work = std::move(work)] { contained("posted work", work); });
}

void IoThread::post_after(std::chrono::milliseconds delay, std::function<void()> work) {
  post([self = weak_from_this(), delay, work = std::move(work)]() mutable {
    if (auto thread = self.lock()) thread->set_timer(delay, std::move(work));
  });
}

void IoThread::stop() {
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

void IoThread::set_timer(std::chrono::milliseconds delay, std::function<void()> work) {
  auto timer = std::make_unique<asio::steady_timer>(context_, delay);
  asio::steady_timer* key = timer.get();
  timers_.insert(key);
  key->async_wait([this, timer = std::move(timer), work = std::move(work)](const boost::system::error_code& cancelled) {
    timers_.erase(timer.get());
    if (!cancelled) contained("a timer", work);
  });
}

}  // namespace choral::serve
