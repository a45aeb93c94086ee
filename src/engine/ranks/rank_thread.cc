#include "engine/ranks/rank_thread.h"

#include <fmt/format.h>

#include "base/thread.h"

namespace choral::engine {
namespace {

constexpr int kSpins = 4000;  // some 100 µs: longer than the gap between two steps

// Until `state` is another than `left`.
template <class State>
State leave(const std::atomic<State>& state, State left) {
  for (int spins = 0; spins < kSpins; ++spins) {
    const State now = state.load(std::memory_order_acquire);
    if (now != left) return now;
    __builtin_ia32_pause();
  }
  state.wait(left, std::memory_order_acquire);
  return state.load(std::memory_order_acquire);
}

}  // namespace

Result<std::unique_ptr<RankThread>> RankThread::start(int rank) {
  std::unique_ptr<RankThread> made(new RankThread());
  CHORAL_TRY(made->thread_, start_thread(fmt::format("the thread of rank {}", rank), [thread = made.get()] { thread->run(); }));
  return made;
}

RankThread::~RankThread() {
  if (!thread_.joinable()) return;
  state_.store(State::kEnds, std::memory_order_release);
  state_.notify_one();
  thread_.join();
}

void RankThread::begin(const std::function<void()>& work) {
  work_ = &work;
  state_.store(State::kWorks, std::memory_order_release);
  state_.notify_one();
}

void RankThread::wait() { leave(state_, State::kWorks); }

void RankThread::run() {
  while (leave(state_, State::kIdle) == State::kWorks) {
    (*work_)();
    state_.store(State::kIdle, std::memory_order_release);
    state_.notify_one();
  }
}

}  // namespace choral::engine
