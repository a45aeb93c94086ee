// Shrink and expand for a batch of rows with several adapters, five ways, measured in turn in one process so that their ratios
// are of one machine state. bf16 weights, fp32 activations and results, every way with the same threads:
//   stack    lora.h: bgmv_shrink + bgmv_expand on stacked weights
//   packed   lora_matrix.h: what the engine runs, rows grouped by the scheduler
//   gather   a copy of A and B for every row, then a product for each row
//   loops    rows grouped and gathered, plain loops the compiler turns into AVX-512 with reordered sums, one adapter a task
//   gemm     rows grouped and gathered, the project's packed product (gemm_float.h) on fp32 weights packed beforehand: the naive
//            grouped product of a framework
// Before each of them 32 MiB of other data pass through the caches, as the rest of a model does in a step.
// Names: LoRA/<in>x<out>/r<rank>/<rows>rows/<adapters>adapters/<threads>threads. Counters: µs of each way (the lower quartile:
// others' work on the machine only adds) and ratios to stack or packed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/lora/lora.h"
#include "kernels/lora/lora_matrix.h"

namespace choral::kernels {
namespace {

struct Machine {
  ThreadPool pool;
  Arena arena;
  Context ctx{pool, cpu_level(), arena};
  explicit Machine(int threads) : pool(threads) {}
};

#if defined(__GNUC__) && !defined(__clang__)
#define CHORAL_COMPILED_WELL __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl"), optimize("O3,fast-math")))
#else
#define CHORAL_COMPILED_WELL __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl")))
#endif

CHORAL_COMPILED_WELL float dot(const float* x, const uint16_t* w, int64_t n) {
#if defined(__clang__)
#pragma clang fp reassociate(on)
#endif
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = static_cast<uint32_t>(w[i]) << 16;
    float v;
    std::memcpy(&v, &bits, sizeof v);
    sum += x[i] * v;
  }
  return sum;
}

struct Shape4 {
  int64_t in, out, rank, rows, adapters;
};

class Batch {
 public:
  Batch(const Shape4& s, Context& ctx) : s_(s), ctx_(ctx) {
    std::mt19937 random(1);
    const auto fill = [&](std::vector<uint16_t>& v, int64_t n) {
      v.resize(n);
      for (uint16_t& b : v) b = to_bfloat16(static_cast<float>(static_cast<int32_t>(random())) * 0x1p-34F).bits;
    };
    fill(a_, s.adapters * s.rank * s.in);
    fill(b_, s.adapters * s.out * s.rank);
    x_.assign(s.rows * s.in, 0.5F);
    y_.assign(s.rows * s.out, 1.0F);
    middle_.assign(s.rows * s.rank, 0.0F);
    for (int64_t i = 0; i < s.rows; ++i) index_.push_back(i % s.adapters);
    for (int64_t g = 0; g < s.adapters; ++g) {
      matrices_.push_back(pack(g));
      gemm_a_.push_back(pack_gemm(a_.data() + g * s.rank * s.in, s.rank, s.in));
      gemm_b_.push_back(pack_gemm(b_.data() + g * s.out * s.rank, s.out, s.rank));
    }
    gathered_a_.resize(s.rows * s.rank * s.in);
    gathered_b_.resize(s.rows * s.rank * s.out);
    sorted_x_.resize(x_.size());
    sorted_y_.resize(y_.size());
  }

  void stack() {
    const TensorView x = view(x_.data(), DType::kF32, {s_.rows, s_.in});
    const TensorView middle = view(middle_.data(), DType::kF32, {s_.rows, s_.rank});
    const TensorView index = view(index_.data(), DType::kI64, {s_.rows});
    const MutableTensorView middle_out{reinterpret_cast<std::byte*>(middle_.data()), DType::kF32, middle.shape, kCpuDevice};
    const MutableTensorView y{reinterpret_cast<std::byte*>(y_.data()), DType::kF32, {s_.rows, s_.out}, kCpuDevice};
    const Status shrunk = bgmv_shrink(ctx_, x, view(a_.data(), DType::kBF16, {s_.adapters, s_.rank, s_.in}), middle_out, index);
    const Status expanded = bgmv_expand(ctx_, middle, view(b_.data(), DType::kBF16, {s_.adapters, s_.out, s_.rank}), y, index);
    CHORAL_CHECK(shrunk.ok() && expanded.ok(), "the batch fits");
  }

  void packed() {
    // Adapter g has rows [first(g), first(g + 1)): x and y as if the scheduler had sorted them.
    constexpr int64_t kTile = 256;
    const int64_t cuts = (s_.rank + 15) / 16, tiles = (s_.out + kTile - 1) / kTile;
    ctx_.pool.parallel_for(s_.adapters * cuts, grain(s_.adapters * cuts), [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t g = t / cuts, rank = t % cuts * 16, rows = first(g + 1) - first(g);
        matrices_[g].shrink(ctx_.level, {x_.data() + first(g) * s_.in, rows, s_.in}, 1.0F, rank, std::min(rank + 16, s_.rank),
                            {middle_.data() + first(g) * s_.rank, rows, s_.rank});
      }
    });
    ctx_.pool.parallel_for(s_.adapters * tiles, grain(s_.adapters * tiles), [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t g = t / tiles, col = t % tiles * kTile, rows = first(g + 1) - first(g);
        const LoRATerm term{&matrices_[g], middle_.data() + first(g) * s_.rank, 1.0F};
        const MatrixView<float> y(y_.data() + first(g) * s_.out, rows, s_.out);
        lora_expand(ctx_.level, {&term, 1}, col, y.sub_cols(col, std::min(kTile, s_.out - col)));
      }
    });
  }

  void gather() {
    const auto rows_of = [&](auto body) {
      ctx_.pool.parallel_for(s_.rows, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) body(i, index_[i]);
      });
    };
    rows_of([&](int64_t i, int64_t g) {
      std::copy_n(a_.data() + g * s_.rank * s_.in, s_.rank * s_.in, gathered_a_.data() + i * s_.rank * s_.in);
    });
    rows_of([&](int64_t i, int64_t) {
      product(1, x_.data() + i * s_.in, gathered_a_.data() + i * s_.rank * s_.in, s_.rank, s_.in, middle_.data() + i * s_.rank,
              false);
    });
    rows_of([&](int64_t i, int64_t g) {
      std::copy_n(b_.data() + g * s_.rank * s_.out, s_.rank * s_.out, gathered_b_.data() + i * s_.rank * s_.out);
    });
    rows_of([&](int64_t i, int64_t) {
      product(1, middle_.data() + i * s_.rank, gathered_b_.data() + i * s_.rank * s_.out, s_.out, s_.rank, y_.data() + i * s_.out,
              true);
    });
  }

  void loops() {
    ctx_.pool.parallel_for(s_.adapters, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t g = begin; g < end; ++g) {
        const int64_t rows = gather_rows(g);
        float* x = sorted_x_.data() + first(g) * s_.in;
        float* y = sorted_y_.data() + first(g) * s_.out;
        float* middle = middle_.data() + first(g) * s_.rank;
        product(rows, x, a_.data() + g * s_.rank * s_.in, s_.rank, s_.in, middle, false);
        product(rows, middle, b_.data() + g * s_.out * s_.rank, s_.out, s_.rank, y, false);
        scatter_rows(g);
      }
    });
  }

  void gemm() {
    for (int64_t g = 0; g < s_.adapters; ++g) {
      const int64_t rows = gather_rows(g);
      const MatrixView<float> x(sorted_x_.data() + first(g) * s_.in, rows, s_.in),
          y(sorted_y_.data() + first(g) * s_.out, rows, s_.out);
      const MatrixView<float> middle(middle_.data() + first(g) * s_.rank, rows, s_.rank);
      gemm_a_[g]->multiply(ctx_, x, {}, middle);
      gemm_b_[g]->multiply(ctx_, middle, {}, y);
      scatter_rows(g);
    }
  }

 private:
  static TensorView view(const void* data, DType type, Shape shape) {
    return {static_cast<const std::byte*>(data), type, shape, kCpuDevice};
  }
  int64_t first(int64_t g) const { return g * s_.rows / s_.adapters; }
  int64_t grain(int64_t tasks) const { return std::max<int64_t>(1, tasks / (4 * ctx_.pool.size())); }

  LoRAMatrix pack(int64_t g) const {
    const LoRASliceSource slice{0, view(a_.data() + g * s_.rank * s_.in, DType::kBF16, {s_.rank, s_.in}),
                                view(b_.data() + g * s_.out * s_.rank, DType::kBF16, {s_.out, s_.rank}), 1.0F};
    auto matrix = LoRAMatrix::pack({s_.in, s_.out, {&slice, 1}, {}, {}}, LoRAFormat::kAuto);
    CHORAL_CHECK(matrix.ok(), matrix.status().message());
    return std::move(*matrix);
  }
  std::unique_ptr<PackedMatrix> pack_gemm(const uint16_t* w, int64_t rows, int64_t cols) const {
    const WeightRows part{view(w, DType::kBF16, {rows, cols}), {}};
    auto matrix = pack_float({&part, 1}, DType::kF32, ctx_.pool);
    CHORAL_CHECK(matrix.ok(), matrix.status().message());
    return std::move(*matrix);
  }

  // y [rows, n] (+)= x [rows, k]·wᵀ
  CHORAL_COMPILED_WELL static void product(int64_t rows, const float* x, const uint16_t* w, int64_t n, int64_t k, float* y,
                                           bool add) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < rows; ++i) {
        const float sum = dot(x + i * k, w + j * k, k);
        y[i * n + j] = add ? y[i * n + j] + sum : sum;
      }
    }
  }

  // Rows i with i % adapters == g.
  int64_t gather_rows(int64_t g) {
    int64_t rows = 0;
    for (int64_t i = g; i < s_.rows; i += s_.adapters) {
      std::copy_n(x_.data() + i * s_.in, s_.in, sorted_x_.data() + (first(g) + rows++) * s_.in);
    }
    return rows;
  }
  void scatter_rows(int64_t g) {
    const float* from = sorted_y_.data() + first(g) * s_.out;
    for (int64_t i = g; i < s_.rows; i += s_.adapters) {
      float* to = y_.data() + i * s_.out;
      for (int64_t c = 0; c < s_.out; ++c) to[c] += *from++;
    }
  }

  Shape4 s_;
  Context& ctx_;
  std::vector<uint16_t> a_, b_, gathered_a_, gathered_b_;
  std::vector<float> x_, y_, middle_, sorted_x_, sorted_y_;
  std::vector<int64_t> index_;
  std::vector<LoRAMatrix> matrices_;
  std::vector<std::unique_ptr<PackedMatrix>> gemm_a_, gemm_b_;
};

void LoRA(benchmark::State& state, const Shape4& shape, int threads) {
  Machine machine(threads);
  Batch batch(shape, machine.ctx);
  constexpr size_t kWays = 5;
  using Way = void (Batch::*)();
  constexpr std::array<Way, kWays> ways{&Batch::stack, &Batch::packed, &Batch::gather, &Batch::loops, &Batch::gemm};
  constexpr std::array<const char*, kWays> names{"stack", "packed", "gather", "loops", "gemm"};
  std::array<std::vector<double>, kWays> seconds;
  std::vector<int64_t> others(int64_t{4} << 20, 1);
  for (auto _ : state) {
    for (size_t w = 0; w < kWays; ++w) {
      // By all threads: through the caches of each, and none of them is asleep when the work begins.
      machine.pool.parallel_for(std::ssize(others), 1 << 16, [&](int64_t begin, int64_t end, int) {
        benchmark::DoNotOptimize(std::accumulate(others.begin() + begin, others.begin() + end, int64_t{0}));
      });
      const auto begin = std::chrono::steady_clock::now();
      (batch.*ways[w])();
      seconds[w].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    state.SetIterationTime(seconds[1].back());
  }
  std::array<double, kWays> quartile{};
  for (size_t w = 0; w < kWays; ++w) {
    std::sort(seconds[w].begin(), seconds[w].end());
    quartile[w] = seconds[w][seconds[w].size() / 4];
    state.counters[fmt::format("{}_us", names[w])] = quartile[w] * 1e6;
  }
  for (size_t w = 2; w < kWays; ++w) {
    state.counters[fmt::format("{}/stack", names[w])] = quartile[w] / quartile[0];
    state.counters[fmt::format("{}/packed", names[w])] = quartile[w] / quartile[1];
  }
}

[[maybe_unused]] const bool registered = [] {
  for (const auto& [in, out] : {std::pair<int64_t, int64_t>{576, 1536}, {2048, 2048}}) {
    for (const int64_t rank : {16, 64}) {
      for (const auto& [rows, adapters] : {std::pair<int64_t, int64_t>{8, 8}, {32, 8}, {32, 32}, {256, 4}}) {
        for (const int threads : {1, ThreadPool::default_size()}) {
          const auto title = fmt::format("LoRA/{}x{}/r{}/{}rows/{}adapters/{}threads", in, out, rank, rows, adapters, threads);
          benchmark::RegisterBenchmark(title.c_str(), LoRA, Shape4{in, out, rank, rows, adapters}, threads)
              ->UseManualTime()
              ->Iterations(40);
          if (ThreadPool::default_size() == 1) break;
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace choral::kernels
