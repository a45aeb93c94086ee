// The 256-bit vpdpbusd kernels with AVX-512's encoding of the instruction, for CPUs that have that and not AVX-VNNI's: the same
// source and arithmetic as quant_avxvnni.cc. CPUs of AVX-VNNI run that in all tests that go through the levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kernels/gemm/gemm_quant_kernel.h"
#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_QUANT_TARGET __attribute__((target("avx2,fma,f16c,avx512vl,avx512vnni"), no_sanitize("undefined")))
#define CHORAL_DPBUSD _mm256_dpbusd_epi32

namespace choral::kernels {
namespace {

#include "kernels/x86/quant_avxvnni_inl.h"

constexpr int64_t kBlocks = 24;  // three chunks of a tile
constexpr int kPanels = kQuantPanelsAtOnce;
constexpr int64_t kMostRows = 14;  // tiles of five and six rows

AlignedBuffer zeroed(int64_t bytes) {
  AlignedBuffer buffer = *AlignedBuffer::allocate(bytes);
  std::memset(buffer.data(), 0, static_cast<size_t>(bytes));
  return buffer;
}

AlignedBuffer panels_of(DType type) {
  const QuantForm form = quant_form(type);
  const auto data = random_quant_matrix(type, kPanels * kQuantLanes, kBlocks * kQuantBlock, 1);
  AlignedBuffer panels = zeroed(kPanels * form.panel_bytes(kBlocks));
  for (int p = 0; p < kPanels; ++p) {
    std::array<const std::byte*, kQuantLanes> rows{};
    for (int lane = 0; lane < kQuantLanes; ++lane) rows.at(lane) = data.view().row(p * kQuantLanes + lane);
    pack_quant_panel(type, rows, kBlocks, panels.data() + p * form.panel_bytes(kBlocks));
  }
  return panels;
}

// Of a form with float scales: any integers, with one scale, and minimum, for each group.
AlignedBuffer panels_of(QuantForm form) {
  const auto any = random_quant_matrix(DType::kQ8_0, 1, 34 * 4096, 2).bytes;
  const auto scales = gaussian(2 * kQuantLanes, 3);
  AlignedBuffer panels = zeroed(kPanels * form.panel_bytes(kBlocks));
  const int64_t group = form.group_bytes();
  for (int64_t at = 0; at < kPanels * form.panel_bytes(kBlocks); at += group) {
    std::memcpy(panels.data() + at, any.data() + at % 1000, static_cast<size_t>(group));
    std::memcpy(panels.data() + at, scales.data(), static_cast<size_t>(form.header_bytes()));
  }
  return panels;
}

std::vector<QuantisedBlock> rows_for(const QuantKernel& kernel, QuantForm form) {
  auto x = gaussian(kMostRows * kBlocks * kQuantBlock, 4);
  std::fill_n(x.begin(), kBlocks * kQuantBlock, 1.0f);  // 127 everywhere, and -127
  std::fill_n(x.begin() + kBlocks * kQuantBlock, kBlocks * kQuantBlock, -1.0f);
  std::vector<QuantisedBlock> out(static_cast<size_t>(kMostRows * kBlocks));
  quantise_planes(CpuLevel::kBase, {x.data(), kMostRows, kBlocks * kQuantBlock},
                  {.zero = kernel.zero, .halves = form.sub_blocks() == 2, .planes = Planes::kOne}, out.data());
  return out;
}

void expect_bits_of_the_oracle(QuantForm form, const AlignedBuffer& panels, const std::string& of) {
  const QuantKernel kernel = choose_kernel(form), base = quant_kernel_base(form);
  const auto x = rows_for(kernel, form), base_x = rows_for(base, form);
  AlignedBuffer out = zeroed(kMostRows * kQuantTileColumns * 4), work = zeroed(kQuantWorkBytes);
  std::vector<float> expected(kMostRows * kQuantTileColumns);
  QuantKernelArgs args{form,    panels.data(), form.panel_bytes(kBlocks), kPanels,    base_x.data(),
                       kBlocks, kMostRows,     expected.data(),           work.data()};
  base.tiled(args);
  args.x = x.data();
  args.out = reinterpret_cast<float*>(out.data());
  const auto run = [&](void (*product)(const QuantKernelArgs&), int64_t rows, int panel_count) {
    std::fill_n(args.out, kMostRows * kQuantTileColumns, -7.0f);
    args.rows = rows;
    args.panel_count = panel_count;
    product(args);
    const size_t bytes = static_cast<size_t>(panel_count) * kQuantLanes * sizeof(float);
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_EQ(std::memcmp(args.out + row * kQuantTileColumns, expected.data() + row * kQuantTileColumns, bytes), 0)
          << of << ", row " << row << " of " << rows << ", " << panel_count << " panels";
    }
  };
  for (int panel_count = 1; panel_count <= kPanels; ++panel_count) {
    for (int64_t rows = 1; rows <= kQuantDirectRows; ++rows) run(kernel.direct, rows, panel_count);
    for (int64_t rows = 1; rows <= kMostRows; ++rows) run(kernel.tiled, rows, panel_count);
  }
}

TEST(QuantAvxVnni, BitsEqualTheOracle) {
  if (!machine_has(CpuLevel::kVnni)) GTEST_SKIP() << "this CPU has no encoding of vpdpbusd that this test is compiled for";
  for (const DType type : kQuantTypes)
    expect_bits_of_the_oracle(quant_form(type), panels_of(type), std::string(dtype_name(type)));
  for (QuantForm form : kQuantForms) {
    if (!form.has_float_scales()) continue;
    for (const int blocks : {1, 2, 4, 8}) {
      form.blocks = blocks;
      expect_bits_of_the_oracle(form, panels_of(form), fmt::format("{} bits, groups of {} blocks", form.bits, blocks));
    }
  }
}

}  // namespace
}  // namespace choral::kernels
