#include "kernels/lora/lora_companion.h"

#include <algorithm>

namespace choral::kernels {
namespace {

int64_t panel_bytes_of(const LoRAShare& share) {
  int64_t bytes = 0;
  for (const LoRATerm& term : share.expand.terms) bytes += term.matrix->panel_bytes();
  return bytes;
}

}  // namespace

LoRACompanion::LoRACompanion(const Context& ctx, std::span<const LoRAShare> shares) : ctx_(ctx), shares_(shares) {
  deltas_ = ctx.scratch.make<float*>(shares.size());
  int64_t total = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const LoRAExpand& expand = shares[i].expand;
    deltas_[i] = ctx.scratch.make<float>(expand.terms.size() * static_cast<size_t>(expand.y.rows * expand.y.cols)).data();
    total += panel_bytes_of(shares[i]);
  }
  // Equal bytes for every thread.
  const int64_t threads = ctx.pool.size();
  runs_ = ctx.scratch.make<Run>(threads);
  int64_t share = 0, before = 0;
  for (int64_t t = 0; t < threads; ++t) {
    Run& run = runs_[t];
    run.begin = share;
    for (; share < std::ssize(shares) && before * threads < total * (t + 1); ++share) before += panel_bytes_of(shares[share]);
    run.end = share;
    run.fetched = {run.begin, 0, 0};
    skip_complete(run.fetched);
    run.ready = run.done = run.fetched;
  }
}

const LoRAMatrix& LoRACompanion::matrix(const Place& at) const { return *shares_[at.share].expand.terms[at.term].matrix; }

MatrixView<float> LoRACompanion::deltas(int64_t share, size_t term) const {
  const MatrixView<float>& y = shares_[share].expand.y;
  return {deltas_[share] + static_cast<int64_t>(term) * y.rows * y.cols, y.rows, y.cols};
}

void LoRACompanion::skip_complete(Place& at) const {
  while (at.share < std::ssize(shares_) && at.bytes >= matrix(at).panel_bytes()) {
    at.bytes = 0;
    if (++at.term < shares_[at.share].expand.terms.size()) continue;
    at.term = 0;
    ++at.share;
  }
}

int64_t LoRACompanion::bytes_left() const {
  int64_t bytes = 0;
  for (const Run& run : runs_) {
    for (int64_t share = run.fetched.share; share < run.end; ++share) bytes += panel_bytes_of(shares_[share]);
  }
  return bytes;
}

std::span<const std::byte> LoRACompanion::fetch(int thread, int64_t most) {
  Run& run = runs_[thread];
  if (run.fetched.share >= run.end) return {};
  if (run.fetched.bytes == 0) matrix(run.fetched).prefetch_cut();
  const auto panels = matrix(run.fetched).panels().subspan(run.fetched.bytes);
  const auto bytes = panels.first(std::min(panels.size(), static_cast<size_t>(most)));
  run.fetched.bytes += std::ssize(bytes);
  skip_complete(run.fetched);
  return bytes;
}

void LoRACompanion::work(int thread) {
  Run& run = runs_[thread];
  while (run.done.share < run.end) {
    const Place end{run.done.share, run.done.term, matrix(run.done).piece_end(run.done.bytes)};
    if (end > run.ready) break;
    do_piece(run.done);
  }
  run.ready = run.fetched;
}

void LoRACompanion::do_piece(Place& at) const {
  const LoRAShrink& shrink = shares_[at.share].shrinks[at.term];
  at.bytes =
      shrink.matrix->compute_piece(ctx_.level, at.bytes, shrink.x, shrink.factor, shrink.middle, deltas(at.share, at.term));
  skip_complete(at);
}

bool LoRACompanion::was_begun(int64_t share) const {
  for (const Run& run : runs_) {
    if (share < run.end) return share < run.done.share || (share == run.done.share && run.done > Place{share, 0, 0});
  }
  return false;
}

void LoRACompanion::finish() {
  ctx_.pool.parallel_for(std::ssize(shares_), 1, [this](int64_t begin, int64_t end, int) {
    for (int64_t share = begin; share < end; ++share) {
      if (!was_begun(share)) continue;
      for (const Run& run : runs_) {
        for (Place at = run.done; at.share == share && share < run.end;) do_piece(at);
      }
      const LoRAExpand& expand = shares_[share].expand;
      for (size_t t = 0; t < expand.terms.size(); ++t) expand.terms[t].matrix->add_deltas(ctx_.level, deltas(share, t), expand.y);
    }
  });
}

}  // namespace choral::kernels
