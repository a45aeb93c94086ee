#include "gather.h"

#include <chrono>

namespace choral::python {

Gather::Gather(LLM& llm, std::vector<Request> requests)
    : llm_(llm), requests_(std::move(requests)), outputs_(requests_.size()), thread_([this] { run(); }) {}

Gather::~Gather() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (auto& stream : in_flight_) {
      if (stream != nullptr) stream->cancel();
    }
  }
  thread_.join();
}

bool Gather::wait(size_t& done) {
  constexpr std::chrono::milliseconds kMoment{50};
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kMoment, [&] { return done_ == requests_.size(); });
  done = done_;
  return done == requests_.size();
}

// False: there is none left, or the queue is full.
bool Gather::submit_next() {
  std::unique_lock lock(mutex_);
  const size_t next = done_ + in_flight_.size();
  if (stop_ || next == requests_.size()) return false;
  const bool none_in_flight = in_flight_.empty();
  lock.unlock();
  auto stream = llm_.submit(requests_[next]);  // a copy: a full queue gives it back
  if (!stream.ok() && stream.status().code() == Code::kResourceExhausted && !none_in_flight) return false;
  if (!stream.ok()) outputs_[next].status = stream.status();
  lock.lock();
  in_flight_.push_back(stream.ok() ? *std::move(stream) : nullptr);
  if (stop_ && in_flight_.back() != nullptr) in_flight_.back()->cancel();
  return true;
}

void Gather::run() {
  for (;;) {
    while (submit_next()) {
    }
    ResponseStream* first = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (in_flight_.empty()) return;
      first = in_flight_.front().get();
    }
    if (first != nullptr) outputs_[done_] = first->wait();
    std::unique_ptr<ResponseStream> ended;  // dies after the lock
    const std::lock_guard lock(mutex_);
    ended = std::move(in_flight_.front());
    in_flight_.pop_front();
    ++done_;
    requests_[done_ - 1] = {};
    if (done_ == requests_.size()) changed_.notify_all();
  }
}

}  // namespace choral::python
