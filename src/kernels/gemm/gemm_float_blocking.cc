#include "kernels/gemm/gemm_float_blocking.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/checked_math.h"
#include "kernels/gemm/tile_finish.h"
#include "kernels/gemm/work_division.h"

namespace choral::kernels {
namespace {

constexpr int64_t kBlockK = 256;          // two panels of widened weights are 32 KiB: L1
constexpr int64_t kBlockRows = 240;       // x of one k block (240 KiB) and the tile of a task stay in L2
constexpr int64_t kAheadBytes = 3072;     // prefetch distance of a stream in memory; half of it costs a tenth of decode's speed
constexpr int64_t kMaxTilePanels = 8;     // of a task with many rows: its finished tile is at most 120 KiB
constexpr int64_t kMaxDirectPanels = 64;  // of a task with few rows
constexpr int64_t kPackAheadLines = 64;   // of packed x
constexpr int64_t kSerialPackFloats = 1 << 15;  // so many are packed by one thread, more in pieces of
constexpr int64_t kPieceChunks = kBlockK / kXChunk;
constexpr int64_t kNever = -1;

// Rows [0, rows) of x as `tiles` row tiles of near-equal height, block of k after block of k, so that what a task goes through
// again and again is one piece of memory: tiles apart by rows of x would lie on few sets of the caches.
struct PackedRows {
  const float* data;
  int64_t rows;
  int64_t tiles;
  int64_t padded_k;

  int64_t begin(int64_t t) const { return t * rows / tiles; }
  int height(int64_t t) const { return static_cast<int>(begin(t + 1) - begin(t)); }
  int64_t offset(int64_t t, int64_t k) const {
    const int64_t block = k / kBlockK * kBlockK;
    return block * rows + begin(t) * std::min(kBlockK, padded_k - block) + (k - block) * height(t);
  }
  const float* tile(int64_t t, int64_t k) const { return data + offset(t, k); }
  int64_t chunks() const { return padded_k / kXChunk; }

  // Chunks [begin, end) of k, in the order of the packed form: its lines are mostly in no cache, and only a run of stores is
  // fetched well ahead.
  void pack(MatrixView<const float> x, int64_t first, int64_t end, float* out) const {
    for (int64_t c0 = first; c0 < end;) {
      const int64_t c1 = std::min(end, round_up(c0 + 1, kBlockK / kXChunk));
      for (int64_t t = 0; t < tiles; ++t) {
        const int tall = height(t);
        const float* source = x.row(begin(t));
        float* target = out + offset(t, c0 * kXChunk);
        for (int64_t c = c0; c < c1; ++c) {
          const int64_t count = std::min(kXChunk, x.cols - c * kXChunk);
          for (int r = 0; r < tall; ++r, target += kXChunk) {
            const float* from = source + r * x.stride + c * kXChunk;
            if (count == kXChunk) {
              __builtin_prefetch(target + kPackAheadLines * kXChunk, 1);
              __builtin_prefetch(from + 4 * kXChunk, 0);
              std::memcpy(target, from, kXChunk * sizeof(float));
            } else {
              std::memcpy(target, from, static_cast<size_t>(count) * sizeof(float));
            }
          }
        }
      }
      c0 = c1;
    }
  }
};

// Row tiles from the first in which a block's micro-kernels fetch the next block of weights, a share in each: all in the first
// would keep that tile's own loads waiting. The others may fetch a companion's bytes: so much of what they could.
struct Fetches {
  int64_t weight_tiles;
  double companion_part;
};

// What the micro-kernels of one row tile can fetch with a line each prefetch.
int64_t fetchable_bytes(int64_t k, int64_t panels) { return k / 2 * panels * static_cast<int64_t>(kCacheLineBytes); }

Fetches plan_fetches(const FloatPanels& w, int64_t tiles, const Companion* companion) {
  Fetches fetches{tiles >= 4 ? 4 : tiles >= 2 ? 2 : 1, 0};
  if (companion == nullptr || tiles < 2) return fetches;
  const int64_t tile_bytes = std::max<int64_t>(1, fetchable_bytes(w.k, w.panels())), wanted = companion->bytes_left();
  while (fetches.weight_tiles > 1 && wanted > (tiles - fetches.weight_tiles) * tile_bytes) fetches.weight_tiles /= 2;
  // Not evenly up to the end, where a thread that is late would leave work.
  const auto offered = static_cast<double>((tiles - fetches.weight_tiles) * tile_bytes);
  fetches.companion_part = std::min(1.0, 2.0 * static_cast<double>(wanted) / offered);
  return fetches;
}

struct Job {
  CpuLevel level;
  const FloatKernels& kernels;
  const FloatPanels& w;
  PackedRows x;
  Epilogue epilogue;
  Fetches fetches;
  MatrixView<float> y;

  MatrixView<float> target_of(int64_t p0, int64_t p1) const {
    return y.sub_cols(p0 * kPanelRows, std::min(p1 * kPanelRows, w.n) - p0 * kPanelRows);
  }

  void finish(int64_t p0, int64_t p1, float* out, int64_t out_stride) const {
    const int64_t col = p0 * kPanelRows, cols = target_of(p0, p1).cols;
    finish_tile(level, {out, x.rows, cols, out_stride}, 1, col, epilogue, y);
  }

  // Points the micro-kernel at k0 of the panels from p on.
  void begin_at(MicroArgs& args, int64_t p, int64_t k0) const {
    args.w = w.panel(p) + w.offset(k0);
    args.panel_stride = w.panel_bytes;
    if (w.group == 0) return;
    const int64_t into = k0 % w.group;
    args.scales = reinterpret_cast<const float*>(w.panel(p) + w.offset(k0 - into));
    args.group = w.group;
    args.group_end = into == 0 ? 0 : w.group - into;
  }

  // One row tile over panels [p0, p1), several panels at once from end to end.
  void run_direct(int64_t p0, int64_t p1, float* out) const {
    const int rows = x.height(0);
    const int64_t out_stride = (p1 - p0) * kPanelRows;
    MicroArgs args{};
    args.x = x.data;
    args.k = w.k;
    args.out_stride = out_stride;
    args.ahead_panel_stride = w.panel_bytes;
    args.ahead_step = 2 * w.k_bytes();
    args.ahead_scales = kPanelScaleBytes;
    // From here on the prefetch leaves these panels for the next group's.
    args.jump_at = w.k_within(std::max<int64_t>(0, w.panel_bytes - kAheadBytes)) / kXChunk * kXChunk;
    for (int64_t p = p0; p < p1;) {
      const int64_t group = largest_group(kernels.panels_for(rows), p1 - p);
      begin_at(args, p, 0);
      args.out = out + (p - p0) * kPanelRows;
      args.ahead = args.w + kAheadBytes;
      args.ahead_jump = (group - 1) * w.panel_bytes;
      kernels.micro(w.dtype, rows, static_cast<int>(group))(args);
      p += group;
    }
    finish(p0, p1, out, out_stride);
  }

  // Points the micro-kernel's prefetches at the companion's next bytes, spread over its k; at nothing where there are none.
  void fetch_companion(MicroArgs& args, int64_t panels, int thread) const {
    args.ahead = args.w;
    args.ahead_panel_stride = args.ahead_step = 0;
    if (epilogue.companion == nullptr) return;
    const auto most = static_cast<int64_t>(fetches.companion_part * static_cast<double>(fetchable_bytes(args.k, panels)));
    const auto bytes = epilogue.companion->fetch(thread, most);
    if (bytes.empty()) return;
    args.ahead = bytes.data();
    args.ahead_panel_stride = ceil_div(std::ssize(bytes), args.k / 2 * panels);
    args.ahead_step = panels * args.ahead_panel_stride;
  }

  // All row tiles over panels [p0, p1), block by block of k; the widened weights lie in `wide`.
  void run_tiles(int64_t p0, int64_t p1, float* out, float* wide, int thread) const {
    const int64_t out_stride = (p1 - p0) * kPanelRows;
    // e4m3 is dear to widen: always once for all.
    const bool in_place = w.dtype == DType::kF32 || (w.group == 0 && x.tiles <= kernels.max_in_place_tiles);
    for (int64_t k0 = 0; k0 < w.k; k0 += kBlockK) {
      const int64_t k = std::min(kBlockK, w.k - k0);
      for (int64_t p = p0; p < p1;) {
        const int64_t group = largest_group(kernels.tile_panels, p1 - p);
        MicroArgs args{};
        begin_at(args, p, k0);
        const std::byte* next = args.w + group * w.panel_bytes;  // the block after this one
        if (p + group == p1 && k0 + k < w.k) next = w.panel(p0) + w.offset(k0 + k);
        args.wide = wide;
        args.wide_stride = kBlockK * kPanelRows;
        args.k = k;
        args.out_stride = out_stride;
        args.resume = k0 != 0;
        args.ahead_panel_stride = w.panel_bytes;
        args.ahead_step = 2 * w.k_bytes() / fetches.weight_tiles;
        args.jump_at = kNever;
        const MatrixView<float> target = target_of(p, p + group);
        for (int64_t t = 0; t < x.tiles; ++t) {
          args.x = x.tile(t, k0);
          args.out = out + x.begin(t) * out_stride + (p - p0) * kPanelRows;
          args.ahead = next + t * (k / 2) * args.ahead_step;
          if (t >= fetches.weight_tiles) fetch_companion(args, group, thread);
          if (k0 + k == w.k) fetch_target(target.sub_rows(x.begin(t), x.height(t)));
          if (in_place) {
            kernels.micro(w.dtype, x.height(t), static_cast<int>(group))(args);
          } else if (t == 0) {
            kernels.widening(w.dtype, x.height(t), static_cast<int>(group))(args);
            args.w = reinterpret_cast<const std::byte*>(wide);
            args.panel_stride = args.wide_stride * static_cast<int64_t>(sizeof(float));
          } else {
            kernels.micro(DType::kF32, x.height(t), static_cast<int>(group))(args);
          }
        }
        if (epilogue.companion != nullptr) epilogue.companion->work(thread);
        p += group;
      }
    }
    finish(p0, p1, out, out_stride);
  }
};

class FloatProduct final : public MatrixProduct {
 public:
  FloatProduct(const Work& work, const Job& job, MatrixView<const float> source, float* packed, int64_t wide_floats)
      : MatrixProduct(work), job_(job), source_(source), packed_(packed), wide_floats_(wide_floats) {}

  void prepare(int64_t begin, int64_t end) const override {
    const bool all = work().pieces == 1;
    job_.x.pack(source_, begin * kPieceChunks, all ? job_.x.chunks() : std::min(end * kPieceChunks, job_.x.chunks()), packed_);
  }
  void multiply(int64_t begin, int64_t end, std::byte* memory, int thread) const override {
    auto* own = reinterpret_cast<float*>(memory);
    job_.x.rows <= job_.kernels.max_direct_rows ? job_.run_direct(begin, end, own)
                                                : job_.run_tiles(begin, end, own + wide_floats_, own, thread);
  }

 private:
  Job job_;
  MatrixView<const float> source_;
  float* packed_;  // of job_.x
  int64_t wide_floats_;
};

}  // namespace

int64_t largest_group(int64_t most, int64_t left) {
  while (most > left) most /= 2;
  return most;
}

int64_t most_float_rows() { return kBlockRows; }

const MatrixProduct* plan_float_panels(const FloatKernels& kernels, const FloatPanels& w, const Context& ctx,
                                       MatrixView<const float> x, const Epilogue& epilogue, MatrixView<float> y, int threads) {
  const bool direct = x.rows <= kernels.max_direct_rows;
  const int64_t group = direct ? kernels.panels_for(static_cast<int>(x.rows)) : kernels.tile_panels;
  const int64_t task = panels_per_task(w.panels(), threads, group, direct ? kMaxDirectPanels : kMaxTilePanels);
  PackedRows packed{x.data, x.rows, direct ? 1 : ceil_div(x.rows, kernels.tile_rows), round_up(x.cols, kXChunk)};
  const int64_t wide_floats = direct || w.dtype == DType::kF32 ? 0 : kernels.tile_panels * kBlockK * kPanelRows;
  MatrixProduct::Work work{
      .panels = w.panels(),
      .task_panels = task,
      .thread_bytes = (wide_floats + x.rows * task * kPanelRows) * static_cast<int64_t>(sizeof(float)),
  };
  float* target = nullptr;
  if (x.rows > 1) {  // a row is its own packed form
    packed.data = target = ctx.scratch.make<float>(x.rows * packed.padded_k).data();
    const bool at_once = x.rows * x.cols <= kSerialPackFloats;
    work.pieces = at_once ? 1 : ceil_div(packed.chunks(), kPieceChunks);
    work.piece_elements = x.rows * packed.padded_k / work.pieces;
  }
  const Job job{ctx.level, kernels, w, packed, epilogue, plan_fetches(w, packed.tiles, epilogue.companion), y};
  return new (ctx.scratch.make<FloatProduct>(1).data()) FloatProduct(work, job, x, target, wide_floats);
}

}  // namespace choral::kernels
