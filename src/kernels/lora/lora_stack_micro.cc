#include "kernels/lora/lora_stack_micro.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lora/lora_stack_micro.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "base/float16.h"
#include "kernels/lora/lora_float_inl.h"

HWY_BEFORE_NAMESPACE();
namespace choral::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kColumns = 16;
constexpr int64_t kLanes = HWY_MIN(hn::MaxLanes(F32()), 16);

template <DType kAs>
HWY_INLINE VF round_to(VF v) {
  if constexpr (kAs == DType::kBF16) return round_to_bf16(v);
  if constexpr (kAs == DType::kF16) return round_to_f16(v);
  return v;
}

template <DType kType>
HWY_INLINE VF load(const std::byte* p, int64_t i) {
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(p) + i);
  } else {
    const auto bits = hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p) + i);
    return kType == DType::kF16 ? widen_f16(bits) : widen_bf16(bits);
  }
}

template <DType kType>
float load_one(const std::byte* p, int64_t i) {
  float value;
  uint16_t bits;
  if constexpr (kType == DType::kF32) {
    std::memcpy(&value, p + i * 4, sizeof value);
  } else {
    std::memcpy(&bits, p + i * 2, sizeof bits);
    value = kType == DType::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
  }
  return value;
}

template <DType kAs>
float round_one(float v) {
  if constexpr (kAs == DType::kBF16) return to_float(to_bfloat16(v));
  if constexpr (kAs == DType::kF16) return to_float(to_float16(v));
  return v;
}

template <DType kType, DType kAs>
void widen_row_of(const std::byte* row, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(round_to<kAs>(load<kType>(row, i)), F32(), out + i);
  for (; i < count; ++i) out[i] = round_one<kAs>(load_one<kType>(row, i));
}

// Words [4] of 16 rows become 4 rows of 16 words: 128-bit pieces go to their lanes as they are loaded, then 4 × 4 within lanes.
HWY_INLINE void turn_words(const std::byte* const* columns, int64_t offset, VU (&words)[4][kColumns / kLanes]) {
#if HWY_TARGET == HWY_SCALAR
  for (int j = 0; j < 4; ++j) {
    for (int64_t c = 0; c < kColumns; ++c) {
      uint32_t word;
      std::memcpy(&word, columns[c] + offset + j * 4, sizeof word);
      words[j][c] = hn::Set(U32(), word);
    }
  }
#else
  const U32 d;
  const hn::CappedTag<uint32_t, 4> d4;
  const auto piece = [&](int64_t c) HWY_ATTR { return hn::LoadU(d4, reinterpret_cast<const uint32_t*>(columns[c] + offset)); };
  for (int64_t v = 0; v < kColumns / kLanes; ++v) {
    VU rows[4];
    for (int i = 0; i < 4; ++i) {
      const int64_t c = v * kLanes + i;  // rows[i] has columns c, c + 4, … in its lanes
#if HWY_TARGET <= HWY_AVX3
      const hn::Half<U32> d8;
      rows[i] = hn::Combine(d, hn::Combine(d8, piece(c + 12), piece(c + 8)), hn::Combine(d8, piece(c + 4), piece(c)));
#elif HWY_TARGET <= HWY_AVX2
      rows[i] = hn::Combine(d, piece(c + 4), piece(c));
#else
      rows[i] = piece(c);
#endif
    }
    const hn::Repartition<uint64_t, U32> d64;
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, rows[0], rows[1]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, rows[2], rows[3]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[0], rows[1]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[2], rows[3]));
    words[0][v] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
    words[1][v] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
    words[2][v] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
    words[3][v] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
  }
#endif
}

// The half words of `words` as floats.
template <DType kType>
HWY_INLINE VF low_half(VU words) {
  if constexpr (kType == DType::kBF16) return hn::BitCast(F32(), hn::ShiftLeft<16>(words));
  const auto signed_words = hn::BitCast(I32(), hn::And(words, hn::Set(U32(), 0xFFFFu)));
  return widen_f16(hn::DemoteTo(U16(), signed_words));
}
template <DType kType>
HWY_INLINE VF high_half(VU words) {
  if constexpr (kType == DType::kBF16) return hn::BitCast(F32(), hn::And(words, hn::Set(U32(), 0xFFFF0000u)));
  return widen_f16(hn::DemoteTo(U16(), hn::BitCast(I32(), hn::ShiftRight<16>(words))));
}

// 16 bytes of every column, 4 or 8 ranks: take(j, v, values) for rank j of them and vector v of the 16 columns, j ascending.
template <DType kType, DType kAs, class Take>
HWY_INLINE void turn_block(const std::byte* const* columns, int64_t offset, const Take& take) {
  VU words[4][kColumns / kLanes];
  turn_words(columns, offset, words);
  for (int j = 0; j < 4; ++j) {
    if constexpr (kType == DType::kF32) {
      for (int64_t v = 0; v < kColumns / kLanes; ++v) take(j, v, round_to<kAs>(hn::BitCast(F32(), words[j][v])));
    } else {
      for (int64_t v = 0; v < kColumns / kLanes; ++v) take(2 * j, v, round_to<kAs>(low_half<kType>(words[j][v])));
      for (int64_t v = 0; v < kColumns / kLanes; ++v) take(2 * j + 1, v, round_to<kAs>(high_half<kType>(words[j][v])));
    }
  }
}

// The ranks from `begin` on, fewer than a block, padded with zeros: nothing is read past a row's end.
struct LastBlock {
  alignas(16) std::byte bytes[kColumns][16] = {};
  const std::byte* columns[kColumns];

  LastBlock(const std::byte* const* all, int64_t begin_bytes, int64_t count_bytes) {
    for (int64_t c = 0; c < kColumns; ++c) {
      std::memcpy(bytes[c], all[c] + begin_bytes, count_bytes);
      columns[c] = bytes[c];
    }
  }
};

template <DType kType>
constexpr int64_t kValueBytes = kType == DType::kF32 ? 4 : 2;
template <DType kType>
constexpr int64_t kBlockRanks = 16 / kValueBytes<kType>;

template <DType kType, DType kAs>
void turn_panel_of(const std::byte* const* columns, int64_t rank, float* panel) {
  const auto store = [&](int64_t j, int64_t v, VF values)
                         HWY_ATTR { hn::StoreU(values, F32(), panel + j * kColumns + v * kLanes); };
  int64_t j = 0;
  for (; j + kBlockRanks<kType> <= rank; j += kBlockRanks<kType>, panel += kBlockRanks<kType> * kColumns) {
    turn_block<kType, kAs>(columns, j * kValueBytes<kType>, store);
  }
  if (j == rank) return;
  const LastBlock last(columns, j * kValueBytes<kType>, (rank - j) * kValueBytes<kType>);
  turn_block<kType, kAs>(last.columns, 0, store);
}

template <DType kType, DType kAs>
void expand_row_of(const std::byte* const* columns, int64_t rank, const float* middle, float* sums) {
  const F32 d;
  VF acc[kColumns / kLanes];
  for (VF& a : acc) a = hn::Zero(d);
  const auto multiply_add = [&](int64_t j, int64_t v, VF values)
                                HWY_ATTR { acc[v] = hn::MulAdd(hn::Set(d, middle[j]), values, acc[v]); };
  int64_t j = 0;
  for (; j + kBlockRanks<kType> <= rank; j += kBlockRanks<kType>, middle += kBlockRanks<kType>) {
    turn_block<kType, kAs>(columns, j * kValueBytes<kType>, multiply_add);
  }
  if (j < rank) {
    const LastBlock last(columns, j * kValueBytes<kType>, (rank - j) * kValueBytes<kType>);
    turn_block<kType, kAs>(last.columns, 0, [&](int64_t i, int64_t v, VF values) HWY_ATTR {
      if (j + i < rank) multiply_add(i, v, values);
    });
  }
  for (int64_t v = 0; v < kColumns / kLanes; ++v) hn::StoreU(acc[v], d, sums + v * kLanes);
}

void finish_f32(const float* sums, int64_t count, bool add, std::byte* to) {
  const F32 d;
  auto* out = reinterpret_cast<float*>(to);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF sum = hn::LoadU(d, sums + i);
    hn::StoreU(add ? hn::Add(hn::LoadU(d, out + i), sum) : sum, d, out + i);
  }
  for (; i < count; ++i) out[i] = add ? out[i] + sums[i] : sums[i];
}

template <DType kType>
void finish_16(const float* sums, int64_t count, bool add, std::byte* out) {
  [[maybe_unused]] const F32 d;
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  for (; i + kLanes <= count; i += kLanes) {
    VF sum = hn::LoadU(d, sums + i);
    if (add) sum = hn::Add(load<kType>(out, i), sum);
    auto* to = reinterpret_cast<uint16_t*>(out) + i;
    if constexpr (kType == DType::kBF16) {
      const VU bits = hn::ShiftRight<16>(hn::BitCast(U32(), round_to_bf16(sum)));
      hn::StoreU(hn::DemoteTo(U16(), hn::BitCast(I32(), bits)), U16(), to);
    } else {
#if HWY_TARGET <= HWY_AVX2  // F16C
      const hn::Rebind<hwy::float16_t, F32> half;
      hn::StoreU(hn::BitCast(U16(), hn::DemoteTo(half, sum)), U16(), to);
#else
      float values[kLanes];
      hn::StoreU(sum, d, values);
      for (int64_t v = 0; v < kLanes; ++v) to[v] = to_float16(values[v]).bits;
#endif
    }
  }
#endif
  for (; i < count; ++i) {
    const float sum = add ? load_one<kType>(out, i) + sums[i] : sums[i];
    const uint16_t bits = kType == DType::kBF16 ? to_bfloat16(sum).bits : to_float16(sum).bits;
    std::memcpy(out + i * 2, &bits, sizeof bits);
  }
}

// f<type, as> for the types given at run time.
#define CHORAL_BY_TYPES(f, type, as, ...)                                                                                  \
  do {                                                                                                                     \
    if ((as) == DType::kF32 || (as) == (type)) { /* exact */                                                               \
      if ((type) == DType::kF32) return f<DType::kF32, DType::kF32>(__VA_ARGS__);                                          \
      return (type) == DType::kF16 ? f<DType::kF16, DType::kF32>(__VA_ARGS__) : f<DType::kBF16, DType::kF32>(__VA_ARGS__); \
    }                                                                                                                      \
    if ((as) == DType::kF16) {                                                                                             \
      return (type) == DType::kF32 ? f<DType::kF32, DType::kF16>(__VA_ARGS__) : f<DType::kBF16, DType::kF16>(__VA_ARGS__); \
    }                                                                                                                      \
    return (type) == DType::kF32 ? f<DType::kF32, DType::kBF16>(__VA_ARGS__) : f<DType::kF16, DType::kBF16>(__VA_ARGS__);  \
  } while (false)

void widen_row(DType type, DType as, const std::byte* row, int64_t count, float* out) {
  CHORAL_BY_TYPES(widen_row_of, type, as, row, count, out);
}

void turn_panel(DType type, DType as, const std::byte* const* columns, int64_t rank, float* panel) {
  CHORAL_BY_TYPES(turn_panel_of, type, as, columns, rank, panel);
}

void expand_row(DType type, DType as, const std::byte* const* columns, int64_t rank, const float* middle, float* sums) {
  CHORAL_BY_TYPES(expand_row_of, type, as, columns, rank, middle, sums);
}
#undef CHORAL_BY_TYPES

void finish_row(DType type, const float* sums, int64_t count, bool add, std::byte* out) {
  if (type == DType::kF32) return finish_f32(sums, count, add, out);
  return type == DType::kF16 ? finish_16<DType::kF16>(sums, count, add, out) : finish_16<DType::kBF16>(sums, count, add, out);
}

const LoRAStackKernels& table() {
  static constexpr LoRAStackKernels kTable{widen_row, turn_panel, expand_row, finish_row};
  return kTable;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace choral::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/highway_level.h"

namespace choral::kernels {
const LoRAStackKernels& lora_stack_kernels(CpuLevel level) { return CHORAL_AT_LEVEL(level, table)(); }
}  // namespace choral::kernels
#endif  // HWY_ONCE
