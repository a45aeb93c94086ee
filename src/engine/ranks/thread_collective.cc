#include "engine/ranks/thread_collective.h"

#include <algorithm>
#include <thread>

#include "engine/ranks/row_tasks.h"

namespace choral::engine {

class ThreadCollectives::Rank : public platform::Collective {
 public:
  Rank(ThreadCollectives& all, int rank) : all_(all), rank_(rank) {}

  int rank() const override { return rank_; }
  int ranks() const override { return all_.ranks(); }

  void gather_columns(const kernels::Context& ctx, MatrixView<float> y, std::span<const int64_t> begins) override {
    exchange(ctx, y, [&](int64_t row) {
      for (int r = 0; r < all_.ranks(); ++r) {
        if (r == rank_) continue;
        const float* from = all_.ranks_[static_cast<size_t>(r)]->shown_.row(row);
        const auto at = static_cast<size_t>(r);
        std::copy(from + begins[at], from + begins[at + 1], y.row(row) + begins[at]);
      }
    });
  }

  void gather_rows(const kernels::Context& ctx, MatrixView<float> y, OwnerOf owner) override {
    exchange(ctx, y, [&](int64_t row) {
      const int from = owner(row);
      if (from != rank_) std::copy_n(all_.ranks_[static_cast<size_t>(from)]->shown_.row(row), y.cols, y.row(row));
    });
  }

 private:
  // Everybody's matrix is complete as far as it is its own; then everybody takes what it lacks, which nobody may write over
  // before.
  template <class TakeRow>
  void exchange(const kernels::Context& ctx, MatrixView<float> y, TakeRow take_row) {
    shown_ = y;
    if (!all_.meet(budget_)) return;
    for_rows(ctx, y.rows, y.cols, take_row);
    all_.meet(budget_);
  }

  ThreadCollectives& all_;
  const int rank_;
  MatrixView<float> shown_;  // to the others, between two meetings
  SpinBudget budget_;
};

ThreadCollectives::ThreadCollectives(int ranks) {
  for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<Rank>(*this, r));
}

ThreadCollectives::~ThreadCollectives() = default;

platform::Collective& ThreadCollectives::of(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

void ThreadCollectives::begin_step() {
  arrived_.store(0, std::memory_order_relaxed);
  given_up_.store(false, std::memory_order_relaxed);
}

void ThreadCollectives::give_up() { given_up_.store(true, std::memory_order_release); }

bool ThreadCollectives::meet(SpinBudget& budget) {
  if (given_up_.load(std::memory_order_acquire)) return false;  // or one that arrives again would be taken for the missing one
  const uint32_t meeting = meetings_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks()) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.store(meeting + 1, std::memory_order_release);
    return true;
  }
  const auto is_over = [&] { return meetings_.load(std::memory_order_acquire) != meeting; };
  budget.wait([&] { return is_over() || given_up_.load(std::memory_order_acquire); }, [] { std::this_thread::yield(); });
  return is_over();
}

}  // namespace choral::engine
