// The int8 micro-kernels of gemm/int8/int8_kernels.h, written once over `Simd`, which the including .cc defines for its
// instruction set together with CHORAL_INT8_TARGET (a function target attribute) and CHORAL_SIMD (that and always_inline).
// Included once by each of int8_avx2.cc, int8_avx512.cc, int8_vnni.cc inside their own unnamed namespace. Nothing here is a
// lambda: lambdas do not inherit target attributes. No include guard: see above.

#define CHORAL_INT8_UNROLL _Pragma("GCC unroll 16")

constexpr int kVectors = Simd::kVectors;  // of a panel: its 16 lanes x 4 k fill one 64-byte or two 32-byte vectors
constexpr int kVectorBytes = static_cast<int>(kInt8StepBytes) / kVectors;
constexpr int kVectorLanes = static_cast<int>(kInt8Lanes) / kVectors;

// Vector v of P panels: where it stands in a step, and which column it is.
CHORAL_SIMD int64_t offset_of(int v, int64_t panel_bytes) { return v / kVectors * panel_bytes + v % kVectors * kVectorBytes; }
CHORAL_SIMD int64_t header_of(int v, int64_t panel_bytes) { return v / kVectors * panel_bytes + v % kVectors * kVectorLanes * 4; }

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

// The sums of one group, vectors [kFirst, kFirst + kCount) of P panels.
template <int R, int P, int kFirst, int kCount>
CHORAL_SIMD void some_vectors(const Int8Args& args, int64_t g, const std::byte* header, const std::byte* weights,
                              const std::byte* x, Ahead& ahead) {
  Simd::Sum sum[R][kCount];
  CHORAL_INT8_UNROLL
  for (int r = 0; r < R; ++r) {
    CHORAL_INT8_UNROLL
    for (int v = 0; v < kCount; ++v) sum[r][v].clear();
  }
  for (int64_t s = 0; s < args.steps; ++s, weights += kInt8StepBytes, x += Simd::kStepBytes) {
    if constexpr (kFirst == 0) fetch_line<P>(args, ahead);
    Simd::Weight w[kCount];
    CHORAL_INT8_UNROLL
    for (int v = 0; v < kCount; ++v) w[v].load(weights + offset_of(kFirst + v, args.panel_bytes));
    CHORAL_INT8_UNROLL
    for (int r = 0; r < R; ++r) {
      const Simd::Ints q = Simd::broadcast(x + r * args.x_row_bytes);
      CHORAL_INT8_UNROLL
      for (int v = 0; v < kCount; ++v) sum[r][v].add(w[v], q);
    }
  }
  const bool last = g + 1 == args.groups && args.row_scales != nullptr;
  CHORAL_INT8_UNROLL
  for (int v = 0; v < kCount; ++v) {
    const std::byte* scales = header + header_of(kFirst + v, args.panel_bytes);
    CHORAL_INT8_UNROLL
    for (int r = 0; r < R; ++r) {
      const int64_t at = r * args.stride + (kFirst + v) * kVectorLanes;
      Simd::Ints total = sum[r][v].total();
      if (args.resume) {
        total = Simd::add(total, Simd::load_ints(args.sums + at));
      } else {
        total = Simd::add(total, Simd::splat_int(args.starts[r * args.starts_stride + g]));
        if (args.corrected) total = Simd::add(total, Simd::load_ints(reinterpret_cast<const int32_t*>(scales + 64)));
      }
      if (!args.complete) {
        Simd::store_ints(args.sums + at, total);
        continue;
      }
      const Simd::Floats old = args.first && g == 0 ? Simd::splat(0.0f) : Simd::load_floats(args.out + at);
      const Simd::Floats f = Simd::fma(Simd::to_floats(total), Simd::load_floats(reinterpret_cast<const float*>(scales)), old);
      Simd::store_floats(args.out + at, last ? Simd::mul(f, Simd::splat(args.row_scales[r])) : f);
    }
  }
}

// Vectors are done kAtOnce at a time, as many as the registers hold sums of.
template <int R, int P, int kAtOnce, int... kPasses>
CHORAL_SIMD void all_vectors(std::integer_sequence<int, kPasses...>, const Int8Args& args, int64_t g, const std::byte* header,
                             const std::byte* weights, const std::byte* x, Ahead& ahead) {
  (some_vectors<R, P, kPasses * kAtOnce, kAtOnce>(args, g, header, weights, x, ahead), ...);
}

template <int R, int P>
CHORAL_INT8_TARGET void tile(const Int8Args& args) {
  constexpr int kAtOnce = std::min(P * kVectors, Simd::at_once(R));
  Ahead ahead{reinterpret_cast<const char*>(args.ahead), args.lines};
  const std::byte *header = args.header, *weights = args.weights, *x = args.x;
  for (int64_t g = 0; g < args.groups; ++g) {
    fetch_line<P>(args, ahead);  // a header's
    if (args.corrected) fetch_line<P>(args, ahead);
    all_vectors<R, P, kAtOnce>(std::make_integer_sequence<int, P * kVectors / kAtOnce>(), args, g, header, weights, x, ahead);
    header += args.group_bytes;
    weights += args.group_bytes;
    x += args.steps * Simd::kStepBytes;
  }
}

int panels_for(int rows) { return std::max(1, Simd::at_once(rows) / kVectors); }

template <int P, int... kRows>
Int8Micro micro_of(std::integer_sequence<int, kRows...>, int rows) {
  static constexpr Int8Micro kMicros[] = {tile<kRows + 1, P>...};
  return kMicros[rows - 1];
}

Int8Micro find_micro(int rows, int panels) {
  constexpr auto kRows = std::make_integer_sequence<int, Simd::kTileRows>();
  return panels == 4 ? micro_of<4>(kRows, rows) : panels == 2 ? micro_of<2>(kRows, rows) : micro_of<1>(kRows, rows);
}

constexpr Int8Kernels kKernels{Simd::kName, Simd::kStepBytes == 8, Simd::kTileRows, panels_for, find_micro};
