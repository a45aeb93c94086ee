#include "kernels/x86/gemm_float_amx.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>

#include "base/checked_math.h"
#include "kernels/gemm/tile_finish.h"
#include "kernels/gemm/work_division.h"
#include "kernels/x86/gemm_float_amx_row.h"
#include "kernels/x86/gemm_float_amx_tiles.h"

namespace choral::kernels {
namespace {

constexpr int64_t kBlockK = 512;       // the weights of two panels are 32 KiB: L1
constexpr int64_t kBlockRows = 256;    // their x of one k block is 768 KiB: L2
constexpr int64_t kAheadBytes = 2048;  // prefetch distance of a stream in memory
constexpr int64_t kMaxTilePanels = 8;
constexpr int64_t kMaxDirectPanels = 64;
constexpr int64_t kSerialBlocks = 1024;  // blocks of 32 k to split before threads pay, which take
constexpr int64_t kPieceBlocks = 8;

struct Job {
  const FloatPanels& w;
  Epilogue epilogue;
  MatrixView<float> y;

  void finish(int64_t p0, int64_t p1, float* out, int64_t out_stride) const {
    const int64_t col = p0 * kPanelRows;
    const int64_t cols = std::min(p1 * kPanelRows, w.n) - col;
    finish_tile(CpuLevel::kAmx, {out, y.rows, cols, out_stride}, 1, col, epilogue, y);
  }

  // One row, without the tile unit.
  void run(const SplitRows<float>& x, int64_t p0, int64_t p1, float* out) const {
    {
      const TileUnitRounding rounding;
      for (int64_t p = p0; p < p1;) {
        const int64_t group = largest_group(4, p1 - p);
        amx_row_kernel(group)({x.data, w.panel(p), w.panel_bytes, out + (p - p0) * kPanelRows, kAheadBytes});
        p += group;
      }
    }
    finish(p0, p1, out, (p1 - p0) * kPanelRows);
  }

  void run(const SplitRows<uint16_t>& x, int64_t p0, int64_t p1, float* out) const {
    x.tiles == 1 ? run_one_tile(x, p0, p1, out) : run_tiles(x, p0, p1, out);
    finish(p0, p1, out, (p1 - p0) * kPanelRows);
  }

  void run_one_tile(const SplitRows<uint16_t>& x, int64_t p0, int64_t p1, float* out) const {
    TileUnit unit;
    unit.configure_one(x.height(0));
    for (int64_t p = p0; p < p1;) {
      const int64_t group = largest_group(4, p1 - p);
      amx_tile_kernel(group)(
          {x.data, x.height(0), w.panel(p), w.panel_bytes, out + (p - p0) * kPanelRows, (p1 - p0) * kPanelRows, kAheadBytes});
      p += group;
    }
  }

  void run_tiles(const SplitRows<uint16_t>& x, int64_t p0, int64_t p1, float* out) const {
    const int64_t out_stride = (p1 - p0) * kPanelRows;
    constexpr int64_t kTileBytes = kAmxBlockK * kPanelRows * 2;
    TileUnit unit;
    for (int64_t k0 = 0; k0 < x.padded_k; k0 += kBlockK) {
      const int64_t k = std::min(kBlockK, x.padded_k - k0);
      for (int64_t t = 0; t < x.tiles; t += 2) {
        unit.configure_two(x.height(t), x.height(t + 1));
        for (int64_t p = p0; p < p1;) {
          const int64_t group = largest_group(2, p1 - p);
          const std::byte* first = w.panel(p) + k0 * w.k_bytes();
          // The first row tiles fetch the next panels' block from memory, the others the next weights of their own from L2.
          const std::byte* ahead = first + 2 * kTileBytes;
          if (t == 0) {
            const bool last = p + group == p1 && k0 + k < x.padded_k;
            ahead = last ? w.panel(p0) + (k0 + k) * w.k_bytes() : first + group * w.panel_bytes;
          }
          float* target = out + (p - p0) * kPanelRows;
          amx_pair_kernel(group)({x.tile(t, k0), x.tile(t + 1, k0), x.height(t) * kAmxBlockK, x.height(t + 1) * kAmxBlockK, first,
                                  w.panel_bytes, k / kAmxBlockK, target + x.begin(t) * out_stride,
                                  target + x.begin(t + 1) * out_stride, out_stride, k0 != 0, ahead});
          p += group;
        }
      }
    }
  }
};

template <class T>
class AmxProduct final : public MatrixProduct {
 public:
  AmxProduct(const Work& work, const Job& job, MatrixView<const float> source, const SplitRows<T>& split)
      : MatrixProduct(work), job_(job), source_(source), split_(split) {}

  void prepare(int64_t begin, int64_t end) const override {
    const int64_t blocks = split_.padded_k / kAmxBlockK;
    split_rows(split_, source_, begin * blocks / work().pieces, end * blocks / work().pieces, const_cast<T*>(split_.data));
  }
  void multiply(int64_t begin, int64_t end, std::byte* memory, int) const override {
    job_.run(split_, begin, end, reinterpret_cast<float*>(memory));
  }

 private:
  Job job_;
  MatrixView<const float> source_;
  SplitRows<T> split_;
};

template <class T>
const MatrixProduct* plan_split(const Job& job, const Context& ctx, MatrixView<const float> x, int64_t tiles, int threads) {
  const int64_t padded_k = round_up(x.cols, kAmxBlockK), blocks = padded_k / kAmxBlockK;
  const SplitRows<T> split{ctx.scratch.make<T>(x.rows * padded_k * kAmxTerms).data(), x.rows, tiles, padded_k};
  const bool direct = tiles == 1;
  const int64_t panels = job.w.panels();
  const int64_t task = panels_per_task(panels, threads, direct ? 4 : 2, direct ? kMaxDirectPanels : kMaxTilePanels);
  MatrixProduct::Work work{
      .pieces = x.rows * blocks <= kSerialBlocks ? 1 : ceil_div(blocks, kPieceBlocks),
      .panels = panels,
      .task_panels = task,
      .thread_bytes = x.rows * task * kPanelRows * static_cast<int64_t>(sizeof(float)),
  };
  work.piece_elements = x.rows * padded_k / work.pieces;
  return new (ctx.scratch.make<AmxProduct<T>>(1).data()) AmxProduct<T>(work, job, x, split);
}

// Operands of the probe: biased exponents are drawn from [low, low + count).
struct ProbeRange {
  uint32_t low, count;
};
constexpr ProbeRange kProbeRanges[] = {{124, 6}, {0, 127}, {40, 130}, {52, 22}};  // the last: sums about 2^-126

struct alignas(64) Probe {
  static constexpr int64_t kRows = kAmxTileRows, kBlocks = 8, kK = kBlocks * kAmxBlockK;

  uint16_t w[kK * kPanelRows];
  float x[kRows * kK];
  uint16_t tile[kRows * kK * kAmxTerms];
  float row[kK * kAmxTerms];
  float on_unit[kRows * kPanelRows], by_fma[kPanelRows];
  uint32_t state = 1;

  uint32_t random() { return (state = state * 1664525u + 1013904223u) >> 8; }
  float number(ProbeRange range) {
    const uint32_t fraction = random() & 0x7FFFFFu, sign = random() & 1u;
    return std::bit_cast<float>(sign << 31 | (range.low + random() % range.count) << 23 | fraction);
  }

  // Sixteen rows on the tile unit and one by one in AVX-512: equal bits?
  bool run(ProbeRange range) {
    for (uint16_t& v : w) v = static_cast<uint16_t>(std::bit_cast<uint32_t>(number(range)) >> 16);
    for (float& v : x) v = number(range);
    const auto* panel = reinterpret_cast<const std::byte*>(w);
    split_rows(SplitRows<uint16_t>{tile, kRows, 1, kK}, {x, kRows, kK}, 0, kBlocks, tile);
    {
      TileUnit unit;
      unit.configure_one(kRows);
      amx_tile_kernel(1)({tile, kRows, panel, sizeof w, on_unit, kPanelRows, 0});
    }
    bool equal = true;
    for (int64_t r = 0; r < kRows; ++r) {
      split_rows(SplitRows<float>{row, 1, 1, kK}, {x + r * kK, 1, kK}, 0, kBlocks, row);
      const TileUnitRounding rounding;
      amx_row_kernel(1)({row, panel, sizeof w, by_fma, 0});
      equal &= std::memcmp(by_fma, on_unit + r * kPanelRows, sizeof by_fma) == 0;
    }
    return equal;
  }
};

bool probe_tile_unit() {
  if (!machine_has(CpuLevel::kAmx)) return false;
  const auto probe = std::make_unique<Probe>();
  return std::all_of(std::begin(kProbeRanges), std::end(kProbeRanges), [&](ProbeRange range) { return probe->run(range); });
}

}  // namespace

bool tile_unit_is_exact() {
  static const bool exact = probe_tile_unit();
  return exact;
}

int64_t most_amx_rows() { return kBlockRows; }

const MatrixProduct* plan_panels_amx(const FloatPanels& w, const Context& ctx, MatrixView<const float> x,
                                     const Epilogue& epilogue, MatrixView<float> y, int threads) {
  CHORAL_DCHECK(w.dtype == DType::kBF16, "the tile unit multiplies bf16");
  const Job job{w, epilogue, y};
  if (x.rows == 1) return plan_split<float>(job, ctx, x, 1, threads);
  const int64_t tiles = x.rows <= kAmxTileRows ? 1 : 2 * ceil_div(x.rows, 2 * kAmxTileRows);
  return plan_split<uint16_t>(job, ctx, x, tiles, threads);
}

}  // namespace choral::kernels
