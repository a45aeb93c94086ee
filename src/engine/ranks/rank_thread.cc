#include "engine/ranks/rank_thread.h"

#include <fmt/format.h>

#include "base/thread.h"

namespace choral::engine {
namespace {

// Until `state` is another than `left`.
template <class State>
State leave(const std::atomic<State>& state, State left, SpinBudget& budget) {
  budget.wait([&] { return state.load(std::memory_order_acquire) != left; },
              [&] { state.wait(left, std::memory_order_acquire); });
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

void RankThread::wait() { leave(state_, State::kWorks, callers_); }

void RankThread::run() {
  SpinBudget budget;
  while (leave(state_, State::kIdle, budget) == State::kWorks) {
    (*work_)();
    state_.store(State::kIdle, std::memory_order_release);
    state_.notify_one();
  }
}

}  // namespace choral::engine
