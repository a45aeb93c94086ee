// The 256-bit vpdpbusd kernels with AVX-512's encoding of the instruction, for CPUs that have that and not AVX-VNNI's: the same
// source and arithmetic as int8_avxvnni.cc. CPUs of AVX-VNNI run that in all tests that go through the levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/gemm/gemm_quant_test_data.h"
#include "kernels/gemm/int8/gemm_int8_test_data.h"
#include "kernels/gemm/int8/int8_kernels.h"
#include "kernels/gemm/int8/int8_panels.h"
#include "kernels/x86/intrinsics.h"

#define CHORAL_INT8_TARGET __attribute__((target("avx2,fma,avx512vl,avx512vnni"), no_sanitize("undefined")))
#define CHORAL_DPBUSD _mm256_dpbusd_epi32

namespace choral::kernels {
namespace {

#include "kernels/x86/int8_avxvnni_inl.h"

constexpr int64_t kSteps = 19, kGroups = 3, kStride = 4 * kInt8Lanes;

// One call of a micro-kernel over panels of weights as they are stored, and what it leaves.
struct Product {
  std::vector<float> out;
  std::vector<int32_t> sums;
  bool operator==(const Product&) const = default;
};

Product run(const Int8Kernels& kernels, const Int8Form& form, int rows, int panels, bool cut, Int8Fill fill) {
  const int64_t k = kSteps * kInt8Step * kGroups;
  const auto w = int8_values(panels * form.panel_bytes(), fill, 1);
  AlignedBuffer stored = *AlignedBuffer::allocate(std::ssize(w));
  std::memcpy(stored.data(), w.data(), w.size());
  const auto scales = gaussian(kInt8Lanes * kGroups * panels, 2);
  for (int64_t i = 0; i < panels * kGroups; ++i) {
    std::memcpy(stored.data() + i / kGroups * form.panel_bytes() + i % kGroups * form.group_bytes(),
                scales.data() + i * kInt8Lanes, 64);
  }
  const auto x = int8_values(rows * k, fill == Int8Fill::kLargest ? Int8Fill::kLeast : fill, 3);
  std::vector<int32_t> starts(static_cast<size_t>(rows * kGroups));
  for (size_t i = 0; i < starts.size(); ++i) starts[i] = static_cast<int32_t>(1000 * i) - 7000;
  const auto row_scales = gaussian(rows, 4);
  AlignedBuffer out = *AlignedBuffer::allocate(rows * kStride * 4), sums = *AlignedBuffer::allocate(rows * kStride * 4);
  for (int64_t i = 0; i < rows * kStride; ++i) {
    reinterpret_cast<float*>(out.data())[i] = 0.5f * static_cast<float>(i);
    reinterpret_cast<int32_t*>(sums.data())[i] = static_cast<int32_t>(3 * i) - 50;
  }
  Int8Args args{};
  args.rows = rows;
  args.panels = panels;
  args.panel_bytes = form.panel_bytes();
  args.group_bytes = form.group_bytes();
  args.header = stored.data();
  args.weights = stored.data() + form.header_bytes();
  args.corrected = form.corrected;
  args.groups = cut ? 1 : kGroups;
  args.steps = kSteps;
  args.x = reinterpret_cast<const std::byte*>(x.data());
  args.x_row_bytes = k;
  args.starts = starts.data();
  args.starts_stride = kGroups;
  args.row_scales = cut ? nullptr : row_scales.data();
  args.resume = cut;
  args.complete = !cut;
  args.first = !cut;
  args.sums = reinterpret_cast<int32_t*>(sums.data());
  args.out = reinterpret_cast<float*>(out.data());
  args.stride = kStride;
  args.ahead = stored.data();
  args.lines = kSteps;
  args.jump_at = 3;
  args.jump = 64;
  kernels.micro(rows, panels)(args);
  Product product{{args.out, args.out + rows * kStride}, {}};
  if (cut) product.sums = {args.sums, args.sums + rows * kStride};
  return product;
}

TEST(Int8AvxVnni, BitsEqualThoseOfLevelVnni) {
  if (!machine_has(CpuLevel::kVnni)) GTEST_SKIP() << "this CPU has no encoding of vpdpbusd that this test is compiled for";
  const Int8Kernels& vnni = x86::vnni_int8_kernels();
  ASSERT_EQ(kKernels.widened, vnni.widened);
  for (int rows = 1; rows <= kKernels.direct_rows; ++rows) {
    for (int panels = 1; panels <= kKernels.panels_for(rows); panels *= 2) {
      for (const bool corrected : {false, true}) {
        const Int8Form form{kSteps * kInt8Step * kGroups, kSteps * kInt8Step, corrected};
        for (const bool cut : {false, true}) {
          for (const Int8Fill fill : kInt8Fills) {
            ASSERT_EQ(run(kKernels, form, rows, panels, cut, fill), run(vnni, form, rows, panels, cut, fill))
                << rows << " rows, " << panels << " panels, corrected " << corrected << ", cut " << cut << ", fill "
                << static_cast<int>(fill);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
