#include "base/task_board.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "base/futex.h"

namespace choral {
namespace {

// Whom a caller wakes with its one call, and then every sleeper that was woken with its own.
constexpr int kWokenAtOnce = 2;

}  // namespace

TaskBoard::TaskBoard(std::span<const int> domains) : shares_(domains.size()), group_of_(domains.size()) {
  struct Place {
    int first, size, domain_begin, domain_end;
  };
  std::vector<Place> places;
  for (auto begin = domains.begin(); begin != domains.end();) {
    const auto end = std::find_if(begin, domains.end(), [&](int domain) { return domain != *begin; });
    CHORAL_CHECK(std::find(end, domains.end(), *begin) == domains.end(), "the threads of a domain stand together");
    const int first = static_cast<int>(begin - domains.begin()), size = static_cast<int>(end - begin);
    const int parts = static_cast<int>(ceil_div(size, kGroupSize)), group = static_cast<int>(places.size());
    for (int part = 0; part < parts; ++part) {
      const int from = size * part / parts, to = size * (part + 1) / parts;
      std::fill_n(group_of_.begin() + first + from, to - from, group + part);
      places.push_back({first + from, to - from, group, group + parts});
    }
    begin = end;
  }
  groups_ = std::vector<Group>(places.size());
  inside_ = std::vector<Inside>(places.size());
  for (size_t g = 0; g < places.size(); ++g) {
    groups_[g].first = places[g].first;
    groups_[g].size = places[g].size;
    groups_[g].domain_begin = places[g].domain_begin;
    groups_[g].domain_end = places[g].domain_end;
  }
}

void TaskBoard::open(int64_t chunks) {
  if (++number_ == kNumbers) {
    for (auto& share : shares_) share.taken.store(0, std::memory_order_relaxed);
    number_ = 1;
  }
  chunks_ = chunks;
  state_.store(number_ * 2 | kOpen);
  for (auto& group : groups_) {
    uint32_t left = (1U << group.size) - 1;
    if (chunks < threads()) {
      for (int i = 0; i < group.size; ++i) {
        const int thread = group.first + i;
        if (share_begin(thread) == share_begin(thread + 1)) left &= ~(1U << i);
      }
    }
    group.word.store(uint64_t{number_} << 32 | left, std::memory_order_relaxed);
  }
  if (asleep_.load() != 0) futex_wake(state_, kWokenAtOnce);
}

void TaskBoard::close() { state_.store(number_ * 2); }

bool TaskBoard::is_left() const {
  for (const auto& group : inside_) {
    for (const auto& inside : group.of) {
      if (inside.load() != 0) return false;
    }
  }
  return true;
}

void TaskBoard::sleep_until_left() {
  caller_sleeps_.store(1);
  if (!is_left()) futex_wait(caller_sleeps_, 1);
  caller_sleeps_.store(0, std::memory_order_relaxed);
}

void TaskBoard::sleep_until_news(Seen seen) {
  asleep_.fetch_add(1);
  if (const uint32_t state = state_.load(); is_idle(state, seen)) futex_wait(state_, state);
  const bool others = asleep_.fetch_sub(1) > 1;
  if (others && !is_idle(state_.load(), seen)) futex_wake(state_, kWokenAtOnce);
}

bool TaskBoard::join(int thread, Seen& seen) {
  // In one order with close's store and is_left's loads: either this load finds it closed, or is_left finds the worker inside.
  inside(thread).store(1);
  const uint32_t state = state_.load();
  const bool joined = !is_idle(state, seen);
  seen = state / 2;
  if (!joined) leave(thread);
  return joined;
}

void TaskBoard::leave(int thread) {
  inside(thread).store(0);
  if (caller_sleeps_.load() != 0 && caller_sleeps_.exchange(0) != 0) futex_wake(caller_sleeps_, 1);
}

int64_t TaskBoard::take(int owner, int64_t count) {
  auto& taken = shares_[owner].taken;
  uint64_t last = taken.load(std::memory_order_relaxed);
  const uint64_t number = uint64_t{number_} << kTakenBits;
  for (;;) {
    const uint64_t next = (last >> kTakenBits) == number_ ? last : number;
    const auto chunk = static_cast<int64_t>(next - number);
    if (chunk >= count) return -1;
    if (!taken.compare_exchange_weak(last, next + 1, std::memory_order_relaxed)) continue;
    if (chunk + 1 == count) {
      const int g = group_of_[owner];
      groups_[g].word.fetch_and(~(uint64_t{1} << (owner - groups_[g].first)), std::memory_order_relaxed);
    }
    return chunk;
  }
}

}  // namespace choral
