#include "kernels/gemm/int8/int8_multiply.h"

#include <new>

#include "kernels/gemm/gemm_float_blocking.h"
#include "kernels/gemm/int8/int8_rows.h"
#include "kernels/gemm/tile_finish.h"
#include "kernels/gemm/work_division.h"

namespace choral::kernels {
namespace {

constexpr int64_t kBlockRows = 256;    // sums and floats of four panels are 128 KiB, their x of a block as much: L2
constexpr int64_t kAheadLines = 128;   // prefetch distance of the panels that are streamed from memory, divided among them
constexpr int64_t kMaxTilePanels = 4;  // of a task with many rows
constexpr int64_t kMaxDirectPanels = 64;
constexpr int64_t kNever = -1;

// The next block comes from memory while row tiles go over this one: of few tiles each block must be short for that, of many a
// long one saves loading and storing sums.
int64_t block_k_for(const Int8Kernels& kernels, int64_t tiles) {
  return tiles <= 2 ? kernels.block_k / 4 : tiles <= 10 ? kernels.block_k / 2 : kernels.block_k;
}

struct Job {
  CpuLevel level;
  const Int8Kernels& kernels;
  const Int8Panels& w;
  Int8Rows x;
  Epilogue epilogue;
  int64_t tiles;
  MatrixView<float> y;

  int64_t begin(int64_t t) const { return t * x.rows / tiles; }

  struct Tile {  // R rows × P panels
    int64_t row;
    int rows;
    const std::byte* panel;
    int panels;
    int32_t* sums;
    float* out;
    int64_t stride;
  };
  struct Ahead {
    const std::byte* line;
    int64_t lines, jump_at, jump;
  };

  // Groups [g, g + count), or a part of one, from k0 on, `steps` each.
  void run_groups(const Tile& tile, int64_t k0, int64_t count, int64_t steps, Ahead& ahead) const {
    const Int8Form& form = w.form;
    const int64_t g = k0 / form.group, within = k0 - g * form.group;
    const std::byte* header = tile.panel + g * form.group_bytes();
    const bool complete = within + steps * kInt8Step >= form.group_k(g);
    Int8Args args{};
    args.rows = tile.rows;
    args.panels = tile.panels;
    args.panel_bytes = form.panel_bytes();
    args.group_bytes = form.group_bytes();
    args.header = header;
    args.weights = header + form.header_bytes() + within / kInt8Step * kInt8StepBytes;
    args.corrected = form.corrected;
    args.groups = count;
    args.steps = steps;
    args.x = x.at(tile.row, k0);
    args.x_row_bytes = x.row_bytes(k0);
    args.starts = x.starts + tile.row * x.groups + g;
    args.starts_stride = x.groups;
    args.row_scales = complete && g + count == x.groups ? x.scales + tile.row : nullptr;
    args.resume = within != 0;
    args.complete = complete;
    args.first = g == 0;
    args.sums = tile.sums;
    args.out = tile.out;
    args.stride = tile.stride;
    args.ahead = ahead.line;
    args.lines = ahead.lines;
    args.jump_at = ahead.jump_at;
    args.jump = ahead.jump;
    kernels.micro(tile.rows, tile.panels)(args);
    const int64_t fetched = std::min(ahead.lines, count * (steps + form.header_bytes() / kInt8StepBytes));
    ahead.lines -= fetched;
    ahead.line += fetched * kInt8StepBytes;
    if (ahead.lines <= ahead.jump_at && ahead.lines + fetched > ahead.jump_at) ahead.line += ahead.jump;
  }

  // k in [k0, k1) of a block: whole groups or a part of one, and what is left.
  void run_block(const Tile& tile, int64_t k0, int64_t k1, Ahead ahead) const {
    const int64_t piece = std::min(w.form.group, x.block_k), whole = (k1 - k0) / piece, rest = (k1 - k0) % piece;
    if (whole > 0) run_groups(tile, k0, whole, piece / kInt8Step, ahead);
    if (rest > 0) run_groups(tile, k0 + whole * piece, 1, ceil_div(rest, kInt8Step), ahead);
  }

  void finish(int64_t p0, int64_t p1, float* out) const {
    const int64_t stride = (p1 - p0) * kInt8Lanes, col = p0 * kInt8Lanes, cols = std::min(p1 * kInt8Lanes, w.n) - col;
    finish_tile(level, {out, x.rows, cols, stride}, 1, col, epilogue, y);
  }

  // One row tile over panels [p0, p1), several panels at once from end to end. The prefetch keeps its distance and leaves these
  // panels for the next group's near their end.
  void run_direct(int64_t p0, int64_t p1, int32_t* sums, float* out) const {
    const int rows = static_cast<int>(x.rows);
    const int64_t stride = (p1 - p0) * kInt8Lanes, panel_bytes = w.form.panel_bytes(), lines = panel_bytes / kInt8StepBytes;
    for (int64_t p = p0; p < p1;) {
      const int64_t group = largest_group(kernels.panels_for(rows), p1 - p), jump = (group - 1) * panel_bytes;
      const Tile tile{0,     rows, w.panel(p), static_cast<int>(group), sums + (p - p0) * kInt8Lanes, out + (p - p0) * kInt8Lanes,
                      stride};
      const int64_t distance = kAheadLines / group;
      Ahead ahead{tile.panel + distance * kInt8StepBytes, lines, distance, jump};
      if (lines <= distance) ahead = {tile.panel + group * panel_bytes, lines, kNever, 0};
      run_block(tile, 0, w.form.k, ahead);
      p += group;
    }
    finish(p0, p1, out);
  }

  // All row tiles over panels [p0, p1), block by block of k. Each tile fetches its share of the next block.
  void run_tiles(int64_t p0, int64_t p1, int32_t* sums, float* out) const {
    const int64_t stride = (p1 - p0) * kInt8Lanes;
    const int most = kernels.panels_for(kernels.tile_rows);
    for (int64_t k0 = 0; k0 < w.form.k; k0 += x.block_k) {
      const int64_t k1 = std::min(w.form.k, k0 + x.block_k);
      for (int64_t p = p0; p < p1;) {
        const int64_t group = largest_group(most, p1 - p);
        const bool turn = p + group == p1 && k1 < w.form.k;  // the next block is that of the first panels
        const std::byte* next = (turn ? w.panel(p0) : w.panel(p + group)) + block_offset(turn ? k1 : k0);
        const int64_t lines = (block_offset(k1) - block_offset(k0)) / kInt8StepBytes;
        for (int64_t t = 0; t < tiles; ++t) {
          const Tile tile{begin(t),
                          static_cast<int>(begin(t + 1) - begin(t)),
                          w.panel(p),
                          static_cast<int>(group),
                          sums + begin(t) * stride + (p - p0) * kInt8Lanes,
                          out + begin(t) * stride + (p - p0) * kInt8Lanes,
                          stride};
          const int64_t line = lines * t / tiles;
          run_block(tile, k0, k1, {next + line * kInt8StepBytes, lines * (t + 1) / tiles - line, kNever, 0});
        }
        p += group;
      }
    }
    finish(p0, p1, out);
  }

  // Of the header or step at k in a panel.
  int64_t block_offset(int64_t k) const {
    const Int8Form& form = w.form;
    const int64_t g = k / form.group, within = k - g * form.group;
    return g * form.group_bytes() + (within == 0 ? 0 : form.header_bytes() + within / kInt8Step * kInt8StepBytes);
  }
};

class Int8Product final : public MatrixProduct {
 public:
  Int8Product(const Work& work, const Job& job, MatrixView<const float> source, const QuantisedRows& quantised)
      : MatrixProduct(work), job_(job), source_(source), quantised_(quantised) {}

  void prepare(int64_t begin, int64_t end) const override {
    if (source_.data != nullptr) {
      quantise_rows(job_.level, source_.sub_rows(begin, end - begin), quantised_.sub_rows(begin, end - begin));
    }
    pack_int8_rows(job_.level, job_.w.form, quantised_.q(), begin, end, job_.x);
  }
  void multiply(int64_t begin, int64_t end, std::byte* memory, int) const override {
    auto* floats = reinterpret_cast<float*>(memory);
    auto* sums = reinterpret_cast<int32_t*>(memory + work().thread_bytes / 2);
    job_.x.rows <= job_.kernels.direct_rows ? job_.run_direct(begin, end, sums, floats)
                                            : job_.run_tiles(begin, end, sums, floats);
  }

 private:
  Job job_;
  MatrixView<const float> source_;  // null: quantised_ is given
  QuantisedRows quantised_;
};

}  // namespace

int64_t most_int8_rows() { return kBlockRows; }

const MatrixProduct* plan_int8_panels(const Int8Panels& w, const Context& ctx, const RowForm& form, const ProductInput& x,
                                      const Epilogue& epilogue, MatrixView<float> y, int threads) {
  const int64_t rows = y.rows;
  const Int8Kernels& kernels = int8_kernels(ctx.level, rows);
  const bool direct = rows <= kernels.direct_rows;
  const int64_t group = kernels.panels_for(direct ? static_cast<int>(rows) : kernels.tile_rows);
  const int64_t task = panels_per_task(w.panels(), threads, group, direct ? kMaxDirectPanels : kMaxTilePanels);
  const int64_t tiles = ceil_div(rows, kernels.tile_rows);
  const int64_t block_k = direct ? round_up(w.form.k, kInt8Step) : block_k_for(kernels, tiles);
  const QuantisedRows quantised = x.quantised.empty() ? QuantisedRows(ctx.scratch, form, rows, w.form.k) : x.quantised;
  const Int8Rows packed = make_int8_rows(ctx.scratch, w.form, rows, quantised.scale(), block_k, kernels.widened);
  const MatrixProduct::Work work{
      .pieces = rows,
      .piece_elements = w.form.k,
      .panels = w.panels(),
      .task_panels = task,
      .thread_bytes = rows * task * kInt8Lanes * static_cast<int64_t>(sizeof(float) + sizeof(int32_t))};
  return new (ctx.scratch.make<Int8Product>(1).data())
      Int8Product(work, {ctx.level, kernels, w, packed, epilogue, tiles, y}, x.x, quantised);
}

}  // namespace choral::kernels
