// Blocks of the cache as floats, for one Highway target: converted once where several register tiles read them, and turned where
// values lie in the keys. Included once per target by attention_tile.cc.
#if defined(CHORAL_KV_BLOCK_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_KV_BLOCK_INL
#undef CHORAL_KV_BLOCK_INL
#else
#define CHORAL_KV_BLOCK_INL
#endif

#include "kernels/attention/attention_micro_inl.h"
#include "kernels/attention/attention_tile.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void widen(const T* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; i += kLanes) hn::Store(load_as_float(from + i), F32(), to + i);
}

// Keys [head_dim][32] that hold their values, whose scales differ from those of the rest: as floats, since one score is not one
// product with a scale.
void widen_latent(const KvHeadBlock<int8_t>& head, int64_t v_head_dim, int64_t head_dim, float* to) {
  const F32 d;
  for (int64_t i = 0; i < head_dim; ++i) {
    const float* scales = i < v_head_dim ? head.value_scales : head.key_scales;
    for (size_t j = 0; j < kBlock; j += kLanes) {
      hn::Store(hn::Mul(load_as_float(head.keys + i * kBlock + j), hn::LoadU(d, scales + j)), d, to + i * kBlock + j);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
void transpose_square(const float* from, float* to, int64_t) { *to = *from; }
#else
// A square of as many rows of 32 as a vector has lanes, to rows of `stride`.
void transpose_square(const float* from, float* to, int64_t stride) {
  const F32 d;
  constexpr size_t kGroups = kLanes / 4;
  VF group[kGroups][4];  // [g][i]: of each run of four columns its i-th, rows 4g to 4g + 3
  for (size_t g = 0; g < kGroups; ++g) {
    const float* rows = from + 4 * g * kBlock;
    const hn::Repartition<uint64_t, F32> d64;
    const auto pair = [&](auto interleave, size_t r) HWY_ATTR {
      return hn::BitCast(d64, interleave(hn::LoadU(d, rows + r * kBlock), hn::LoadU(d, rows + (r + 1) * kBlock)));
    };
    const auto lower = [&](VF a, VF b) HWY_ATTR { return hn::InterleaveLower(d, a, b); };
    const auto upper = [&](VF a, VF b) HWY_ATTR { return hn::InterleaveUpper(d, a, b); };
    const auto low01 = pair(lower, 0), high01 = pair(upper, 0), low23 = pair(lower, 2), high23 = pair(upper, 2);
    group[g][0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
    group[g][1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
    group[g][2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
    group[g][3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
  }
  for (size_t i = 0; i < 4; ++i) {
    const auto put = [&](VF v, size_t run) HWY_ATTR { hn::StoreU(v, d, to + (4 * run + i) * stride); };
#if HWY_TARGET <= HWY_AVX3
    const VF a = group[0][i], b = group[1][i], c = group[2][i], e = group[3][i];
    const VF even_ab = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a), odd_ab = hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a));
    const VF even_ce = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(e), c), odd_ce = hn::OddEvenBlocks(e, hn::SwapAdjacentBlocks(c));
    put(hn::ConcatLowerLower(d, even_ce, even_ab), 0);
    put(hn::ConcatLowerLower(d, odd_ce, odd_ab), 1);
    put(hn::ConcatUpperUpper(d, even_ce, even_ab), 2);
    put(hn::ConcatUpperUpper(d, odd_ce, odd_ab), 3);
#elif HWY_TARGET <= HWY_AVX2
    put(hn::ConcatLowerLower(d, group[1][i], group[0][i]), 0);
    put(hn::ConcatUpperUpper(d, group[1][i], group[0][i]), 1);
#else
    put(group[0][i], 0);
#endif
  }
}
#endif

// Values that lie in the keys [head_dim][32], as attend_block() reads them: [32][turned_value_stride()], zero beyond v_head_dim.
ValueBlock<float> turn_values(const float* keys, int64_t v_head_dim, float* values) {
  const int64_t v_stride = kv_value_stride(v_head_dim), stride = turned_value_stride(v_head_dim);
  int64_t row = 0;
  for (; row + static_cast<int64_t>(kLanes) <= v_head_dim; row += kLanes) {
    for (size_t col = 0; col < kBlock; col += kLanes) {
      transpose_square(keys + row * kBlock + col, values + col * stride + row, stride);
    }
  }
  for (; row < v_stride; ++row) {
    for (size_t col = 0; col < kBlock; ++col) values[col * stride + row] = row < v_head_dim ? keys[row * kBlock + col] : 0.0f;
  }
  return {values, static_cast<size_t>(stride), static_cast<size_t>(v_stride)};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
