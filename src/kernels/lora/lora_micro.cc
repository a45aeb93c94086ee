#include "kernels/lora/lora_micro.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lora/lora_micro.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/lora/lora_store_inl.h"

// Not where 16 lanes are 16 scalars, nor where sanitizers grow every access: the code would take minutes to compile.
#undef CHORAL_UNROLL
#if HWY_TARGET == HWY_SCALAR || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHORAL_UNROLL
#else
#define CHORAL_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int kLanes = static_cast<int>(HWY_MIN(hn::MaxLanes(F32()), 16));
constexpr int kParts = static_cast<int>(kLoRAColumns) / kLanes;  // vectors of 16 floats
constexpr int kExpandVectors = HWY_TARGET <= HWY_AVX3 ? 16 : 8;  // accumulators, of 32 and 16 registers

// Asks for kBytes at p; harmless where there is nothing.
template <int64_t kBytes>
HWY_INLINE void fetch(const std::byte* p) {
  for (int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i);
}

// One chunk of 32 k: every chain takes first[o], second[o] for o = 0, kLanes, …
template <class Store, int R, int P>
HWY_INLINE void shrink_step(VF (&acc)[R][P], const std::byte* a, int64_t rank_bytes, const float* const (&x)[R], int64_t k) {
  const F32 d;
  for (int o = 0; o < 16; o += kLanes) {
    VF row[R];
    CHORAL_UNROLL
    for (int r = 0; r < R; ++r) row[r] = hn::LoadU(d, x[r] + k + o);
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) {
      const VF w = Store::first(a + p * rank_bytes, o);
      CHORAL_UNROLL
      for (int r = 0; r < R; ++r) acc[r][p] = hn::MulAdd(row[r], w, acc[r][p]);
    }
    CHORAL_UNROLL
    for (int r = 0; r < R; ++r) row[r] = hn::LoadU(d, x[r] + k + 16 + o);
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) {
      const VF w = Store::second(a + p * rank_bytes, o);
      CHORAL_UNROLL
      for (int r = 0; r < R; ++r) acc[r][p] = hn::MulAdd(row[r], w, acc[r][p]);
    }
  }
}

template <class Store, int R, int P>
void shrink(const ShrinkArgs& args) {
  const F32 d;
  VF acc[R][P];
  const float* x[R];
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    x[r] = args.x[r];
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) acc[r][p] = hn::Zero(d);
  }
  const std::byte* a = args.a;
  const int64_t rank_bytes = args.rank_bytes, chunk_bytes = args.chunk_bytes, ahead = args.ahead;
  for (int64_t k = 0; k < args.chunks * kLoRAChunk; k += kLoRAChunk, a += chunk_bytes) {
    CHORAL_UNROLL
    for (int p = 0; p < P; ++p) fetch<choral::kernels::chunk_bytes(Store::kStore)>(a + p * rank_bytes + ahead);
    shrink_step<Store, R, P>(acc, a, rank_bytes, x, k);
  }
  if (args.a_tail != nullptr) {
    CHORAL_UNROLL
    for (int r = 0; r < R; ++r) x[r] = args.x_tail[r];
    shrink_step<Store, R, P>(acc, args.a_tail, args.a_tail_rank_bytes, x, 0);
  }
  const VF zero = hn::Zero(d);
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    float* out = args.out + r * args.out_stride;
    CHORAL_UNROLL
    for (int p = 0; p < P; p += 4) {
      const int p1 = p + 1 < P ? p + 1 : p, p2 = p + 2 < P ? p + 2 : p, p3 = p + 3 < P ? p + 3 : p;
      float some[4];
      sum_four(acc[r][p], p1 != p ? acc[r][p1] : zero, p2 != p ? acc[r][p2] : zero, p3 != p ? acc[r][p3] : zero, args.scale + p,
               p + 4 <= P ? out + p : some);
      if (p + 4 > P) {
        for (int i = 0; p + i < P; ++i) out[p + i] = some[i];
      }
    }
  }
}

// N panels at once, so that each of middle's values is fetched for several vectors.
template <class Store, int R, int N>
HWY_INLINE void expand_panels(const ExpandArgs& args, const float* const (&middle)[R], float* const (&y)[R], int64_t ahead,
                              int64_t p) {
  const F32 d;
  constexpr int64_t kPairBytes = 2 * kLoRAColumns * value_bytes(Store::kStore);
  constexpr int kVectors = N * kParts;
  constexpr bool kBlockScales = Store::kStore == LoRAStore::kQ8;
  using Values = PanelValues<Store>;
  const int64_t panel_stride = args.panel_bytes;
  const std::byte* panel = args.b + p * panel_stride;
  const std::byte* b = Store::kStore == LoRAStore::kI8 ? panel + kLoRAColumns * sizeof(float) : panel;
  VF acc[R][kVectors], w[kVectors], block_scale[kBlockScales ? kVectors : 1];
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::Zero(d);
  }
  if constexpr (kBlockScales) {
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) block_scale[v] = hn::Zero(d);  // the first chunk brings them
  }
  const auto multiply_add = [&](int64_t j) HWY_ATTR {
    CHORAL_UNROLL
    for (int r = 0; r < R; ++r) {
      const VF m = hn::Set(d, middle[r][j]);
      CHORAL_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(m, w[v], acc[r][v]);
    }
  };
  int64_t j = 0;
  for (; j + 2 <= args.rank; j += 2, b += kPairBytes) {
    CHORAL_UNROLL
    for (int n = 0; n < N; ++n) fetch<kPairBytes>(b + ahead + n * panel_stride);
    if constexpr (kBlockScales) {
      if (j % kLoRAChunk == 0) {
        CHORAL_UNROLL
        for (int v = 0; v < kVectors; ++v) block_scale[v] = StoreF32::first(b + v / kParts * panel_stride, v % kParts * kLanes);
        b += kLoRAColumns * sizeof(float);
      }
    }
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      w[v] = Values::first(b + v / kParts * panel_stride, v % kParts * kLanes);
      if constexpr (kBlockScales) w[v] = hn::Mul(w[v], block_scale[v]);
    }
    multiply_add(j);
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      w[v] = Values::second(b + v / kParts * panel_stride, v % kParts * kLanes);
      if constexpr (kBlockScales) w[v] = hn::Mul(w[v], block_scale[v]);
    }
    multiply_add(j + 1);
  }
  if (j < args.rank) {
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) w[v] = Values::single(b + v / kParts * panel_stride, v % kParts * kLanes);
    multiply_add(j);
  }
  // Every load before the first store: rows often lie a multiple of 4096 bytes apart, and a load waits for a store there.
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (Store::kStore == LoRAStore::kI8) {
        acc[r][v] = hn::Mul(acc[r][v], StoreF32::first(panel + v / kParts * panel_stride, v % kParts * kLanes));
      }
      if (args.accumulate) acc[r][v] = hn::Add(hn::LoadU(d, y[r] + p * kLoRAColumns + v * kLanes), acc[r][v]);
    }
  }
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, y[r] + p * kLoRAColumns + v * kLanes);
  }
}

template <class Store, int R>
void expand(const ExpandArgs& args) {
  constexpr int kAtOnce = std::max(1, std::min(4, kExpandVectors / (R * kParts)));  // panels
  const float* middle[R];
  float* y[R];
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    middle[r] = args.middle + r * args.middle_stride;
    y[r] = args.y[r];
  }
  int64_t ahead = kAtOnce * args.panel_bytes;
  while (ahead < kLoRAAheadBytes) ahead *= 2;
  int64_t p = 0;
  for (; p + kAtOnce <= args.panels; p += kAtOnce) expand_panels<Store, R, kAtOnce>(args, middle, y, ahead, p);
  for (; p < args.panels; ++p) expand_panels<Store, R, 1>(args, middle, y, ahead, p);
}

// Four ranks at once, each one chain over the panels, its lanes summed as shrink's are.
template <class Store>
void shrink_by_b(const ShrinkByBArgs& args) {
  const F32 d;
  using Values = PanelValues<Store>;
  constexpr bool kBlockScales = Store::kStore == LoRAStore::kQ8, kScaled = kBlockScales || Store::kStore == LoRAStore::kI8;
  constexpr int64_t kRowBytes = kLoRAColumns * value_bytes(Store::kStore), kScaleBytes = kLoRAColumns * sizeof(float);
  constexpr int64_t kBlockBytes = kScaleBytes + kLoRAChunk * kRowBytes;
  alignas(64) static constexpr float kOnes[4] = {1, 1, 1, 1};
  for (int64_t j = 0; j < args.rank; j += 4) {
    const int64_t ranks = std::min<int64_t>(4, args.rank - j);
    VF acc[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int64_t p = 0; p < args.panels; ++p) {
      const std::byte* block = args.b + p * args.panel_bytes + (kBlockScales ? j / kLoRAChunk * kBlockBytes : 0);
      const std::byte* row = block + (kScaled ? kScaleBytes : 0) + (kBlockScales ? j % kLoRAChunk : j) * kRowBytes;
      for (int o = 0; o < 16; o += kLanes) {
        VF x = hn::LoadU(d, args.x + p * kLoRAColumns + o);
        if constexpr (kScaled) x = hn::Mul(x, StoreF32::first(block, o));
        if (ranks == 1) {
          acc[0] = hn::MulAdd(x, Values::single(row, o), acc[0]);
          continue;
        }
        acc[0] = hn::MulAdd(x, Values::first(row, o), acc[0]);
        acc[1] = hn::MulAdd(x, Values::second(row, o), acc[1]);
        if (ranks == 2) continue;
        const std::byte* next = row + 2 * kRowBytes;
        if (ranks == 3) {
          acc[2] = hn::MulAdd(x, Values::single(next, o), acc[2]);
          continue;
        }
        acc[2] = hn::MulAdd(x, Values::first(next, o), acc[2]);
        acc[3] = hn::MulAdd(x, Values::second(next, o), acc[3]);
      }
    }
    float sums[4];
    sum_four(acc[0], acc[1], acc[2], acc[3], kOnes, sums);
    for (int64_t i = 0; i < ranks; ++i) args.out[j + i] += sums[i];
  }
}

template <class Store>
void expand_by_a(const ExpandByAArgs& args) {
  const F32 d;
  constexpr int kVectors = static_cast<int>(kLoRAChunk) / kLanes, kHalf = kVectors / 2;
  constexpr int64_t kBytes = chunk_bytes(Store::kStore);
  for (int64_t c = 0; c < args.chunks; ++c) {
    float* y = args.y + c * kLoRAChunk;
    VF acc[kVectors];
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) acc[v] = hn::LoadU(d, y + v * kLanes);
    const std::byte* group = args.a;
    for (int64_t g = 0; g < args.rank; g += kLoRAGroup) {
      const int64_t ranks = std::min(kLoRAGroup, args.rank - g);
      const std::byte* a = group + (args.first + c) * ranks * kBytes;
      for (int64_t q = 0; q < ranks; ++q, a += kBytes) {
        const VF m = hn::Set(d, args.middle[g + q]);
        CHORAL_UNROLL
        for (int v = 0; v < kHalf; ++v) {
          acc[v] = hn::MulAdd(m, Store::first(a, v * kLanes), acc[v]);
          acc[kHalf + v] = hn::MulAdd(m, Store::second(a, v * kLanes), acc[kHalf + v]);
        }
      }
      group += args.packed_chunks * ranks * kBytes;
    }
    CHORAL_UNROLL
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[v], d, y + v * kLanes);
  }
}

template <class Store>
ShrinkKernel shrink_of(int rows, int ranks) {
  if (rows == 1) return ranks == 8 ? shrink<Store, 1, 8> : ranks == 4 ? shrink<Store, 1, 4> : shrink<Store, 1, 1>;
#if HWY_TARGET <= HWY_AVX3
  if (rows == 4) return ranks == 4 ? shrink<Store, 4, 4> : shrink<Store, 4, 1>;
#endif
  return ranks == 4 ? shrink<Store, 2, 4> : shrink<Store, 2, 1>;
}

ShrinkKernel find_shrink(LoRAStore store, int rows, int ranks) {
  switch (store) {
    case LoRAStore::kF32: return shrink_of<StoreF32>(rows, ranks);
    case LoRAStore::kF16: return shrink_of<StoreF16>(rows, ranks);
    case LoRAStore::kBF16: return shrink_of<StoreBF16>(rows, ranks);
    case LoRAStore::kI8: return shrink_of<StoreI8>(rows, ranks);
    case LoRAStore::kQ8: return shrink_of<StoreQ8>(rows, ranks);
  }
  return nullptr;
}

// Levels with 16 registers do eight rows as twice four.
template <class Store>
void expand_eight(const ExpandArgs& args) {
#if HWY_TARGET <= HWY_AVX3
  expand<Store, 8>(args);
#else
  ExpandArgs half = args;
  expand<Store, 4>(half);
  half.middle += 4 * args.middle_stride;
  half.y += 4;
  expand<Store, 4>(half);
#endif
}

template <class Store>
ExpandKernel expand_of(int rows) {
  switch (rows) {
    case 1: return expand<Store, 1>;
    case 2: return expand<Store, 2>;
    case 4: return expand<Store, 4>;
    default: return expand_eight<Store>;
  }
}

ExpandKernel find_expand(LoRAStore store, int rows) {
  switch (store) {
    case LoRAStore::kF32: return expand_of<StoreF32>(rows);
    case LoRAStore::kF16: return expand_of<StoreF16>(rows);
    case LoRAStore::kBF16: return expand_of<StoreBF16>(rows);
    case LoRAStore::kI8: return expand_of<StoreI8>(rows);
    case LoRAStore::kQ8: return expand_of<StoreQ8>(rows);
  }
  return nullptr;
}

ShrinkByBKernel find_shrink_by_b(LoRAStore store) {
  switch (store) {
    case LoRAStore::kF32: return shrink_by_b<StoreF32>;
    case LoRAStore::kF16: return shrink_by_b<StoreF16>;
    case LoRAStore::kBF16: return shrink_by_b<StoreBF16>;
    case LoRAStore::kI8: return shrink_by_b<StoreI8>;
    case LoRAStore::kQ8: return shrink_by_b<StoreQ8>;
  }
  return nullptr;
}

ExpandByAKernel find_expand_by_a(LoRAStore store) {
  switch (store) {
    case LoRAStore::kF32: return expand_by_a<StoreF32>;
    case LoRAStore::kF16: return expand_by_a<StoreF16>;
    case LoRAStore::kBF16: return expand_by_a<StoreBF16>;
    case LoRAStore::kI8: return expand_by_a<StoreI8>;
    case LoRAStore::kQ8: return expand_by_a<StoreQ8>;
  }
  return nullptr;
}

const LoRAKernels& table() {
  static constexpr LoRAKernels kTable{find_shrink, find_expand, find_shrink_by_b, find_expand_by_a,
                                      HWY_TARGET <= HWY_AVX3 ? 4 : 2};
  return kTable;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {
const LoRAKernels& lora_kernels(CpuLevel level) { return CHORAL_AT_LEVEL(level, table)(); }
}  // namespace choral::kernels
#endif  // HWY_ONCE
