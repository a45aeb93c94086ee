// Where the threads of a pool find a task and take its chunks, so that neither its beginning nor its end costs a line of cache
// per thread. Threads stand in groups of at most eight that share a cache. The caller writes a task once and one line a group;
// the chunks are cut into a share for each thread, whose line that thread has to itself until others help; who takes the last
// chunk of a share strikes it from its group's line, so that helpers and the caller read a line a group to see that nothing is
// left. A worker says that it is inside on a line of its group before it looks whether the task is still open: after `close`
// no worker comes in, and the caller waits only for those who are inside. Never for one that has not come.
// Sleepers cost a call of the system only while there are any, and wake each other. One caller; each worker calls for itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

namespace choral {

class TaskBoard {
 public:
  static constexpr int kGroupSize = 8;

  // The cache that each thread stands at, the caller's first; those of one stand together.
  explicit TaskBoard(std::span<const int> domains);

  int threads() const { return static_cast<int>(shares_.size()); }

  // --- the caller, thread 0 ---
  void open(int64_t chunks);
  void close();
  // After `close`: that nobody is inside. What those who left have written can be read then.
  bool is_left() const;
  // Sleeps until somebody leaves, unless nobody is inside.
  void sleep_until_left();

  // --- a worker ---
  // The number of the last task that it joined or found closed: 0 to begin with.
  using Seen = uint32_t;
  // That there may be a task it has not seen: one load, of its group's line.
  bool has_news(int thread, Seen seen) const {
    return static_cast<Seen>(groups_[group_of_[thread]].word.load(std::memory_order_relaxed) >> 32) != seen;
  }
  void sleep_until_news(Seen seen);
  // Comes in if a task is open that it has not seen, and must `leave` then.
  bool join(int thread, Seen& seen);
  void leave(int thread);

  // --- whoever is inside, the caller too ---
  // Calls run(chunk) for one chunk after the other that nobody has taken, until none is left: its own share in order, then those
  // of its group, of its domain, and of the others.
  template <class Run>
  void work(int thread, const Run& run) {
    drain(thread, run);
    const int own = group_of_[thread], groups = static_cast<int>(groups_.size());
    const Group& group = groups_[own];
    const int place = thread - group.first;  // helpers begin at different shares, so that they meet late
    const auto drain_groups = [&](int begin, int end) {
      for (int g = begin; g < end; ++g) drain_group(groups_[g], place + 1, run);
    };
    drain_groups(own, group.domain_end);
    drain_groups(group.domain_begin, own);
    drain_groups(group.domain_end, groups);
    drain_groups(0, group.domain_begin);
  }

 private:
  // 20 bits of a task's number leave 44 to count the chunks of a share. Numbers begin anew after a million tasks, and a share
  // that was not touched since must not look like the new task's then: all are wiped.
  static constexpr int kTakenBits = 44;
  static constexpr uint32_t kOpen = 1, kNumbers = 1U << 20;

  struct alignas(64) Group {
    std::atomic<uint64_t> word{0};         // the task's number, and below it a bit for each share that is not used up
    int first = 0, size = 0;               // of its threads
    int domain_begin = 0, domain_end = 0;  // the groups of its domain
  };
  struct alignas(64) Inside {
    std::atomic<uint32_t> of[kGroupSize] = {};
  };
  struct alignas(64) Share {
    std::atomic<uint64_t> taken{0};  // the task's number and how many of the chunks; of an older task: none
  };

  static bool is_idle(uint32_t state, Seen seen) { return (state & kOpen) == 0 || state / 2 == seen; }
  std::atomic<uint32_t>& inside(int thread) {
    const int g = group_of_[thread];
    return inside_[g].of[thread - groups_[g].first];
  }
  int64_t share_begin(int thread) const { return chunks_ * thread / threads(); }

  // The next chunk of a share of `count`, counted from its begin; -1 when none is left.
  int64_t take(int owner, int64_t count);

  template <class Run>
  void drain(int owner, const Run& run) {
    const int64_t begin = share_begin(owner), count = share_begin(owner + 1) - begin;
    for (int64_t chunk; (chunk = take(owner, count)) >= 0;) run(begin + chunk);
  }

  template <class Run>
  void drain_group(const Group& group, int from, const Run& run) {
    const auto left = static_cast<uint32_t>(group.word.load(std::memory_order_relaxed));
    if (left == 0) return;
    for (int i = 0; i < group.size; ++i) {
      const int member = (from + i) % group.size;
      if ((left >> member & 1) != 0) drain(group.first + member, run);
    }
  }

  alignas(64) std::atomic<uint32_t> state_{0};  // the task's number · 2 + whether it is open; what sleeping workers wait for
  uint32_t number_ = 0;                         // like the next, written by the caller while no task is open and nobody inside
  int64_t chunks_ = 0;
  std::vector<Group> groups_;
  std::vector<Inside> inside_;
  std::vector<Share> shares_;
  std::vector<int> group_of_;
  alignas(64) std::atomic<int> asleep_{0};  // workers, or about to be
  alignas(64) std::atomic<uint32_t> caller_sleeps_{0};
};

}  // namespace choral
