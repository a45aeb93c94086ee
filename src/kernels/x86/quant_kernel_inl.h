// The quantised GEMM's kernels, written once over `Simd`, which the including .cc defines for its instruction set together
// with CHORAL_QUANT_TARGET (a function target attribute) and CHORAL_SIMD (that and always_inline). Included once by each of
// quant_avx2.cc, quant_avxvnni_inl.h, quant_avx512.cc, quant_vnni.cc inside their own unnamed namespace. Nothing here is a
// lambda: lambdas do not inherit target attributes.
//
// One block of one tile: for each scale of the block, kSteps steps of   sum[row][vector] += weights(step) . x(row, step)
// in exact int32, then  f = fma(float(sum), d * s_x, f);  at the end, for types with a minimum,  f = fma(min, sum_x, f).
// Sums and weights pass through empty asm statements, which hold each in one register: left alone, g++ 12 loads weights again
// for every row and spills sums, and the loop runs at half the speed. No include guard: see above.

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
struct alignas(16) CodeValues {
  std::array<uint8_t, 16> of;
};
template <QuantForm kForm>
CodeValues code_values(QuantCodes codes) {
  CodeValues values{};
  if constexpr (kForm.is_codebook()) {
    values.of = quant_code_values(codes);
    for (uint8_t& v : values.of) v = static_cast<uint8_t>(v - kForm.zero() + Simd::zero(kForm));
  }
  return values;
}

// Integers of step kStep, vector v, from a packed block: as stored, or what stored codes stand for.
template <QuantForm kForm, int kStep>
CHORAL_SIMD Bytes packed_step(const uint8_t* block, const CodeValues& values, int v) {
  const uint8_t* p = block + v * kVectorBytes;
  if constexpr (kForm.bits < 4) {
    Bytes codes = Simd::or_bits<-2 * (kStep % 4), 0x03>(Bytes{}, Simd::load(p + kStep / 4 * kQuantStepBytes));
    if constexpr (kForm.bits == 3) codes = Simd::or_bits<2 - kStep, 0x04>(codes, Simd::load(p + 2 * kQuantStepBytes));
    if constexpr (kForm.is_codebook()) return Simd::lookup(values.of.data(), codes);
    return codes;
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
    if constexpr (kForm.is_codebook()) return Simd::lookup(values.of.data(), nibbles);
    return nibbles;
  }
}

// Weights of a block as bytes, from one packed panel or from several panels of a tile.
template <QuantForm kForm>
struct PackedWeights {
  const uint8_t* block;
  const CodeValues& values;
  template <int kStep>
  CHORAL_SIMD void step(int v, Simd::Weight<kForm.value_bits()>& w) const {
    w.set(packed_step<kForm, kStep>(block, values, v));
  }
};
// Weights of a block of neighbouring panels `stride` bytes apart: as packed, or a byte each, as make_chunk() leaves them.
template <QuantForm kForm>
struct TileWeights {
  const uint8_t* block;
  int64_t stride;
  template <int kStep>
  CHORAL_SIMD void step(int v, Simd::Weight<kForm.bits>& w) const {
    const uint8_t* panel = block + v / kVectors * stride;
    if constexpr (Simd::reads_packed(kForm)) {
      w.set(packed_step<kForm, kStep>(panel, CodeValues{}, v % kVectors));  // no codes
    } else {
      w.load(panel + kStep * kQuantStepBytes + v % kVectors * kVectorBytes);
    }
  }
};

// How many floats a column of a block has: scales and minimums.
constexpr int scale_count(QuantForm form) { return form.sub_blocks() * (form.has_min() ? 2 : 1); }

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
    const Floats floats = Simd::load_floats(reinterpret_cast<const float*>(header) + v * kVectorLanes);  // where d is one
    if constexpr (kForm.has_float_scales()) return floats;
    if constexpr (kForm.scales == QuantScales::kD) return Simd::halves(halves + 32 * index);
    if constexpr (kForm.scales == QuantScales::kDM) return Simd::halves(halves);
    if constexpr (kForm.scales == QuantScales::kK)
      return Simd::mul(Simd::halves(halves), Simd::unsigned_bytes(small + 16 * index));
    if constexpr (kForm.scales == QuantScales::kK8) return Simd::mul(floats, Simd::signed_bytes(small + 16 * index));
    if constexpr (kForm.scales == QuantScales::kK16M)
      return Simd::mul(Simd::halves(halves), Simd::template nibbles<0>(small + 32 * index + 16 * kSub));
    return Simd::mul(floats, Simd::signed_bytes(small + 32 * index + 16 * kSub));
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
  CHORAL_SIMD Bytes negatives(int v) const {
    return Simd::load(reinterpret_cast<const uint8_t*>(floats + scale_count(kForm) * kQuantTileColumns + v * kVectorLanes));
  }
};

// Where a tile's float sums live between blocks.
template <int kRows, int kCount>
struct RegisterSums {
  Floats f[kRows][kCount];
  CHORAL_SIMD Floats get(int row, int v) const { return f[row][v]; }
  CHORAL_SIMD void set(int row, int v, Floats value) { f[row][v] = value; }
  CHORAL_SIMD void next_block() {}
};
struct MemorySums {
  float* out;
  CHORAL_SIMD Floats get(int row, int v) const { return Simd::load_floats(out + row * kQuantTileColumns + v * kVectorLanes); }
  CHORAL_SIMD void set(int row, int v, Floats value) {
    Simd::store_floats(out + row * kQuantTileColumns + v * kVectorLanes, value);
  }
  // Another address, for all the compiler knows, or it keeps sums in registers that there are not.
  CHORAL_SIMD void next_block() { asm("" : "+r"(out)); }
};

template <int kBits, int kStep, int kLocal, int kRows, int kCount, class Weights>
CHORAL_SIMD void one_step(const Weights& weights, const QuantisedBlock* x, int64_t x_stride,
                          Simd::Sum<kBits> (&sum)[kRows][kCount]) {
  typename Simd::Weight<kBits> w[kCount];
  CHORAL_QUANT_UNROLL
  for (int v = 0; v < kCount; ++v) weights.template step<kStep>(v, w[v]);
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
  constexpr bool kStarts = Simd::zero(kForm) != 0;
  Simd::Sum<kForm.value_bits()> sum[kRows][kCount];
  CHORAL_QUANT_UNROLL
  for (int row = 0; row < kRows; ++row) {
    CHORAL_QUANT_UNROLL
    for (int v = 0; v < kCount; ++v) sum[row][v].begin(kStarts ? x[row * x_stride].start[kSub] : 0);
  }
  all_steps<kForm.value_bits(), kSub * kSteps, kRows, kCount>(Steps<kSub * kSteps, kSteps>(), weights, x, x_stride, sum);
  CHORAL_QUANT_UNROLL
  for (int v = 0; v < kCount; ++v) {
    const Floats d = scales.template d<kSub>(v);
    CHORAL_QUANT_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const QuantisedBlock& block = x[row * x_stride];
      Bytes total = sum[row][v].template total<kStarts>(block.start[kSub]);
      if constexpr (kForm.bits == kQuantSplitBits) total = Simd::add(total, scales.negatives(v));
      sums.set(row, v, Simd::fma(Simd::to_floats(total), Simd::mul(d, Simd::splat(block.scale)), sums.get(row, v)));
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
  const CodeValues values = code_values<kForm>(args.form.codes);
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
        const QuantisedBlock* again = x;
        // Another address for each panel, for all the compiler knows, or it keeps x in registers that there are not.
        if constexpr (!Simd::kSumsInRegisters) asm volatile("" : "+r"(again));
        one_block<kForm, kRows, kVectors>(PackedWeights<kForm>{block, values}, PackedScales<kForm>{header, j}, again, blocks,
                                          sums[p]);
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

// ---- tiled: chunks of some blocks of four panels; every row runs over one while it is in L1 ------------------------

// What tiles must know of a form: fewer templates. Simd::tile_bits says which widths are multiplied alike.
constexpr QuantForm tile_form(QuantForm form) {
  return {Simd::tile_bits(form.value_bits()), form.scales == QuantScales::kFM || form.scales == QuantScales::kK16M ? form.scales
                                              : form.has_min()         ? QuantScales::kDM
                                              : form.sub_blocks() == 2 ? QuantScales::kK16
                                                                       : QuantScales::kD};
}

// Of a tile's form: blocks of a chunk, floats of a block of four panels, bytes of an unpacked block of one panel.
constexpr bool is_split(QuantForm form) { return form.bits == kQuantSplitBits; }
constexpr int chunk_blocks(QuantForm form) { return is_split(form) ? kQuantChunkBlocks / 2 : kQuantChunkBlocks; }
constexpr int block_floats(QuantForm form) { return (scale_count(form) + (is_split(form) ? 1 : 0)) * kQuantTileColumns; }
constexpr int unpacked_bytes(QuantForm form) { return (is_split(form) ? 2 : 1) * kQuantSteps * kQuantStepBytes; }

// The blocks of a chunk, of the first of four panels `stride` bytes apart, and as floats for each block
// [d and then min per sub-block, and for split weights, as int32, the sum of the negative ones' magnitudes][panel][16].
struct Chunk {
  const uint8_t* blocks[kQuantChunkBlocks];
  int64_t stride;
  float* floats;
  int count;
};
// What a tile fetches for the next chunk, or of what goes along, a few lines a block: all at once would fill the line buffers
// and stall.
struct NextLines {
  const uint8_t* panels;
  int64_t panel_bytes;
  int count;  // of each of four panels
};
// What goes along with a call, in near-equal shares.
class AlongLines {
 public:
  AlongLines(std::span<const std::span<const std::byte>> runs, int64_t shares) : runs_(runs), shares_(shares) {
    for (const auto& run : runs) lines_ += lines_of(run);
  }
  // The next share: a quarter of it in each of four places, of one run.
  NextLines take() {
    const int64_t wanted = lines_ * ++taken_shares_ / shares_ - taken_lines_;
    if (wanted <= 0 || runs_.empty()) return {nullptr, 0, 0};
    const auto& run = runs_.front();
    const int64_t lines = std::min(wanted, lines_of(run) - taken_of_run_), quarter = ceil_div(lines, kQuantPanelsAtOnce);
    const auto* begin = reinterpret_cast<const uint8_t*>(run.data()) + taken_of_run_ * kLineBytes;
    taken_lines_ += lines;
    taken_of_run_ += lines;
    if (taken_of_run_ == lines_of(run)) {
      runs_ = runs_.subspan(1);
      taken_of_run_ = 0;
    }
    return {begin, quarter * kLineBytes, static_cast<int>(quarter)};
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  static int64_t lines_of(std::span<const std::byte> run) { return ceil_div(std::ssize(run), kLineBytes); }

  std::span<const std::span<const std::byte>> runs_;
  int64_t shares_, taken_shares_ = 0, lines_ = 0, taken_lines_ = 0, taken_of_run_ = 0;
};

template <QuantForm kForm, int... kSteps>
CHORAL_SIMD void unpack_steps(std::integer_sequence<int, kSteps...>, const uint8_t* block, const CodeValues& values, uint8_t* out,
                              float* negatives) {
  CHORAL_QUANT_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    if constexpr (constexpr int kBits = tile_form(kForm).bits; kBits == kQuantSplitBits) {
      Bytes sum = Simd::zeros();
      ((sum = Simd::Weight<kBits>::split(packed_step<kForm, kSteps>(block, values, v),
                                         out + kSteps * kQuantStepBytes + v * kVectorBytes, sum)),
       ...);
      Simd::store(reinterpret_cast<uint8_t*>(negatives + v * kVectorLanes), sum);
    } else {
      (Simd::store(out + kSteps * kQuantStepBytes + v * kVectorBytes, packed_step<kForm, kSteps>(block, values, v)), ...);
    }
  }
}

// Blocks [first, first + chunk.count) of four panels. Their weights are unpacked to bytes in `work`, unless tiles read them as
// packed; scales always become floats.
template <QuantForm kForm>
CHORAL_QUANT_TARGET void make_chunk(const QuantKernelArgs& args, int64_t first, uint8_t* work, Chunk& chunk) {
  constexpr bool kUnpack = !Simd::reads_packed(kForm);
  constexpr int kBytes = unpacked_bytes(tile_form(kForm)), kFloats = block_floats(tile_form(kForm));
  const QuantForm form = whole_form<kForm>(args);
  const CodeValues values = code_values<kForm>(args.form.codes);
  const auto* panels = reinterpret_cast<const uint8_t*>(args.panels);
  chunk.stride = kUnpack ? kBytes : args.panel_bytes;
  for (int j = 0; j < chunk.count; ++j) {
    const uint8_t* header = panels + (first + j) / form.group_blocks() * form.group_bytes();
    const int index = static_cast<int>((first + j) % form.group_blocks());
    const uint8_t* block = header + kForm.header_bytes() + index * kForm.block_bytes();
    uint8_t* bytes = work + j * kQuantPanelsAtOnce * kBytes;
    chunk.blocks[j] = kUnpack ? bytes : block;
    for (int p = 0; p < kQuantPanelsAtOnce; ++p, block += args.panel_bytes, header += args.panel_bytes) {
      float* out = chunk.floats + j * kFloats + p * kQuantLanes;
      if constexpr (kUnpack)
        unpack_steps<kForm>(Steps<0, kQuantSteps>(), block, values, bytes + p * kBytes, out + kFloats - kQuantTileColumns);
      const PackedScales<kForm> scales{header, index};
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

// The blocks of a chunk over panels [at, at + Simd::kTilePanels).
template <QuantForm kForm, int kRows, class Sums>
CHORAL_SIMD void blocks_of_chunk(const Chunk& chunk, int at, const QuantisedBlock* x, int64_t x_stride, NextLines& next,
                                 int lines_per_block, Sums& sums) {
  const int count = chunk.count;
  const int64_t stride = chunk.stride;
  for (int j = 0; j < count; ++j) {
    const int lines = std::min(lines_per_block, next.count);
    for (int i = 0; i < lines; ++i, next.panels += 64) {
      for (int p = 0; p < kQuantPanelsAtOnce; ++p) {
        _mm_prefetch(reinterpret_cast<const char*>(next.panels + p * next.panel_bytes), _MM_HINT_T0);
      }
    }
    next.count -= lines;
    const UnpackedScales<kForm> scales{chunk.floats + j * block_floats(kForm) + at * kQuantLanes};
    const TileWeights<kForm> weights{chunk.blocks[j] + at * stride, stride};
    one_block<kForm, kRows, Simd::kTilePanels * kVectors>(weights, scales, x + j, x_stride, sums);
    sums.next_block();
  }
}

// kRows rows over a chunk of four panels, Simd::kTilePanels of them at a time.
template <QuantForm kForm, int kRows>
CHORAL_QUANT_TARGET __attribute__((noinline)) void chunk_rows(const Chunk& chunk, const QuantisedBlock* x, int64_t x_stride,
                                                              float* out, NextLines next) {
  constexpr int kCount = Simd::kTilePanels * kVectors;
  const int lines_per_block = static_cast<int>(ceil_div(next.count * Simd::kTilePanels, kQuantPanelsAtOnce * chunk.count));
  for (int at = 0; at < kQuantPanelsAtOnce; at += Simd::kTilePanels) {
    MemorySums memory{out + at * kQuantLanes};
    if constexpr (Simd::kSumsInRegisters) {
      RegisterSums<kRows, kCount> sums;
      CHORAL_QUANT_UNROLL
      for (int row = 0; row < kRows; ++row) {
        CHORAL_QUANT_UNROLL
        for (int v = 0; v < kCount; ++v) sums.set(row, v, memory.get(row, v));
      }
      blocks_of_chunk<kForm, kRows>(chunk, at, x, x_stride, next, lines_per_block, sums);
      CHORAL_QUANT_UNROLL
      for (int row = 0; row < kRows; ++row) {
        CHORAL_QUANT_UNROLL
        for (int v = 0; v < kCount; ++v) memory.set(row, v, sums.get(row, v));
      }
    } else {
      blocks_of_chunk<kForm, kRows>(chunk, at, x, x_stride, next, lines_per_block, memory);
    }
  }
}

template <QuantForm kForm, int... kRows>
void chunk_some_rows(std::integer_sequence<int, kRows...>, const Chunk& chunk, const QuantisedBlock* x, int64_t x_stride,
                     float* out, int64_t rows, NextLines next) {
  using ChunkRows = void (*)(const Chunk&, const QuantisedBlock*, int64_t, float*, NextLines);
  static constexpr ChunkRows kChunkRows[] = {chunk_rows<kForm, kRows>...};
  kChunkRows[rows - 1](chunk, x, x_stride, out, next);
}

template <QuantForm kForm>
void tiled_panels(const QuantKernelArgs& args) {
  constexpr QuantForm kTileForm = tile_form(kForm);
  constexpr int kTileRows = Simd::tile_rows(kTileForm), kBlocks = chunk_blocks(kTileForm);
  static_assert(!is_split(kTileForm) || kTileForm.sub_blocks() == 1, "a block has one sum of negative magnitudes");
  static_assert(kBlocks * (kQuantPanelsAtOnce * unpacked_bytes(kTileForm) + block_floats(kTileForm) * int64_t{sizeof(float)}) <=
                kQuantWorkBytes);
  const QuantForm form = whole_form<kForm>(args);
  auto* bytes = reinterpret_cast<uint8_t*>(args.work);
  Chunk chunk;
  chunk.floats = reinterpret_cast<float*>(bytes + kBlocks * kQuantPanelsAtOnce * unpacked_bytes(kTileForm));
  std::fill_n(args.out, args.rows * kQuantTileColumns, 0.0f);
  const int64_t tiles = ceil_div(args.rows, kTileRows);
  // The first tiles fetch weights, the others what goes along.
  const int64_t weight_tiles = args.along.empty() ? tiles : ceil_div(tiles, int64_t{2});
  AlongLines along(args.along, ceil_div(args.blocks, kBlocks) * (tiles - weight_tiles));
  for (int64_t first = 0; first < args.blocks; first += kBlocks) {
    chunk.count = static_cast<int>(std::min<int64_t>(kBlocks, args.blocks - first));
    make_chunk<kForm>(args, first, bytes, chunk);
    const int chunk_lines = form.group_bytes() * kBlocks / form.group_blocks() / 64;
    const int64_t after = first + kBlocks;  // in these panels or, past their end, the next four; headers shared by their blocks
    const auto* next =
        reinterpret_cast<const uint8_t*>(args.panels) +
        (after < args.blocks ? after * form.group_bytes() / form.group_blocks() : kQuantPanelsAtOnce * args.panel_bytes);
    for (int64_t t = 0; t < tiles; ++t) {  // as even as can be: 7 rows are 4 + 3, not 6 + 1
      const int64_t begin = args.rows * t / tiles, end = args.rows * (t + 1) / tiles;
      const int64_t line = chunk_lines * t / weight_tiles;
      const int lines = static_cast<int>(chunk_lines * (t + 1) / weight_tiles - line);
      chunk_some_rows<kTileForm>(Steps<1, kTileRows>(), chunk, args.x + begin * args.blocks + first, args.blocks,
                                 args.out + begin * kQuantTileColumns, end - begin,
                                 t < weight_tiles ? NextLines{next + line * 64, args.panel_bytes, lines} : along.take());
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
  if (is_of_grid(form.codes)) form.codes = kAnyGrid;
  QuantKernel kernel{};
  const bool found =
      ((form == kQuantForms[kIndices] &&
        (kernel = {Simd::kName, start_factor(form, Simd::zero(kQuantForms[kIndices])), direct<kQuantForms[kIndices]>,
                   tiled<kQuantForms[kIndices]>, Simd::tile_rows(tile_form(kQuantForms[kIndices]))},
         true)) ||
       ...);
  CHORAL_CHECK(found, "a form that matrices are packed in");
  return kernel;
}

QuantKernel choose_kernel(QuantForm form) { return choose_kernel(form, std::make_index_sequence<kQuantForms.size()>()); }
