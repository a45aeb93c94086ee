#include "kernels/gemm/int8/int8_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/int8/int8_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Copies `count` integers to `out` and gives their sum.
template <class T>
int32_t copy_and_sum(const int8_t* q, int64_t count, T* out) {
  int64_t i = 0, sum = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<int8_t, 32> d;
  const hn::Repartition<uint8_t, decltype(d)> d_unsigned;
  const hn::Repartition<uint64_t, decltype(d)> d_sums;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d_sums);
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, q + i);
    // One instruction adds unsigned bytes: those of q + 128.
    sums = hn::Add(sums, hn::SumsOf8(hn::BitCast(d_unsigned, hn::Xor(v, hn::Set(d, int8_t{-128})))));
    if constexpr (sizeof(T) == 1) {
      hn::StoreU(v, d, out + i);
    } else {
      const hn::Half<decltype(d)> half;
      const hn::Repartition<int16_t, decltype(d)> wide;
      hn::StoreU(hn::PromoteTo(wide, hn::LowerHalf(half, v)), wide, out + i);
      hn::StoreU(hn::PromoteTo(wide, hn::UpperHalf(half, v)), wide, out + i + lanes / 2);
    }
  }
  sum = static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(d_sums, sums))) - 128 * i;
#endif
  for (; i < count; ++i) {
    out[i] = q[i];
    sum += q[i];
  }
  return static_cast<int32_t>(sum);
}

template <class T>
void pack_row(const Int8Rows& to, const Int8Form& form, const int8_t* q, int64_t row) {
  const auto place = [&](int64_t k) { return reinterpret_cast<T*>(const_cast<std::byte*>(to.at(row, k))); };
  int32_t* starts = const_cast<int32_t*>(to.starts) + row * to.groups;
  const int64_t piece = std::min(form.group, to.block_k);
  for (int64_t g = 0; g < to.groups; ++g) starts[g] = 0;
  for (int64_t k0 = 0; k0 < form.k; k0 += piece) {
    const int64_t count = std::min(piece, form.k - k0);
    starts[k0 / form.group] -= kInt8Zero * copy_and_sum(q + k0, count, place(k0));
  }
  for (int64_t k = form.k; k < to.k; ++k) *place(k) = 0;
}

void pack_bytes(const Int8Rows& to, const Int8Form& form, const int8_t* q, int64_t row) { pack_row<int8_t>(to, form, q, row); }
void pack_words(const Int8Rows& to, const Int8Form& form, const int8_t* q, int64_t row) { pack_row<int16_t>(to, form, q, row); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {

Int8Rows make_int8_rows(Arena& scratch, const Int8Form& form, int64_t rows, std::span<const float> scales, int64_t block_k,
                        bool widened) {
  const int64_t padded = round_up(form.k, kInt8Step), groups = form.groups(), bytes = widened ? 2 : 1;
  return {scratch.make<std::byte>(static_cast<size_t>(rows * padded * bytes)).data(),
          scratch.make<int32_t>(static_cast<size_t>(rows * groups)).data(),
          scales.data(),
          rows,
          padded,
          std::min(block_k, padded),
          groups,
          bytes};
}

void pack_int8_rows(CpuLevel level, const Int8Form& form, MatrixView<const int8_t> q, int64_t begin, int64_t end,
                    const Int8Rows& rows) {
  const auto pack = rows.element_bytes == 2 ? CHORAL_AT_LEVEL(level, pack_words) : CHORAL_AT_LEVEL(level, pack_bytes);
  for (int64_t i = begin; i < end; ++i) pack(rows, form, q.row(i), i);
}

}  // namespace choral::kernels
#endif  // HWY_ONCE
