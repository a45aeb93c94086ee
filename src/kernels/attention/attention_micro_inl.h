// Register tiles of attention for one Highway target: R query rows × some vectors of 32 keys (q·Kᵀ) or of the value's head_dim
// (p·V). Every output element is one FMA chain over d or over keys in ascending order, whatever R: a row does not know its tile
// (invariant 1). Included once per target by attention_tile.cc.
#if defined(CHORAL_ATTENTION_MICRO_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CHORAL_ATTENTION_MICRO_INL
#undef CHORAL_ATTENTION_MICRO_INL
#else
#define CHORAL_ATTENTION_MICRO_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/float16.h"
#include "kernels/activation/activation_math_inl.h"
#include "kernels/attention/kv_cache.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = hn::MaxLanes(F32());
constexpr size_t kBlock = kKvBlockTokens;
// Rows of the largest register tile, two vectors wide: 24 of 32 registers, 12 of 16, 8 of 16 (no FMA: a product needs one too).
// And of one a single vector wide, which goes through a block once for twice as many rows: for wide keys, of which a block is
// more than L1 holds.
#if HWY_TARGET == HWY_AVX3
constexpr size_t kMaxRegisterRows = 12, kTallRows = 16;
#elif HWY_TARGET == HWY_AVX2
constexpr size_t kMaxRegisterRows = 6, kTallRows = 12;
#else
constexpr size_t kMaxRegisterRows = 4, kTallRows = 8;
#endif
// Vectors side by side of a tile of so many rows: few leave registers for enough independent chains to cover an FMA's latency.
constexpr size_t vectors_of(size_t rows) { return rows > kMaxRegisterRows ? 1 : rows * 4 <= 2 * kMaxRegisterRows ? 4 : 2; }

HWY_INLINE VF load_as_float(const float* p) { return hn::LoadU(F32(), p); }

HWY_INLINE VF load_as_float(const BFloat16* p) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint16_t, F32> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)))));
}

HWY_INLINE VF load_as_float(const Float16* p) {
  const F32 d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const hn::Rebind<hwy::float16_t, F32> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#else
  const hn::RebindToUnsigned<F32> du;
  const hn::Rebind<uint16_t, F32> d16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(p)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  // Read with float's bias the exponent is 112 too small, subnormals included; infinities and NaN then need the full exponent.
  const VF scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto special = hn::RebindMask(d, hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7BFF)));
  const VF full_exponent = hn::BitCast(d, hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7F800000u)));
  const VF sign = hn::BitCast(d, hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u))));
  return hn::Or(hn::IfThenElse(special, full_exponent, scaled), sign);
#endif
}

HWY_INLINE VF load_as_float(const int8_t* p) {
  const hn::Rebind<int8_t, F32> d8;
  return hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(d8, p)));
}

// acc[r][v] += a[r · a_stride] · b[v], row r's vector v at acc[r · NV + v]. What there is less of, rows or vectors, is kept in
// registers and the rest taken one by one: the 12 accumulators of 3 rows leave 4 of AVX2's 16.
template <size_t R, size_t NV, class T, size_t... I>
HWY_INLINE void outer_product(std::index_sequence<I...>, VF (&acc)[R * NV], const float* a, size_t a_stride, const T* b) {
  const F32 d;
  VF one;
  if constexpr (R < NV) {
    VF rows[R];
    ((I < R ? void(rows[I % R] = hn::Set(d, a[I % R * a_stride])) : void()), ...);
    ((I % R == 0 ? void(one = load_as_float(b + I / R * kLanes)) : void(),
      acc[I % R * NV + I / R] = hn::MulAdd(rows[I % R], one, acc[I % R * NV + I / R])),
     ...);
  } else {
    VF vectors[NV];
    ((I < NV ? void(vectors[I % NV] = load_as_float(b + I % NV * kLanes)) : void()), ...);
    ((I % NV == 0 ? void(one = hn::Set(d, a[I / NV * a_stride])) : void(), acc[I] = hn::MulAdd(one, vectors[I % NV], acc[I])),
     ...);
  }
}

template <size_t RNV, size_t... I>
HWY_INLINE void set_zero(std::index_sequence<I...>, VF (&acc)[RNV]) {
  ((acc[I] = hn::Zero(F32())), ...);
}

template <size_t NV, size_t RNV, size_t... I>
HWY_INLINE void store_tile(std::index_sequence<I...>, const VF (&acc)[RNV], float* p, size_t stride) {
  (hn::StoreU(acc[I], F32(), p + I / NV * stride + I % NV * kLanes), ...);
}

template <size_t NV, size_t RNV, size_t... I>
HWY_INLINE void load_scaled_tile(std::index_sequence<I...>, VF (&acc)[RNV], const float* p, size_t stride, const float* factor) {
  const F32 d;
  ((acc[I] = hn::Mul(hn::LoadU(d, p + I / NV * stride + I % NV * kLanes), hn::Set(d, factor[I / NV]))), ...);
}

// Memory that is asked for on the way through a tile, evenly over its steps: a burst would wait for the few misses that a core
// can have open. It comes to L2, which has more of them than L1.
class Ahead {
 public:
  Ahead() = default;
  Ahead(const void* data, size_t size_bytes) : next_(static_cast<const std::byte*>(data)), end_(next_ + size_bytes) {}

  // Before a tile of so many steps.
  HWY_INLINE void spread(size_t steps) {
    const size_t lines = (end_ - next_ + kLine - 1) / kLine, runs = (steps + 1) / 2;
    if (lines == 0) return;
    run_ = 2;
    run_bytes_ = kLine * ((lines + runs - 1) / runs);
  }
  // Asks for the next part and gives the number of steps after which to ask again.
  HWY_INLINE size_t ask() {
    const std::byte* const until = std::min(end_, next_ + run_bytes_);
    for (; next_ < until; next_ += kLine) __builtin_prefetch(next_, 0, 2);
    return run_;
  }

 private:
  static constexpr size_t kLine = 64;
  const std::byte *next_ = nullptr, *end_ = nullptr;
  size_t run_bytes_ = 0, run_ = std::numeric_limits<size_t>::max() / 2;
};

// Calls step(i) for each i of [begin, end).
template <class Step>
HWY_INLINE void for_steps(size_t begin, size_t end, Ahead& ahead, const Step& step) {
  for (size_t i = begin; i < end;) {
    for (const size_t run_end = std::min(end, i + ahead.ask()); i < run_end; ++i) step(i);
  }
}

// scores[R][32] = q·Kᵀ; q is packed [head_dim][R], k is [head_dim][32].
template <size_t R, class T>
void score_tile(const float* q, const T* k, size_t head_dim, Ahead ahead, float* scores) {
  constexpr size_t NV = std::min(vectors_of(R), kBlock / kLanes);
  constexpr auto kTile = std::make_index_sequence<R * NV>();
  ahead.spread(head_dim * (kBlock / (NV * kLanes)));
  for (size_t col = 0; col < kBlock; col += NV * kLanes) {
    VF acc[R * NV];
    set_zero(kTile, acc);
    for_steps(0, head_dim, ahead,
              [&](size_t i) HWY_ATTR { outer_product<R, NV>(kTile, acc, q + i * R, 1, k + i * kBlock + col); });
    store_tile<NV>(kTile, acc, scores + col, kBlock);
  }
}

// A block's values: `v_stride` of each key, the keys `row` apart.
template <class T>
struct ValueBlock {
  const T* data;
  size_t row, v_stride;
};

// acc[R][v_stride] = acc · correction + p·V over keys [begin, end) of the block; p [R][32], v [32][row].
template <size_t R, size_t NV, class T>
HWY_INLINE void value_columns(const float* p, const T* v, size_t row, size_t v_stride, size_t begin, size_t end,
                              const float* correction, Ahead& ahead, float* acc) {
  constexpr auto kTile = std::make_index_sequence<R * NV>();
  VF sum[R * NV];
  load_scaled_tile<NV>(kTile, sum, acc, v_stride, correction);
  for_steps(begin, end, ahead, [&](size_t j) HWY_ATTR { outer_product<R, NV>(kTile, sum, p + j, kBlock, v + j * row); });
  store_tile<NV>(kTile, sum, acc, v_stride);
}

template <size_t R, class T>
void value_tile(const float* p, const ValueBlock<T>& block, size_t begin, size_t end, const float* correction, Ahead ahead,
                float* acc) {
  const auto [v, row, v_stride] = block;
  constexpr size_t NV = vectors_of(R);
  ahead.spread((end - begin) * ceil_div(v_stride, NV * kLanes));
  size_t col = 0;
  for (; col + NV * kLanes <= v_stride; col += NV * kLanes) {
    value_columns<R, NV>(p, v + col, row, v_stride, begin, end, correction, ahead, acc + col);
  }
  for (; col < v_stride; col += kLanes) value_columns<R, 1>(p, v + col, row, v_stride, begin, end, correction, ahead, acc + col);
}

template <class T>
using ScoreTile = void (*)(const float*, const T*, size_t, Ahead, float*);
template <class T>
using ValueTile = void (*)(const float*, const ValueBlock<T>&, size_t, size_t, const float*, Ahead, float*);

template <class T, size_t... I>
constexpr std::array<ScoreTile<T>, sizeof...(I)> score_tiles(std::index_sequence<I...>) {
  return {&score_tile<I + 1, T>...};
}
template <class T, size_t... I>
constexpr std::array<ValueTile<T>, sizeof...(I)> value_tiles(std::index_sequence<I...>) {
  return {&value_tile<I + 1, T>...};
}
// Entry R − 1 is the tile of R rows.
template <class T>
constexpr auto kScoreTiles = score_tiles<T>(std::make_index_sequence<kTallRows>());
template <class T>
constexpr auto kValueTiles = value_tiles<T>(std::make_index_sequence<kTallRows>());

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
