// The int8 micro-kernels of gemm/int8/int8_kernels.h, written once over `Simd`, which the including .cc defines for its
// instruction set together with CHORAL_INT8_TARGET (a function target attribute) and CHORAL_SIMD (that and always_inline).
// Included once by each of int8_avx2.cc, int8_avxvnni_inl.h, int8_avx512.cc, int8_vnni.cc inside their own unnamed namespace.
// Nothing here is a lambda: lambdas do not inherit target attributes. No include guard: see above.

#define CHORAL_INT8_UNROLL _Pragma("GCC unroll 16")

// The steps see a panel in kParts parts, of which each fills one register; what follows them sees it in vectors of integers.
constexpr int kParts = Simd::kParts;
constexpr int kPartBytes = static_cast<int>(kInt8StepBytes) / kParts;
constexpr int kPartLanes = static_cast<int>(kInt8Lanes) / kParts;

struct Ahead {
  const char* line;
  int64_t left;
};

template <int P>
CHORAL_SIMD void fetch_line(const Int8Args& args, Ahead& ahead) {
  if (ahead.left == 0) return;
  CHORAL_INT8_UNROLL
  for (int p = 0; p < P; ++p) _mm_prefetch(ahead.line + p * args.panel_bytes, Simd::kFetchTo);
  ahead.line += kInt8StepBytes;
  if (--ahead.left == args.jump_at) ahead.line += args.jump;
}

// The sums of one group, parts [kFirst, kFirst + kCount) of P panels.
template <int R, int P, int kFirst, int kCount>
CHORAL_SIMD void some_parts(const Int8Args& args, const std::byte* weights, const std::byte* x, Ahead& ahead) {
  Simd::Ints sum[R][kCount];
  CHORAL_INT8_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_INT8_UNROLL
    for (int v = 0; v < kCount; ++v) sum[r][v] = Simd::splat_int(0);
  }
  for (int64_t s = 0; s < args.steps; ++s, weights += kInt8StepBytes, x += Simd::kStepBytes) {
    if constexpr (kFirst == 0) fetch_line<P>(args, ahead);
    Simd::Ints w[kCount];
    CHORAL_INT8_UNROLL
    for (int v = 0; v < kCount; ++v)
      w[v] = Simd::load_weights(weights + (kFirst + v) / kParts * args.panel_bytes + (kFirst + v) % kParts * kPartBytes);
    CHORAL_INT8_UNROLL
    for (int r = 0; r < R; ++r) {
      const Simd::Ints q = Simd::broadcast(x + r * args.x_row_bytes);
      CHORAL_INT8_UNROLL
      for (int v = 0; v < kCount; ++v) {
        sum[r][v] = Simd::add_products(sum[r][v], w[v], q);
        // Stays in its register: g++ 12 copies sums at the end of each step otherwise, or keeps them in memory.
        asm("" : CHORAL_INT8_REGISTER(sum[r][v]));
      }
    }
  }
  CHORAL_INT8_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_INT8_UNROLL
    for (int v = 0; v < kCount; ++v) {
      Simd::store_total(args.sums + r * args.stride + (kFirst + v) * kPartLanes, sum[r][v], args.resume);
    }
  }
}

// A group's sums, which the steps left in memory, become floats. Loops, not unrolled: what the steps hold in registers must not
// be indexed by a variable, or g++ keeps it in memory.
template <int R, int P>
CHORAL_SIMD void complete(const Int8Args& args, int64_t g, const std::byte* header) {
  const bool first = args.first && g == 0, last = g + 1 == args.groups && args.row_scales != nullptr;
  for (int r = 0; r < R; ++r) {
    const Simd::Ints start = Simd::splat_int(args.starts[r * args.starts_stride + g]);
    const Simd::Floats row_scale = Simd::splat(last ? args.row_scales[r] : 1.0f);
    CHORAL_INT8_UNROLL
    for (int col = 0; col < P * kInt8Lanes; col += Simd::kLanes) {
      const std::byte* scales = header + col / kInt8Lanes * args.panel_bytes + col % kInt8Lanes * 4;
      const int64_t at = r * args.stride + col;
      Simd::Ints total = Simd::add(Simd::load_ints(args.sums + at), start);
      if (args.corrected) total = Simd::add(total, Simd::load_ints(reinterpret_cast<const int32_t*>(scales + 64)));
      const Simd::Floats old = first ? Simd::splat(0.0f) : Simd::load_floats(args.out + at);
      const Simd::Floats f = Simd::fma(Simd::to_floats(total), Simd::load_floats(reinterpret_cast<const float*>(scales)), old);
      Simd::store_floats(args.out + at, Simd::mul(f, row_scale));
    }
  }
}

// Parts are done kAtOnce at a time, as many as the registers hold sums of.
template <int R, int P, int kAtOnce, int... kPasses>
CHORAL_SIMD void all_parts(std::integer_sequence<int, kPasses...>, const Int8Args& args, const std::byte* weights,
                           const std::byte* x, Ahead& ahead) {
  (some_parts<R, P, kPasses * kAtOnce, kAtOnce>(args, weights, x, ahead), ...);
}

template <int R, int P>
CHORAL_INT8_TARGET void tile(const Int8Args& given) {
  const Int8Args args = given;  // a copy that no store can change: read once
  constexpr int kAtOnce = std::min(P * kParts, Simd::at_once(R));
  Ahead ahead{reinterpret_cast<const char*>(args.ahead), args.lines};
  const std::byte *header = args.header, *weights = args.weights, *x = args.x;
  for (int64_t g = 0; g < args.groups; ++g) {
    fetch_line<P>(args, ahead);  // a header's
    if (args.corrected) fetch_line<P>(args, ahead);
    all_parts<R, P, kAtOnce>(std::make_integer_sequence<int, P * kParts / kAtOnce>(), args, weights, x, ahead);
    if (args.complete) complete<R, P>(args, g, header);
    header += args.group_bytes;
    weights += args.group_bytes;
    x += args.steps * Simd::kStepBytes;
  }
}

int panels_for(int rows) { return std::max(1, Simd::at_once(rows) / kParts); }

template <int P, int... kRows>
Int8Micro micro_of(std::integer_sequence<int, kRows...>, int rows) {
  static constexpr Int8Micro kMicros[] = {tile<kRows + 1, P>...};
  return kMicros[rows - 1];
}

Int8Micro find_micro(int rows, int panels) {
  constexpr auto kRows = std::make_integer_sequence<int, Simd::kDirectRows>();
  return panels == 4 ? micro_of<4>(kRows, rows) : panels == 2 ? micro_of<2>(kRows, rows) : micro_of<1>(kRows, rows);
}

constexpr Int8Kernels kKernels{Simd::kName, Simd::kStepBytes == 8, Simd::kTileRows, Simd::kDirectRows, Simd::kBlockK, panels_for,
                               find_micro};
