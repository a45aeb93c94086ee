// The quantised GEMM's kernels, written once over `Simd`, which the including .cc defines for its instruction set together
// with CHORAL_QUANT_TARGET (a function target attribute) and CHORAL_SIMD (that and always_inline). Included once by each of
// quant_avx2.cc, quant_avx512.cc, quant_vnni.cc inside their own unnamed namespace. Nothing here is a lambda: lambdas do not
// inherit target attributes.
//
// One block of one tile: for each scale of the block, kSteps steps of   sum[row][vector] += weights(step) . x(row, step)
// in exact int32, then  f = fma(float(sum), d * s_x, f);  at the end, for types with a minimum,  f = fma(min, sum_x, f).
// No include guard: see above.

#define CHORAL_QUANT_UNROLL _Pragma("GCC unroll 32")

using Bytes = Simd::Bytes;
using Floats = Simd::Floats;
constexpr int kVectors = Simd::kVectors;  // of a panel: its 16 lanes x 4 k fill one 64-byte or two 32-byte vectors
constexpr int kVectorBytes = kQuantStepBytes / kVectors;
constexpr int kVectorLanes = kQuantLanes / kVectors;

template <int kFirst, class Sequence>
struct ShiftSequence;
template <int kFirst, int... kSteps>
struct ShiftSequence<kFirst, std::integer_sequence<int, kSteps...>> {
  using Type = std::integer_sequence<int, (kFirst + kSteps)...>;
};
template <int kFirst, int kCount>
using Steps = typename ShiftSequence<kFirst, std::make_integer_sequence<int, kCount>>::Type;

// Of a codebook: what its codes are multiplied as.
template <QuantForm kForm>
constexpr std::array<uint8_t, 16> code_values() {
  auto values = quant_code_values(kForm.codes);
  for (uint8_t& v : values) v = static_cast<uint8_t>(v - kForm.zero() + Simd::zero(kForm));
  return values;
}

// Integers of step kStep, vector v, from a packed block: as stored, or what stored codes stand for.
template <QuantForm kForm, int kStep>
CHORAL_SIMD Bytes packed_step(const uint8_t* block, int v) {
  const uint8_t* p = block + v * kVectorBytes;
  if constexpr (kForm.bits < 4) {
    const Bytes pairs = Simd::or_bits<-2 * (kStep % 4), 0x03>(Bytes{}, Simd::load(p + kStep / 4 * kQuantStepBytes));
    if constexpr (kForm.bits == 3) return Simd::or_bits<2 - kStep, 0x04>(pairs, Simd::load(p + 2 * kQuantStepBytes));
    return pairs;
  } else if constexpr (kForm.bits == 8) {
    return Simd::recentre(Simd::load(p + kStep * kQuantStepBytes));
  } else {
    const Bytes raw = Simd::load(p + kStep / 2 * kQuantStepBytes);
    const Bytes nibbles = kStep % 2 == 0 ? Simd::low_nibbles(raw) : Simd::high_nibbles(raw);
    const uint8_t* high = p + 4 * kQuantStepBytes;
    if constexpr (kForm.bits == 5) return Simd::or_bits<4 - kStep, 0x10>(nibbles, Simd::load(high));
    if constexpr (kForm.bits == 6) {
      return Simd::or_bits<4 - 2 * (kStep % 4), 0x30>(nibbles, Simd::load(high + kStep / 4 * kQuantStepBytes));
    }
    if constexpr (kForm.is_codebook()) {
      alignas(16) static constexpr std::array<uint8_t, 16> kValues = code_values<kForm>();
      return Simd::lookup(kValues.data(), nibbles);
    }
    return nibbles;
  }
}

// Weights of a block as bytes, from packed panels or from unpacked chunks of four panels (whose steps stand side by side).
template <QuantForm kForm>
struct PackedWeights {
  const uint8_t* block;
  template <int kStep>
  CHORAL_SIMD Bytes step(int v) const {
    return packed_step<kForm, kStep>(block, v);
  }
};
struct UnpackedWeights {
  const uint8_t* block;
  template <int kStep>
  CHORAL_SIMD Bytes step(int v) const {
    return Simd::load(block + kStep * kQuantPanelsAtOnce * kQuantStepBytes + v * kVectorBytes);
  }
};

// Scales of a block, read where they are used so that they hold no registers during the steps: from a packed header or as
// floats of an unpacked chunk.
template <QuantForm kForm>
struct PackedScales {
  const uint8_t* header;
  int index;  // of the block in its group

  template <int kSub>
  CHORAL_SIMD Floats d(int v) const {
    const uint8_t* halves = header + v * kVectorLanes * 2;
    const uint8_t* small = header + 64 + v * kVectorLanes;
    if constexpr (kForm.has_float_scales()) return Simd::load_floats(reinterpret_cast<const float*>(header) + v * kVectorLanes);
    if constexpr (kForm.scales == QuantScales::kD) return Simd::halves(halves + 32 * index);
    if constexpr (kForm.scales == QuantScales::kDM) return Simd::halves(halves);
    if constexpr (kForm.scales == QuantScales::kK)
      return Simd::mul(Simd::halves(halves), Simd::unsigned_bytes(small + 16 * index));
    if constexpr (kForm.scales == QuantScales::kK8)
      return Simd::mul(Simd::halves(halves), Simd::signed_bytes(small + 16 * index));
    if constexpr (kForm.scales == QuantScales::kK16M)
      return Simd::mul(Simd::halves(halves), Simd::template nibbles<0>(small + 32 * index + 16 * kSub));
    return Simd::mul(Simd::halves(halves), Simd::signed_bytes(small + 32 * index + 16 * kSub));
  }
  template <int kSub>
  CHORAL_SIMD Floats min(int v) const {
    if constexpr (kForm.has_float_scales()) {
      return Simd::load_floats(reinterpret_cast<const float*>(header + 64) + v * kVectorLanes);
    }
    const Floats m = Simd::halves(header + 32 + v * kVectorLanes * 2);
    if constexpr (kForm.scales == QuantScales::kDM) return m;
    if constexpr (kForm.scales == QuantScales::kK16M) {
      return Simd::mul(Simd::negate(m), Simd::template nibbles<4>(header + 64 + 32 * index + 16 * kSub + v * kVectorLanes));
    }
    return Simd::mul(Simd::negate(m), Simd::unsigned_bytes(header + 64 + 16 * (8 + index) + v * kVectorLanes));
  }
};
template <QuantForm kForm>
struct UnpackedScales {
  const float* floats;

  template <int kSub>
  CHORAL_SIMD Floats d(int v) const {
    return Simd::load_floats(floats + kSub * kQuantTileColumns + v * kVectorLanes);
  }
  template <int kSub>
  CHORAL_SIMD Floats min(int v) const {
    return Simd::load_floats(floats + (kForm.sub_blocks() + kSub) * kQuantTileColumns + v * kVectorLanes);
  }
};

// Where a tile's float sums live between blocks.
template <int kRows, int kCount>
struct RegisterSums {
  Floats f[kRows][kCount];
  CHORAL_SIMD Floats get(int row, int v) const { return f[row][v]; }
  CHORAL_SIMD void set(int row, int v, Floats value) { f[row][v] = value; }
};
struct MemorySums {
  float* out;
  CHORAL_SIMD Floats get(int row, int v) const { return Simd::load_floats(out + row * kQuantTileColumns + v * kVectorLanes); }
  CHORAL_SIMD void set(int row, int v, Floats value) {
    Simd::store_floats(out + row * kQuantTileColumns + v * kVectorLanes, value);
  }
};

template <int kBits, int kStep, int kLocal, int kRows, int kCount, class Weights>
CHORAL_SIMD void one_step(const Weights& weights, const QuantisedBlock* x, int64_t x_stride,
                          Simd::Sum<kBits> (&sum)[kRows][kCount]) {
  typename Simd::Weight<kBits> w[kCount];
  CHORAL_QUANT_UNROLL
  for (int v = 0; v < kCount; ++v) w[v].set(weights.template step<kStep>(v));
  CHORAL_QUANT_UNROLL
  for (int row = 0; row < kRows; ++row) {
    const Bytes xb = Simd::broadcast(x[row * x_stride].q + 4 * kStep);
    CHORAL_QUANT_UNROLL
    for (int v = 0; v < kCount; ++v) sum[row][v].template add<kLocal>(w[v], xb);
  }
}

template <int kBits, int kFirst, int kRows, int kCount, class Weights, int... kSteps>
CHORAL_SIMD void all_steps(std::integer_sequence<int, kSteps...>, const Weights& weights, const QuantisedBlock* x,
                           int64_t x_stride, Simd::Sum<kBits> (&sum)[kRows][kCount]) {
  (one_step<kBits, kSteps, kSteps - kFirst, kRows, kCount>(weights, x, x_stride, sum), ...);
}

// Scale kSub of a block: its integer sums, folded into f.
template <QuantForm kForm, int kSub, int kRows, int kCount, class Weights, class Scales, class Sums>
CHORAL_SIMD void sub_block(const Weights& weights, const Scales& scales, const QuantisedBlock* x, int64_t x_stride, Sums& sums) {
  constexpr int kSteps = kQuantSteps / kForm.sub_blocks();
  Simd::Sum<kForm.value_bits()> sum[kRows][kCount];
  CHORAL_QUANT_UNROLL
  for (int row = 0; row < kRows; ++row) {
    CHORAL_QUANT_UNROLL
    for (int v = 0; v < kCount; ++v) {
      if constexpr (Simd::zero(kForm) == 0) {
        sum[row][v].clear();
      } else {
        sum[row][v].start(x[row * x_stride].start[kSub]);
      }
    }
  }
  all_steps<kForm.value_bits(), kSub * kSteps, kRows, kCount>(Steps<kSub * kSteps, kSteps>(), weights, x, x_stride, sum);
  CHORAL_QUANT_UNROLL
  for (int v = 0; v < kCount; ++v) {
    const Floats d = scales.template d<kSub>(v);
    CHORAL_QUANT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const Floats scale = Simd::mul(d, Simd::splat(x[row * x_stride].scale));
      sums.set(row, v, Simd::fma(sum[row][v].to_floats(), scale, sums.get(row, v)));
    }
  }
}

// Minimum kSub of a block, times the sum of x that it is added to.
template <QuantForm kForm, int kSub, int kRows, int kCount, class Scales, class Sums>
CHORAL_SIMD void sub_block_min(const Scales& scales, const QuantisedBlock* x, int64_t x_stride, Sums& sums) {
  CHORAL_QUANT_UNROLL
  for (int v = 0; v < kCount; ++v) {
    const Floats min = scales.template min<kSub>(v);
    CHORAL_QUANT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const QuantisedBlock& block = x[row * x_stride];
      const float sum = kForm.sub_blocks() == 1 ? block.sum : block.scale * static_cast<float>(block.start[kSub]);
      sums.set(row, v, Simd::fma(min, Simd::splat(sum), sums.get(row, v)));
    }
  }
}

template <QuantForm kForm, int kRows, int kCount, class Weights, class Scales, class Sums>
CHORAL_SIMD void one_block(const Weights& weights, const Scales& scales, const QuantisedBlock* x, int64_t x_stride, Sums& sums) {
  sub_block<kForm, 0, kRows, kCount>(weights, scales, x, x_stride, sums);
  if constexpr (kForm.sub_blocks() == 2) sub_block<kForm, 1, kRows, kCount>(weights, scales, x, x_stride, sums);
  if constexpr (kForm.has_min()) sub_block_min<kForm, 0, kRows, kCount>(scales, x, x_stride, sums);
  if constexpr (kForm.has_min() && kForm.sub_blocks() == 2) sub_block_min<kForm, 1, kRows, kCount>(scales, x, x_stride, sums);
}

// A kernel's form with what its matrix adds to it.
template <QuantForm kForm>
constexpr QuantForm whole_form(const QuantKernelArgs& args) {
  QuantForm form = kForm;
  if constexpr (kForm.has_float_scales()) form.blocks = args.form.blocks;
  return form;
}

CHORAL_SIMD void prefetch(const uint8_t* p, int bytes) {
  CHORAL_QUANT_UNROLL
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

// ---- direct: kPanels streams side by side, float sums in registers -------------------------------------------------

template <QuantForm kForm, int kRows, int kPanels>
CHORAL_QUANT_TARGET void direct_rows(const QuantKernelArgs& args) {
  const QuantForm form = whole_form<kForm>(args);
  const int64_t blocks = args.blocks;
  const auto* panels = reinterpret_cast<const uint8_t*>(args.panels);
  const QuantisedBlock* x = args.x;
  RegisterSums<kRows, kVectors> sums[kPanels];
  CHORAL_QUANT_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    CHORAL_QUANT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      CHORAL_QUANT_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[p].set(row, v, Simd::splat(0.0f));
    }
  }
  // Near the end of a panel its successor four panels on is fetched, which this thread is likely to read next.
  const uint8_t* redirect = panels + args.panel_bytes - Simd::kPrefetchBytes;
  for (int64_t first = 0; first < blocks; first += form.group_blocks(), panels += form.group_bytes()) {
    const int64_t ahead = Simd::kPrefetchBytes + (panels < redirect ? 0 : (kPanels - 1) * args.panel_bytes);
    const int count = static_cast<int>(std::min<int64_t>(form.group_blocks(), blocks - first));
    for (int j = 0; j < count; ++j, ++x) {
      CHORAL_QUANT_UNROLL
      for (int p = 0; p < kPanels; ++p) {
        const uint8_t* header = panels + p * args.panel_bytes;
        const uint8_t* block = header + kForm.header_bytes() + j * kForm.block_bytes();
        prefetch(block + ahead, kForm.block_bytes());
        one_block<kForm, kRows, kVectors>(PackedWeights<kForm>{block}, PackedScales<kForm>{header, j}, x, blocks, sums[p]);
      }
    }
  }
  CHORAL_QUANT_UNROLL
  for (int p = 0; p < kPanels; ++p) {
    MemorySums out{args.out + p * kQuantLanes};
    CHORAL_QUANT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      CHORAL_QUANT_UNROLL
      for (int v = 0; v < kVectors; ++v) out.set(row, v, sums[p].get(row, v));
    }
  }
}

template <QuantForm kForm, int kPanels>
void direct_panels(const QuantKernelArgs& args) {
  switch (args.rows) {
    case 1: return direct_rows<kForm, 1, kPanels>(args);
    case 2: return direct_rows<kForm, 2, kPanels>(args);
    case 3: {  // of one plane only; the second time the panels come from a cache
      QuantKernelArgs some = args;
      some.rows = 2;
      direct_rows<kForm, 2, kPanels>(some);
      some.rows = 1;
      some.x += 2 * args.blocks;
      some.out += 2 * kQuantTileColumns;
      return direct_rows<kForm, 1, kPanels>(some);
    }
    default: return direct_rows<kForm, 4, kPanels>(args);
  }
}

template <QuantForm kForm>
void direct(const QuantKernelArgs& args) {
  if (args.panel_count == kQuantPanelsAtOnce) return direct_panels<kForm, kQuantPanelsAtOnce>(args);
  for (int p = 0; p < args.panel_count; ++p) {
    QuantKernelArgs one = args;
    one.panels += p * args.panel_bytes;
    one.out += p * kQuantLanes;
    direct_panels<kForm, 1>(one);
  }
}

// ---- tiled: a chunk of 8 blocks of four panels is unpacked into L1, then every row runs over it -------------------

// work: [block][step][panel][64] bytes, then [block][d per sub-block, min][panel][16] floats.
struct Chunk {
  uint8_t* bytes;
  float* floats;
};
// What a tile fetches into L2 for the next chunk, a few lines a block: all at once would fill the line buffers and stall.
struct NextLines {
  const uint8_t* panels;
  int64_t panel_bytes;
  int count;  // of each of four panels
};
constexpr int kUnpackedBlockBytes = kQuantPanelsAtOnce * kQuantSteps * kQuantStepBytes;
template <QuantForm kForm>
constexpr int kBlockFloats = kForm.sub_blocks() * (kForm.has_min() ? 2 : 1) * kQuantTileColumns;

template <QuantForm kForm, int... kSteps>
CHORAL_SIMD void unpack_steps(std::integer_sequence<int, kSteps...>, const uint8_t* block, uint8_t* out) {
  for (int v = 0; v < kVectors; ++v) {
    (Simd::store(out + kSteps * kQuantPanelsAtOnce * kQuantStepBytes + v * kVectorBytes, packed_step<kForm, kSteps>(block, v)),
     ...);
  }
}

template <QuantForm kForm>
CHORAL_QUANT_TARGET void unpack_chunk(const QuantKernelArgs& args, int64_t first, int count, Chunk chunk) {
  const QuantForm form = whole_form<kForm>(args);
  for (int p = 0; p < kQuantPanelsAtOnce; ++p) {
    const uint8_t* panel = reinterpret_cast<const uint8_t*>(args.panels) + p * args.panel_bytes;
    for (int j = 0; j < count; ++j) {
      const int64_t b = first + j;
      const uint8_t* block = panel + form.block_offset(b);
      unpack_steps<kForm>(Steps<0, kQuantSteps>(), block, chunk.bytes + j * kUnpackedBlockBytes + p * kQuantStepBytes);
      const PackedScales<kForm> scales{panel + b / form.group_blocks() * form.group_bytes(),
                                       static_cast<int>(b % form.group_blocks())};
      float* out = chunk.floats + j * kBlockFloats<kForm> + p * kQuantLanes;
      for (int v = 0; v < kVectors; ++v, out += kVectorLanes) {
        Simd::store_floats(out, scales.template d<0>(v));
        if constexpr (kForm.sub_blocks() == 2) Simd::store_floats(out + kQuantTileColumns, scales.template d<1>(v));
        if constexpr (kForm.has_min()) {
          Simd::store_floats(out + kForm.sub_blocks() * kQuantTileColumns, scales.template min<0>(v));
        }
        if constexpr (kForm.has_min() && kForm.sub_blocks() == 2) {
          Simd::store_floats(out + 3 * kQuantTileColumns, scales.template min<1>(v));
        }
      }
    }
  }
}

// What chunk_rows must know of a form: fewer templates. Simd::tile_bits says which widths run alike once unpacked.
constexpr QuantForm tile_form(QuantForm form) {
  return {Simd::tile_bits(form.value_bits()), form.scales == QuantScales::kFM || form.scales == QuantScales::kK16M ? form.scales
                                              : form.has_min()         ? QuantScales::kDM
                                              : form.sub_blocks() == 2 ? QuantScales::kK16
                                                                       : QuantScales::kD};
}

// kRows rows over a chunk of four panels, Simd::kTilePanels of them at a time.
template <QuantForm kForm, int kRows>
CHORAL_QUANT_TARGET __attribute__((noinline)) void chunk_rows(Chunk chunk, int count, const QuantisedBlock* x, int64_t x_stride,
                                                              float* out, NextLines next) {
  constexpr int kCount = Simd::kTilePanels * kVectors;
  const int lines_per_block = static_cast<int>(ceil_div(next.count * Simd::kTilePanels, kQuantPanelsAtOnce * count));
  for (int at = 0; at < kQuantPanelsAtOnce; at += Simd::kTilePanels) {
    for (int j = 0; j < count; ++j) {
      const int lines = std::min(lines_per_block, next.count);
      for (int i = 0; i < lines; ++i, next.panels += 64) {
        for (int p = 0; p < kQuantPanelsAtOnce; ++p) {
          _mm_prefetch(reinterpret_cast<const char*>(next.panels + p * next.panel_bytes), _MM_HINT_T1);
        }
      }
      next.count -= lines;
      const UnpackedScales<kForm> scales{chunk.floats + j * kBlockFloats<kForm> + at * kQuantLanes};
      MemorySums sums{out + at * kQuantLanes};
      const UnpackedWeights weights{chunk.bytes + j * kUnpackedBlockBytes + at * kQuantStepBytes};
      one_block<kForm, kRows, kCount>(weights, scales, x + j, x_stride, sums);
    }
  }
}

template <QuantForm kForm>
void chunk_some_rows(Chunk chunk, int count, const QuantisedBlock* x, int64_t x_stride, float* out, int64_t rows,
                     NextLines next) {
  constexpr int kMost = Simd::tile_rows(kForm);
  static_assert(kMost <= 6);
  switch (rows) {
    case 1: return chunk_rows<kForm, 1>(chunk, count, x, x_stride, out, next);
    case 2: return chunk_rows<kForm, 2>(chunk, count, x, x_stride, out, next);
    case 3: return chunk_rows<kForm, 3>(chunk, count, x, x_stride, out, next);
    case 4: return chunk_rows<kForm, 4>(chunk, count, x, x_stride, out, next);
    case 5:
      if constexpr (kMost >= 5) return chunk_rows<kForm, 5>(chunk, count, x, x_stride, out, next);
      break;
    default:
      if constexpr (kMost >= 6) return chunk_rows<kForm, 6>(chunk, count, x, x_stride, out, next);
      break;
  }
}

template <QuantForm kForm>
void tiled_panels(const QuantKernelArgs& args) {
  const QuantForm form = whole_form<kForm>(args);
  auto* bytes = reinterpret_cast<uint8_t*>(args.work);
  const Chunk chunk{bytes, reinterpret_cast<float*>(bytes + kQuantChunkBlocks * kUnpackedBlockBytes)};
  std::fill_n(args.out, args.rows * kQuantTileColumns, 0.0f);
  const int64_t tiles = ceil_div(args.rows, Simd::tile_rows(tile_form(kForm)));
  for (int64_t first = 0; first < args.blocks; first += kQuantChunkBlocks) {
    const int count = static_cast<int>(std::min<int64_t>(kQuantChunkBlocks, args.blocks - first));
    unpack_chunk<kForm>(args, first, count, chunk);
    const int chunk_lines = form.group_bytes() * kQuantChunkBlocks / form.group_blocks() / 64;
    const int64_t after = first + kQuantChunkBlocks;  // in these panels or, past their end, the next four
    const auto* next =
        reinterpret_cast<const uint8_t*>(args.panels) +
        (after < args.blocks ? after / form.group_blocks() * form.group_bytes() : kQuantPanelsAtOnce * args.panel_bytes);
    for (int64_t t = 0; t < tiles; ++t) {  // as even as can be: 7 rows are 4 + 3, not 6 + 1
      const int64_t begin = args.rows * t / tiles, end = args.rows * (t + 1) / tiles;
      const int64_t line = chunk_lines * t / tiles;
      const int lines = static_cast<int>(chunk_lines * (t + 1) / tiles - line);
      chunk_some_rows<tile_form(kForm)>(chunk, count, args.x + begin * args.blocks + first, args.blocks,
                                        args.out + begin * kQuantTileColumns, end - begin,
                                        {next + line * 64, args.panel_bytes, lines});
    }
  }
}

template <QuantForm kForm>
void tiled(const QuantKernelArgs& args) {
  if (args.panel_count == kQuantPanelsAtOnce) return tiled_panels<kForm>(args);
  for (int64_t row = 0; row < args.rows; row += kQuantDirectRows) {  // the last few panels of a matrix
    QuantKernelArgs some = args;
    some.rows = std::min<int64_t>(kQuantDirectRows, args.rows - row);
    some.x += row * args.blocks;
    some.out += row * kQuantTileColumns;
    direct<kForm>(some);
  }
}

template <size_t... kIndices>
QuantKernel choose_kernel(QuantForm form, std::index_sequence<kIndices...>) {
  form.blocks = 0;
  QuantKernel kernel{};
  const bool found =
      ((form == kQuantForms[kIndices] && (kernel = {Simd::kName, start_factor(form, Simd::zero(kQuantForms[kIndices])),
                                                    direct<kQuantForms[kIndices]>, tiled<kQuantForms[kIndices]>},
                                          true)) ||
       ...);
  CHORAL_CHECK(found, "a form that matrices are packed in");
  return kernel;
}

QuantKernel choose_kernel(QuantForm form) { return choose_kernel(form, std::make_index_sequence<kQuantForms.size()>()); }
