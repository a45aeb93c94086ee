// The float GEMM's micro-kernels, written once over `Simd`, which the including .cc defines for its instruction set together with
// CHORAL_TARGET (a function target attribute), CHORAL_INLINE (that and always_inline), and how many rows go with how many panels:
// kMaxRows, kMaxRowsOfTwoPanels, kMaxRowsOfFourPanels, kTilePanels. Included once by each of gemm_float_avx2.cc and
// gemm_float_avx512.cc inside their own unnamed namespace. Nothing here is a lambda: lambdas do not inherit target attributes.
// No include guard: see above.

#define CHORAL_UNROLL _Pragma("GCC unroll 16")

using Floats = Simd::Floats;
constexpr int kVectors = Simd::kVectors;  // of a panel's 16 channels
constexpr int kLanes = kPanelRows / kVectors;

// Two k of a panel, widened one k at a time; vector v of it. A pair of the whole panel is kPairBytes bytes.
struct BFloat16Pair {
  static constexpr int kPairBytes = 64;
  static constexpr bool kScaled = false;
  static CHORAL_INLINE Floats even(const std::byte* p, int v) { return Simd::low_bf16(p + v * kLanes * 4); }
  static CHORAL_INLINE Floats odd(const std::byte* p, int v) { return Simd::high_bf16(p + v * kLanes * 4); }
};

struct Float16Pair {
  static constexpr int kPairBytes = 64;
  static constexpr bool kScaled = false;
  static CHORAL_INLINE Floats even(const std::byte* p, int v) { return Simd::halves(p + v * kLanes * 2); }
  static CHORAL_INLINE Floats odd(const std::byte* p, int v) { return even(p + 32, v); }
};

struct Float32Pair {
  static constexpr int kPairBytes = 128;
  static constexpr bool kScaled = false;
  static CHORAL_INLINE Floats even(const std::byte* p, int v) {
    return Simd::load(reinterpret_cast<const float*>(p) + v * kLanes);
  }
  static CHORAL_INLINE Floats odd(const std::byte* p, int v) { return even(p + 64, v); }
};

struct Float8Pair {  // to be multiplied by the group's scales
  static constexpr int kPairBytes = 32;
  static constexpr bool kScaled = true;
  static CHORAL_INLINE Floats even(const std::byte* p, int v) { return Simd::low_float8(p, v); }
  static CHORAL_INLINE Floats odd(const std::byte* p, int v) { return Simd::high_float8(p, v); }
};

// Where a kernel reads weights: panels `stride` bytes apart, and so the scales of their groups.
struct WeightPlace {
  const std::byte* w;
  int64_t stride;
  const float* scales;
};

// Weights of k, or of k + 1, of vector v: kVectors for each panel.
template <class Pair, bool kOdd>
CHORAL_INLINE Floats load_weights(const WeightPlace& from, int v) {
  const int64_t panel = v / kVectors * from.stride;
  const Floats weights = kOdd ? Pair::odd(from.w + panel, v % kVectors) : Pair::even(from.w + panel, v % kVectors);
  if constexpr (!Pair::kScaled) return weights;
  const auto* scales = reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(from.scales) + panel);
  return Simd::mul(weights, Simd::load(scales + v % kVectors * kLanes));
}

// One k of V vectors, stored `at` floats into the wide panels where the kernel widens.
template <class Pair, bool kOdd, bool kWidens, int R, int V>
CHORAL_INLINE void one_k(Floats (&acc)[R][V], const float* x, const WeightPlace& from, float* wide, int64_t wide_stride,
                         int64_t at) {
  // Where sums, the weights of a k and an x don't fit the registers, each vector's weights live for its multiplies only. A sum is
  // kept in its register: g++ 12 would widen all weights first and spill sums, which halves the speed.
  if constexpr (R * V + V + 1 > Simd::kRegisters) {
    static_assert(!kWidens, "tiles fit the registers");
    Floats b[R];
    CHORAL_UNROLL
    for (int r = 0; r < R; ++r) b[r] = Simd::broadcast(x + r * kXChunk);
    CHORAL_UNROLL
    for (int v = 0; v < V; ++v) {
      const Floats w = load_weights<Pair, kOdd>(from, v);
      CHORAL_UNROLL
      for (int r = 0; r < R; ++r) {
        acc[r][v] = Simd::fma(b[r], w, acc[r][v]);
        asm("" : "+x"(acc[r][v]));
      }
    }
    return;
  }
  Floats w[V];
  CHORAL_UNROLL
  for (int v = 0; v < V; ++v) w[v] = load_weights<Pair, kOdd>(from, v);
  CHORAL_UNROLL
  for (int v = 0; kWidens && v < V; ++v) Simd::store(wide + at + v / kVectors * wide_stride + v % kVectors * kLanes, w[v]);
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    const Floats b = Simd::broadcast(x + r * kXChunk);
    CHORAL_UNROLL
    for (int v = 0; v < V; ++v) acc[r][v] = Simd::fma(b, w[v], acc[r][v]);
  }
}

// Two k: even and odd weights of V vectors, x and x + 1, and a pair of each panel fetched ahead.
template <class Pair, bool kWidens, int R, int V>
CHORAL_INLINE void step(Floats (&acc)[R][V], const float* x, const WeightPlace& from, const std::byte* ahead,
                        int64_t ahead_stride, float* wide, int64_t wide_stride, int64_t at) {
  one_k<Pair, false, kWidens, R, V>(acc, x, from, wide, wide_stride, at);
  one_k<Pair, true, kWidens, R, V>(acc, x + 1, from, wide, wide_stride, at + kPanelRows);
  CHORAL_UNROLL
  for (int p = 0; p < V / kVectors; ++p) {
    _mm_prefetch(ahead + p * ahead_stride, _MM_HINT_T0);
    if (Pair::kPairBytes > 64) _mm_prefetch(ahead + p * ahead_stride + 64, _MM_HINT_T0);
  }
}

template <class Pair, bool kWidens, int R, int P>
CHORAL_TARGET void micro(const MicroArgs& args) {
  constexpr int V = P * kVectors;
  Floats acc[R][V];
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int v = 0; v < V; ++v) {
      acc[r][v] = args.resume ? Simd::load(args.out + r * args.out_stride + v * kLanes) : Simd::zero();
    }
  }
  const float* x = args.x;
  const std::byte* w = args.w;
  const std::byte* ahead = args.ahead;
  const int64_t stride = args.panel_stride;
  const float* scales = args.scales;
  int64_t group_end = args.group_end;
  const int64_t ahead_stride = args.ahead_panel_stride;
  float* wide = args.wide;
  const int64_t wide_stride = args.wide_stride;
  for (int64_t k = 0; k < args.k; k += kXChunk) {
    if (k == args.jump_at) ahead += args.ahead_jump;
    if (Pair::kScaled && k == group_end) {
      scales = reinterpret_cast<const float*>(w);
      w += kPanelScaleBytes;
      ahead += args.ahead_scales;
      group_end += args.group;
    }
    const int64_t left = args.k - k;
    if (left >= kXChunk) {  // whole chunks are unrolled: counting would take the multipliers' ports
      CHORAL_UNROLL
      for (int i = 0; i < kXChunk; i += 2, ahead += args.ahead_step) {
        step<Pair, kWidens, R, V>(acc, x + i, {w + i / 2 * Pair::kPairBytes, stride, scales}, ahead, ahead_stride, wide,
                                  wide_stride, i * kPanelRows);
      }
      if (kWidens) wide += kXChunk * kPanelRows;
      w += kXChunk / 2 * Pair::kPairBytes;
      x += R * kXChunk;
      continue;
    }
    for (int64_t i = 0; i + 1 < left; i += 2, w += Pair::kPairBytes, ahead += args.ahead_step) {
      step<Pair, kWidens, R, V>(acc, x + i, {w, stride, scales}, ahead, ahead_stride, wide, wide_stride, i * kPanelRows);
    }
    if (left % 2 != 0) {
      one_k<Pair, false, kWidens, R, V>(acc, x + left - 1, {w, stride, scales}, wide, wide_stride, (left - 1) * kPanelRows);
    }
  }
  CHORAL_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_UNROLL
    for (int v = 0; v < V; ++v) Simd::store(args.out + r * args.out_stride + v * kLanes, acc[r][v]);
  }
}

// Indexed by [log2 of panels][rows - 1].
template <class Pair, int P, size_t... kRow>
constexpr std::array<MicroKernel, kMaxRows> by_rows(std::index_sequence<kRow...>) {
  std::array<MicroKernel, kMaxRows> table{};
  ((table[kRow] = &micro<Pair, false, static_cast<int>(kRow) + 1, P>), ...);
  return table;
}
template <class Pair>
constexpr std::array<std::array<MicroKernel, kMaxRows>, 3> kMicro{
    by_rows<Pair, 1>(std::make_index_sequence<kMaxRows>()),
    by_rows<Pair, 2>(std::make_index_sequence<kMaxRowsOfTwoPanels>()),
    by_rows<Pair, 4>(std::make_index_sequence<kMaxRowsOfFourPanels>()),
};

// Indexed by [log2 of panels][rows - kMaxRows / 2].
using WideningRows = std::make_index_sequence<kMaxRows - kMaxRows / 2 + 1>;
template <class Pair, int P, size_t... kRow>
constexpr std::array<MicroKernel, sizeof...(kRow)> widening_by_rows(std::index_sequence<kRow...>) {
  return {&micro<Pair, true, static_cast<int>(kRow) + kMaxRows / 2, P>...};
}
template <class Pair, size_t... kLog2>
constexpr std::array<std::array<MicroKernel, WideningRows::size()>, sizeof...(kLog2)> widening_by_panels(
    std::index_sequence<kLog2...>) {
  return {widening_by_rows<Pair, 1 << kLog2>(WideningRows())...};
}
static_assert(kTilePanels == 1 || kTilePanels == 2);
template <class Pair>
constexpr auto kWidening = widening_by_panels<Pair>(std::make_index_sequence<kTilePanels>());

int panels_for(int rows) {
  if (rows <= kMaxRowsOfFourPanels) return 4;
  return rows <= kMaxRowsOfTwoPanels ? 2 : 1;
}

MicroKernel find_micro(DType weights, int rows, int panels) {
  const auto p = static_cast<size_t>(panels / 2);
  const auto r = static_cast<size_t>(rows - 1);
  switch (weights) {
    case DType::kBF16: return kMicro<BFloat16Pair>.at(p).at(r);
    case DType::kF16: return kMicro<Float16Pair>.at(p).at(r);
    case DType::kF8E4M3: return kMicro<Float8Pair>.at(p).at(r);
    default: return kMicro<Float32Pair>.at(p).at(r);
  }
}

MicroKernel find_widening(DType weights, int rows, int panels) {
  CHORAL_DCHECK(weights != DType::kF32, "float32 panels are read in place");
  const auto p = static_cast<size_t>(panels / 2);
  const auto r = static_cast<size_t>(rows - kMaxRows / 2);
  switch (weights) {
    case DType::kBF16: return kWidening<BFloat16Pair>.at(p).at(r);
    case DType::kF16: return kWidening<Float16Pair>.at(p).at(r);
    default: return kWidening<Float8Pair>.at(p).at(r);
  }
}

#undef CHORAL_UNROLL
