#include "kernels/lora/lora_companion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/gemm_quant_test_data.h"

namespace choral::kernels {
namespace {

std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::vector<float> values(count);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& v : values) v = normal(random);
  return values;
}

TensorView as_tensor(const std::vector<float>& values, int64_t rows) {
  const auto cols = std::ssize(values) / rows;
  return {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, {rows, cols}, kCpuDevice};
}

// Slices' borders lie beside the panels', and columns 17 … 19 and the last belong to none.
LoRAMatrix make_adapter(int64_t in, int64_t out, int64_t rank, LoRAFormat format, uint32_t seed) {
  const int64_t second = 20, last = out - 1;
  const auto a1 = random_floats(rank * in, seed), a2 = random_floats((rank + 1) * in, seed + 1);
  const auto b1 = random_floats(17 * rank, seed + 2), b2 = random_floats((last - second) * (rank + 1), seed + 3);
  const LoRASliceSource slices[] = {{0, as_tensor(a1, rank), as_tensor(b1, 17), 0.5F},
                                    {second, as_tensor(a2, rank + 1), as_tensor(b2, last - second), 2.0F}};
  auto packed = LoRAMatrix::pack({.in = in, .out = out, .slices = slices}, format);
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return std::move(*packed);
}

// Rows of a step with a voice for every one to four of them; the second voice has two adapters, row 0 none.
struct Step {
  int64_t in, out, rows;
  std::deque<LoRAMatrix> adapters;
  std::deque<std::vector<LoRAShrink>> shrinks;
  std::deque<std::vector<LoRATerm>> terms;
  std::deque<std::vector<float>> middles;
  std::vector<LoRAShare> shares;
  std::vector<float> x, y, bias;
  std::unique_ptr<PackedMatrix> weight;

  Step(int64_t in_, int64_t out_, int64_t rows_, LoRAFormat format, DType weights)
      : in(in_),
        out(out_),
        rows(rows_),
        x(random_floats(rows * in, 1)),
        y(random_floats(rows * out, 2)),
        bias(random_floats(out, 3)) {
    constexpr int64_t kRanks[] = {3, 8, 31, 64};
    for (int64_t row = 1, i = 0; row < rows; ++i) {
      const int64_t count = std::min(1 + i % 4, rows - row);
      auto& some_shrinks = shrinks.emplace_back();
      auto& some_terms = terms.emplace_back();
      for (int64_t t = 0; t < (i == 1 ? 2 : 1); ++t) {
        const float factor = 1.0F - 0.25F * static_cast<float>(t);
        const LoRAMatrix& m =
            adapters.emplace_back(make_adapter(in, out, kRanks[i % 4] + t, format, 100 * static_cast<uint32_t>(i + 1)));
        float* middle = middles.emplace_back(count * m.rank()).data();
        some_shrinks.push_back({&m, {x.data() + row * in, count, in}, factor, {middle, count, m.rank()}});
        some_terms.push_back({&m, middle, factor});
      }
      shares.push_back({some_shrinks, {some_terms, {y.data() + row * out, count, out}}});
      row += count;
    }
    ThreadPool pool(1);
    if (can_pack_quantised(weights)) {
      const auto blocks = random_quant_matrix(weights, out, in, 4);
      const WeightRows part{blocks.view(), {}};
      weight = std::move(*pack_quantised({&part, 1}, pool));
      return;
    }
    const auto w = random_floats(out * in, 4);
    const WeightRows part{as_tensor(w, out), {}};
    weight = std::move(*pack_float({&part, 1}, weights, pool));
  }

  void multiply(const Context& ctx, Companion* companion) {
    const Epilogue epilogue{.bias = bias.data(), .accumulate = true, .companion = companion};
    weight->multiply(ctx, {x.data(), rows, in}, epilogue, {y.data(), rows, out});
  }

  // The passes that companions replace, over the shares that `wanted` holds of.
  template <class Wanted>
  void add_pass(const Context& ctx, Wanted wanted) {
    std::vector<LoRAShrink> some_shrinks;
    std::vector<LoRAExpand> expands;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (!wanted(static_cast<int64_t>(i))) continue;
      some_shrinks.insert(some_shrinks.end(), shares[i].shrinks.begin(), shares[i].shrinks.end());
      expands.push_back(shares[i].expand);
    }
    lora_shrink(ctx, some_shrinks);
    lora_expand(ctx, expands);
  }

  void finish(const Context& ctx, LoRACompanion& companion) {
    companion.finish();
    add_pass(ctx, [&](int64_t share) { return !companion.was_begun(share); });
  }

  int64_t panel_bytes() const {
    int64_t bytes = 0;
    for (const auto& m : adapters) bytes += m.panel_bytes();
    return bytes;
  }
};

struct Machine {
  ThreadPool pool;
  Arena arena;
  Context ctx;
  Machine(int threads, CpuLevel level) : pool(threads), ctx{pool, level, arena} {}
};

void expect_equal_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i])) << what << ", element " << i;
  }
}

constexpr LoRAFormat kFormats[] = {LoRAFormat::kF32, LoRAFormat::kF16, LoRAFormat::kBF16, LoRAFormat::kI8};

// y after the product and the passes.
std::vector<float> expected(Step step, const Context& ctx) {
  step.multiply(ctx, nullptr);
  step.add_pass(ctx, [](int64_t) { return true; });
  return step.y;
}

class LoRACompanionAtLevel : public ::testing::TestWithParam<CpuLevel> {
 protected:
  void SetUp() override {
    if (GetParam() > cpu_level()) GTEST_SKIP() << "this machine is below " << cpu_level_name(GetParam());
  }
};

TEST_P(LoRACompanionAtLevel, AlongAProductIsThePassesAfterIt) {
  // 60 rows: many row tiles; 32: few; 5: one at the wider levels, which fetches for no companion. 700: k in three blocks.
  for (const auto& [in, out, rows] : {std::array<int64_t, 3>{700, 208, 60}, {64, 77, 32}, {515, 400, 32}, {64, 77, 5}}) {
    for (const LoRAFormat format : kFormats) {
      for (const DType weights : {DType::kBF16, DType::kF32}) {
        const auto make = [&] { return Step(in, out, rows, format, weights); };
        Machine single(1, GetParam());
        const auto want = expected(make(), single.ctx);
        for (const int threads : {1, 2, 3}) {
          Machine machine(threads, GetParam());
          Step step = make();
          LoRACompanion companion(machine.ctx, step.shares);
          step.multiply(machine.ctx, &companion);
          if (rows >= 32 && threads == 1) {
            EXPECT_TRUE(companion.was_begun(0));
          }
          step.finish(machine.ctx, companion);
          expect_equal_bits(step.y, want, fmt::format("{} x {} x {}, {} threads", rows, in, out, threads));
        }
      }
    }
  }
}

// 60 and 32 rows of two planes are tiles enough; 5 may be. 208 and 77 outputs have panels that are multiplied alone; 784 blocks
// of k are more than a companion has bytes for.
TEST_P(LoRACompanionAtLevel, AlongAQuantisedProductIsThePassesAfterIt) {
  for (const auto& [in, out, rows] :
       {std::array<int64_t, 3>{768, 256, 60}, {256, 208, 60}, {256, 77, 32}, {512, 400, 32}, {25088, 64, 9}, {256, 77, 5}}) {
    for (const DType weights : {DType::kQ8_0, DType::kQ4_0, DType::kQ6_K, DType::kQ2_K}) {
      const LoRAFormat format = kFormats[static_cast<size_t>(in / 256) % 4];
      const auto make = [&] { return Step(in, out, rows, format, weights); };
      Machine single(1, GetParam());
      const auto want = expected(make(), single.ctx);
      for (const int threads : {1, 3}) {
        Machine machine(threads, GetParam());
        Step step = make();
        LoRACompanion companion(machine.ctx, step.shares);
        step.multiply(machine.ctx, &companion);
        if (rows >= 32 && out >= 256 && threads == 1) {
          EXPECT_EQ(companion.was_begun(0), GetParam() != CpuLevel::kBase) << "whose kernel asks for nothing";
        }
        step.finish(machine.ctx, companion);
        expect_equal_bits(step.y, want, fmt::format("{}, {} x {} x {}, {} threads", dtype_name(weights), rows, in, out, threads));
      }
    }
  }
}

TEST_P(LoRACompanionAtLevel, HoweverItIsAsked) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Machine machine(3, GetParam());
    Step step(96, 100, 24, kFormats[seed % 4], DType::kF32);
    const auto want = expected(Step(96, 100, 24, kFormats[seed % 4], DType::kF32), machine.ctx);
    LoRACompanion companion(machine.ctx, step.shares);
    EXPECT_EQ(companion.bytes_left(), step.panel_bytes());
    step.multiply(machine.ctx, nullptr);
    const int rounds = static_cast<int>(random() % 400);
    const auto most = int64_t{1} << random() % 16;
    for (int i = 0; i < rounds; ++i) {
      const int thread = static_cast<int>(random() % 3);
      if (random() % 3 != 0) {
        EXPECT_LE(static_cast<int64_t>(companion.fetch(thread, most).size()), most);
      }
      if (random() % 3 == 0) companion.work(thread);
    }
    step.finish(machine.ctx, companion);
    expect_equal_bits(step.y, want, fmt::format("seed {}", seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, LoRACompanionAtLevel,
                         ::testing::Values(CpuLevel::kBase, CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kVnni),
                         [](const auto& tested) { return std::string(cpu_level_name(tested.param)); });

TEST(LoRACompanion, NamesEveryByteOnceInTheOrderOfThePanels) {
  Machine machine(2, CpuLevel::kBase);
  Step step(96, 100, 24, LoRAFormat::kBF16, DType::kF32);
  LoRACompanion companion(machine.ctx, step.shares);
  int64_t total = 0;
  for (const int thread : {0, 1}) {
    const std::byte* end = nullptr;
    for (;;) {
      const auto bytes = companion.fetch(thread, 1000);
      if (bytes.empty()) break;
      const auto begins = [&](const LoRAMatrix& m) { return m.panels().data() == bytes.data(); };
      EXPECT_TRUE(bytes.data() == end || std::any_of(step.adapters.begin(), step.adapters.end(), begins));
      end = bytes.data() + bytes.size();
      total += std::ssize(bytes);
    }
  }
  EXPECT_EQ(total, step.panel_bytes());
  EXPECT_EQ(companion.bytes_left(), 0);
}

TEST(LoRACompanion, LeavesEverythingWhenNobodyAsks) {
  Machine machine(2, CpuLevel::kBase);
  Step step(96, 100, 24, LoRAFormat::kBF16, DType::kF32);
  const auto before = step.y;
  LoRACompanion companion(machine.ctx, step.shares);
  companion.work(0);
  companion.finish();
  for (size_t i = 0; i < step.shares.size(); ++i) EXPECT_FALSE(companion.was_begun(static_cast<int64_t>(i)));
  expect_equal_bits(step.y, before, "y");
}

}  // namespace
}  // namespace choral::kernels
