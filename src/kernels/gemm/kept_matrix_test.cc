// Matrices of every kind, kept and made again: the same bits; what no packed matrix is, is refused; and packing is what files say
// it is.
#include "kernels/gemm/kept_matrix.h"

#include "base/sha256.h"
#include "kernels/gemm/gemm_float.h"
#include "kernels/gemm/gemm_fp8.h"
#include "kernels/gemm/gemm_integers_test_data.h"
#include "kernels/gemm/gemm_quant.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/packed_matrix_test.h"
#include "kernels/gemm/reordered_matrix.h"

namespace choral::kernels {
namespace {

constexpr int64_t kN = 21, kK = 256;

struct NamedMatrix {
  std::string name;
  std::unique_ptr<PackedMatrix> matrix;
};

std::vector<int32_t> reversed_k() {
  std::vector<int32_t> order(kK);
  for (int64_t i = 0; i < kK; ++i) order[static_cast<size_t>(i)] = static_cast<int32_t>(kK - 1 - i);
  return order;
}

// One of each kind and form.
std::vector<NamedMatrix> every_matrix() {
  ThreadPool pool(2);
  std::vector<NamedMatrix> all;
  const auto add = [&](std::string name, PackedResult packed) {
    all.push_back({std::move(name), packed_or_die(std::move(packed))});
  };
  const auto floats = gaussian(kN * kK, 3);
  const WeightRows rows{{reinterpret_cast<const std::byte*>(floats.data()), DType::kF32, Shape{kN, kK}, kCpuDevice}, {}};
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16})
    add(std::string(dtype_name(type)), pack_float({&rows, 1}, type, pool));
  for (const DType type : kQuantTypes) {
    const auto data = random_quant_matrix(type, kN, kK, 5);
    const WeightRows part{data.view(), {}};
    add(std::string(dtype_name(type)), pack_quantised({&part, 1}, pool, Planes::kTwo));
  }
  for (const int bits : {4, 8}) {
    for (const bool zeros : {false, true}) {
      for (const int64_t group : {0, 32, 96}) {
        const auto data =
            integer_matrix(kN, kK, {{.bits = bits, .group_size = group, .planes = Planes::kOne}, zeros}, IntegerFill::kRandom, 7);
        const IntegerPart part = data.part();
        add(fmt::format("int{} {} {}", bits, zeros, group), pack_integers({&part, 1}, data.kind.options, pool));
      }
    }
  }
  const auto codes =
      integer_matrix(kN, kK, {{.bits = 4, .group_size = 32, .codebook = Codebook::kE2M1}, false}, IntegerFill::kRandom, 9);
  const IntegerPart code_part = codes.part();
  add("e2m1", pack_integers({&code_part, 1}, codes.kind.options, pool));
  add("in another order", reorder_input(packed_or_die(pack_integers({&code_part, 1}, codes.kind.options, pool)), reversed_k()));
  for (const int64_t group : {0, 64}) {
    const auto data = int8_matrix(kN, kK, group, Int8Fill::kRandom, 11);
    const Int8Part part = data.part();
    add(fmt::format("dynamic int8 {}", group), pack_int8({&part, 1}, {.group_size = group}, pool));
    const RowQuant fixed{.fixed = StaticQuant{.scale = 0.25f, .offset = -3}};
    add(fmt::format("static int8 {}", group), pack_int8({&part, 1}, {.group_size = group, .input = fixed}, pool));
    std::vector<uint8_t> e4m3(kN * kK);
    for (size_t i = 0; i < e4m3.size(); ++i) e4m3[i] = static_cast<uint8_t>(i * 37 % 0x7F | (i % 3 == 0 ? 0x80 : 0));
    const std::vector<float> scales(static_cast<size_t>(kN * (group == 0 ? 1 : kK / group)), 0.125f);
    const Fp8Part fp8{{{reinterpret_cast<const std::byte*>(e4m3.data()), DType::kF8E4M3, Shape{kN, kK}, kCpuDevice}, {}}, scales};
    add(fmt::format("fp8 {}", group), pack_fp8({&fp8, 1}, group, pool));
  }
  return all;
}

TEST(KeptMatrixTest, IsTheSameMatrix) {
  const auto x = gaussian(9 * kK, 1);
  for (const auto& [name, matrix] : every_matrix()) {
    SCOPED_TRACE(name);
    const auto kept = matrix->kept();
    ASSERT_TRUE(kept);
    EXPECT_EQ(kept->panels.size() + kept->k_order.size_bytes(), static_cast<size_t>(matrix->size_bytes()));
    const auto again = packed_or_die(restore_matrix(*kept, nullptr));
    EXPECT_EQ(again->n(), matrix->n());
    EXPECT_EQ(again->k(), matrix->k());
    EXPECT_EQ(again->format(), matrix->format());
    EXPECT_EQ(again->size_bytes(), matrix->size_bytes());
    for (const CpuLevel level : usable_cpu_levels()) {
      EXPECT_EQ(again->kernel_name(level), matrix->kernel_name(level));
      EXPECT_EQ(again->quantised_input(level), matrix->quantised_input(level));
      for (const int64_t m : {1, 9}) EXPECT_TRUE(same_bits(multiply(*again, level, x, m), multiply(*matrix, level, x, m)));
    }
    std::vector<float> row(kK), other(kK);
    for (int64_t i = 0; i < kN; ++i) {
      ASSERT_TRUE(matrix->read_row(i, row).ok());
      ASSERT_TRUE(again->read_row(i, other).ok());
      EXPECT_TRUE(same_bits(row, other));
    }
  }
}

TEST(KeptMatrixTest, ItsOwnerLivesAsLong) {
  const auto all = every_matrix();
  const auto owner = std::make_shared<int>();
  {
    const auto again = packed_or_die(restore_matrix(*all.front().matrix->kept(), owner));
    EXPECT_EQ(owner.use_count(), 2);
  }
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(KeptMatrixTest, WhatNoMatrixIsIsRefused) {
  for (const auto& [name, matrix] : every_matrix()) {
    SCOPED_TRACE(name);
    const KeptMatrix good = *matrix->kept();
    const auto expect_refused = [&](auto change) {
      KeptMatrix bad = good;
      change(bad);
      EXPECT_FALSE(restore_matrix(bad, nullptr).ok());
    };
    expect_refused([](KeptMatrix& m) { m.n = 0; });
    expect_refused([](KeptMatrix& m) { m.k = -1; });
    expect_refused([](KeptMatrix& m) { m.n += 16; });
    expect_refused([](KeptMatrix& m) { m.k += 32; });
    expect_refused([](KeptMatrix& m) { m.n = INT64_MAX; });
    expect_refused([](KeptMatrix& m) { m.k = INT64_MAX - 64; });
    expect_refused([](KeptMatrix& m) { m.kind = static_cast<KeptMatrix::Kind>(4); });
    expect_refused([](KeptMatrix& m) { m.panels = m.panels.first(m.panels.size() - 64); });
    expect_refused([](KeptMatrix& m) { m.panels = {m.panels.data() + 1, m.panels.size()}; });
    const std::vector<int32_t> twice(kK, 1), few{0};
    expect_refused([&](KeptMatrix& m) { m.k_order = twice; });
    expect_refused([&](KeptMatrix& m) { m.k_order = few; });
    switch (good.kind) {
      case KeptMatrix::Kind::kFloat: expect_refused([](KeptMatrix& m) { m.dtype = static_cast<DType>(200); }); break;
      case KeptMatrix::Kind::kFp8:
        for (const int64_t group : {int64_t{-32}, int64_t{33}, INT64_MAX}) {
          expect_refused([&](KeptMatrix& m) { m.group_size = group; });
        }
        break;
      case KeptMatrix::Kind::kInt8:
        for (const int64_t group : {int64_t{-32}, int64_t{1}, INT64_MAX}) {
          expect_refused([&](KeptMatrix& m) { m.group_size = group; });
        }
        expect_refused([](KeptMatrix& m) { m.fixed_input = StaticQuant{.scale = 0, .offset = 1}; });
        expect_refused([](KeptMatrix& m) { m.fixed_input = StaticQuant{.scale = 1, .offset = 128}; });
        break;
      case KeptMatrix::Kind::kQuantised:
        expect_refused([](KeptMatrix& m) { m.form.bits = 7; });
        expect_refused([](KeptMatrix& m) { m.form.scales = static_cast<QuantScales>(99); });
        expect_refused([](KeptMatrix& m) { m.form.codes = static_cast<QuantCodes>(99); });
        expect_refused([](KeptMatrix& m) { m.form.blocks = 3; });
        expect_refused([](KeptMatrix& m) { m.planes = static_cast<Planes>(3); });
        break;
    }
  }
}

// Files hold these bytes. When this fails, packing was changed: raise kPackedLayout, and put the new digest here.
TEST(KeptMatrixTest, PackingIsWhatFilesOfThisLayoutHold) {
  Sha256 hash;
  for (const auto& [name, matrix] : every_matrix()) {
    const auto kept = matrix->kept();
    hash.update(kept->panels);
    hash.update(std::as_bytes(kept->k_order));
  }
  EXPECT_EQ(kPackedLayout, 1);
  EXPECT_EQ(to_hex(hash.finish()), "a0c0ea19bab0949682e3138a850de0290ad40f59c9cc833b8316aa107efcaacd");
}

}  // namespace
}  // namespace choral::kernels
