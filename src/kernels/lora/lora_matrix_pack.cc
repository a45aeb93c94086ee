// LoRAMatrix::pack: checks, types, and the two layouts of lora_matrix.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/checked_math.h"
#include "base/float16.h"
#include "kernels/lora/lora_matrix.h"
#include "kernels/quant/dequantise.h"

namespace choral::kernels {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 30;  // keeps every product of two dimensions and a type's size within int64

Result<LoRAStore> store_of(DType type) {
  switch (type) {
    case DType::kF32: return LoRAStore::kF32;
    case DType::kF16: return LoRAStore::kF16;
    case DType::kBF16: return LoRAStore::kBF16;
    case DType::kQ8_0: return LoRAStore::kQ8;
    default:
      return unsupported("{} is no type of adapter weights: expected float32, float16, bfloat16 or Q8_0", dtype_name(type));
  }
}

// The narrowest type that holds both exactly.
LoRAStore widest(LoRAStore a, LoRAStore b) { return a == b ? a : LoRAStore::kF32; }

// One type for all slices' `tensor` (A or B).
Result<LoRAStore> choose_store(std::span<const LoRASliceSource> slices, TensorView LoRASliceSource::*tensor, LoRAFormat format) {
  std::optional<LoRAStore> stored;
  for (const LoRASliceSource& slice : slices) {
    CHORAL_TRY(const LoRAStore store, store_of((slice.*tensor).dtype));
    stored = stored ? widest(*stored, store) : store;
  }
  switch (format) {
    case LoRAFormat::kAuto: return stored.value_or(LoRAStore::kF32);
    case LoRAFormat::kF32: return LoRAStore::kF32;
    case LoRAFormat::kF16: return LoRAStore::kF16;
    case LoRAFormat::kBF16: return LoRAStore::kBF16;
    case LoRAFormat::kI8: return LoRAStore::kI8;
  }
  return internal_error("unknown LoRAFormat {}", static_cast<int>(format));
}

Status check_tensor(const TensorView& t, const char* name, const char* shape) {
  if (t.shape.rank() != 2 || t.shape[0] <= 0 || t.shape[1] <= 0 || t.shape[0] > kMaxDim || t.shape[1] > kMaxDim) {
    return invalid_argument("{} has shape {}, expected {}", name, t.shape.to_string(), shape);
  }
  if (!t.device.host_accessible)
    return invalid_argument("{} lies on a device the host cannot read; copy it to the host first", name);
  if (t.data == nullptr) return invalid_argument("{} has no data", name);
  if (t.dtype == DType::kQ8_0 && t.shape[1] % kLoRAChunk != 0) {
    return invalid_argument("{} has rows of {} values, which are no whole blocks of Q8_0", name, t.shape[1]);
  }
  return {};
}

Status check_slice(const LoRASliceSource& slice, int64_t in, int64_t out, int64_t free_from) {
  CHORAL_RETURN_IF_ERROR(check_tensor(slice.a, "lora_A", "[rank, in]"));
  CHORAL_RETURN_IF_ERROR(check_tensor(slice.b, "lora_B", "[out, rank]"));
  if (slice.a.shape[1] != in) {
    return invalid_argument("lora_A has shape {}: the layer has {} inputs", slice.a.shape.to_string(), in);
  }
  if (slice.b.shape[1] != slice.a.shape[0]) {
    return invalid_argument("lora_B {} and lora_A {} disagree on the rank", slice.b.shape.to_string(), slice.a.shape.to_string());
  }
  if (slice.out_begin < free_from || slice.out_begin > out - slice.b.shape[0]) {
    return invalid_argument("lora_B {} at output {} must lie within outputs {} to {}, the ones after the slice before it",
                            slice.b.shape.to_string(), slice.out_begin, free_from, out);
  }
  if (!std::isfinite(slice.scale)) return invalid_argument("the scale {} is not finite", slice.scale);
  return {};
}

Status check_source(const LoRAMatrixSource& source) {
  if (source.in <= 0 || source.in > kMaxDim || source.out <= 0 || source.out > kMaxDim) {
    return invalid_argument("a layer of {} inputs and {} outputs", source.in, source.out);
  }
  const auto fits = [&](std::span<const float> v) { return v.empty() || std::ssize(v) == source.out; };
  if (!fits(source.output_factor)) {
    return invalid_argument("output_factor has {} values for {} outputs", source.output_factor.size(), source.out);
  }
  if (!fits(source.offset)) return invalid_argument("offset has {} values for {} outputs", source.offset.size(), source.out);
  int64_t free_from = 0;
  for (size_t i = 0; i < source.slices.size(); ++i) {
    const LoRASliceSource& slice = source.slices[i];
    if (Status s = check_slice(slice, source.in, source.out, free_from); !s.ok()) {
      return std::move(s).while_(fmt::format("packing slice {}", i));
    }
    free_from = slice.out_begin + slice.b.shape[0];
  }
  return {};
}

// Stored bits of one value; `lost` is set when a finite value has no finite form.
void put(LoRAStore store, float value, std::byte* at, bool& lost) {
  if (store == LoRAStore::kF32) {
    std::memcpy(at, &value, sizeof value);
  } else if (store == LoRAStore::kI8) {
    const auto q = static_cast<int8_t>(value);  // is a rounded quotient already
    std::memcpy(at, &q, sizeof q);
  } else {
    const uint16_t bits = store == LoRAStore::kBF16 ? to_bfloat16(value).bits : to_float16(value).bits;
    const float back = store == LoRAStore::kBF16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
    lost |= std::isfinite(value) && !std::isfinite(back);
    std::memcpy(at, &bits, sizeof bits);
  }
}

// `values` are whole rows of 16, two to a pair; a last one without partner stands alone.
void put_pairs(LoRAStore store, std::span<const float> values, std::byte* out, bool& lost) {
  const int64_t bytes = value_bytes(store), rows = std::ssize(values) / 16;
  for (int64_t row = 0; row < rows; ++row) {
    const bool interleaved = store == LoRAStore::kBF16 && row / 2 * 2 + 1 < rows;
    for (int64_t i = 0; i < 16; ++i) {
      const int64_t at = interleaved ? row / 2 * 32 + i * 2 + row % 2 : row * 16 + i;
      put(store, values[row * 16 + i], out + at * bytes, lost);
    }
  }
}

// The usual case, a type packed as itself: bits are moved and no value is looked at. Loading is as fast as this is.
bool keeps_bits(DType type, LoRAStore store) {
  return (type == DType::kBF16 && store == LoRAStore::kBF16) || (type == DType::kF16 && store == LoRAStore::kF16) ||
         (type == DType::kF32 && store == LoRAStore::kF32);
}

// 32 values of one row of A, as they lie in the file, as a pair.
void move_chunk(LoRAStore store, const std::byte* from, std::byte* to) {
  const auto bytes = static_cast<size_t>(kLoRAChunk * value_bytes(store));
  if (store != LoRAStore::kBF16) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::array<uint16_t, 32> values, pair;
  std::memcpy(values.data(), from, bytes);
  for (size_t i = 0; i < 16; ++i) {
    pair[2 * i] = values[i];
    pair[2 * i + 1] = values[16 + i];
  }
  std::memcpy(to, pair.data(), bytes);
}

// A block of Q8_0: its scale, and where its 32 values are.
struct Q8Block {
  float scale;
  const std::byte* values;
};
Q8Block q8_block(const std::byte* row, int64_t index) {
  const std::byte* block = row + index * facts(DType::kQ8_0).block_bytes;
  Float16 scale;
  std::memcpy(&scale.bits, block, sizeof scale.bits);
  return {to_float(scale), block + sizeof scale.bits};
}

// `units` of each of `columns` columns, which lie `column_bytes` apart, become rows of 16 units.
template <class Unit>
void turn(const std::byte* from, int64_t column_bytes, int64_t columns, int64_t units, std::byte* to) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Unit));
  for (int64_t u = 0; u < units; ++u) {
    for (int64_t c = 0; c < columns; ++c) {
      std::memcpy(to + (u * kLoRAColumns + c) * kBytes, from + c * column_bytes + u * kBytes, kBytes);
    }
  }
}

// `columns` columns of B, as they lie in the file, into a panel from its column `at` on. Two neighbours of a bf16 column are one
// word of a pair.
void move_columns(LoRAStore store, const std::byte* from, int64_t rank, int64_t columns, int64_t at, std::byte* panel) {
  const int64_t column_bytes = rank * value_bytes(store);
  if (store == LoRAStore::kF32) return turn<uint32_t>(from, column_bytes, columns, rank, panel + at * 4);
  if (store == LoRAStore::kF16) return turn<uint16_t>(from, column_bytes, columns, rank, panel + at * 2);
  const int64_t pairs = rank / 2;
  turn<uint32_t>(from, column_bytes, columns, pairs, panel + at * 4);
  turn<uint16_t>(from + pairs * 4, column_bytes, columns, rank % 2, panel + pairs * kLoRAColumns * 4 + at * 2);
}

// values := rint(values / s), returns s = max|v| / 127, or 0 for zeros. Non-finite values have no s.
Result<float> quantise(std::span<float> values) {
  float largest = 0;
  for (const float v : values) {
    if (!std::isfinite(v)) return invalid_argument("the value {} cannot be stored as int8", v);
    largest = std::max(largest, std::fabs(v));
  }
  const float scale = largest / 127.0F;
  for (float& v : values) v = scale == 0 ? 0.0F : std::clamp(std::nearbyint(v / scale), -127.0F, 127.0F);
  return scale;
}

}  // namespace

class LoRAPacker {
 public:
  static Result<LoRAMatrix> lay_out(const LoRAMatrixSource& source, LoRAFormat format) {
    CHORAL_RETURN_IF_ERROR(check_source(source));
    LoRAMatrix m;
    m.in_ = source.in;
    m.out_ = source.out;
    CHORAL_TRY(m.a_store_, choose_store(source.slices, &LoRASliceSource::a, format));
    CHORAL_TRY(m.b_store_, choose_store(source.slices, &LoRASliceSource::b, format));
    m.output_factor_.assign(source.output_factor.begin(), source.output_factor.end());
    m.offset_.assign(source.offset.begin(), source.offset.end());
    CHORAL_RETURN_IF_ERROR(place_slices(source, m));
    return m;
  }

  LoRAPacker(LoRAMatrix& m, std::byte* panels) : m_(m), panels_(panels) {}

  Status fill(const LoRAMatrixSource& source) {
    for (size_t i = 0; i < source.slices.size(); ++i) {
      Status s = pack_a(source.slices[i], m_.slices_[i]);
      if (s.ok()) s = pack_b(source.slices[i], m_.slices_[i]);
      if (s.ok() && lost_) s = invalid_argument("a value is too large for the 16-bit type it shall be stored as");
      if (!s.ok()) return std::move(s).while_(fmt::format("packing slice {}", i));
    }
    m_.panels_ = panels_;
    return {};
  }

 private:
  static Status place_slices(const LoRAMatrixSource& source, LoRAMatrix& m) {
    for (const LoRASliceSource& slice : source.slices) m.rank_ += slice.a.shape[0];
    if (m.rank_ > kMaxDim) return too_large("the slices' ranks add up to {}", m.rank_);
    int64_t bytes = m.rank_ * ceil_div(m.in_, kLoRAChunk) * chunk_bytes(m.a_store_);
    int64_t rank = 0;
    for (const LoRASliceSource& source_slice : source.slices) {
      LoRAMatrix::Slice slice;
      slice.out_begin = source_slice.out_begin;
      slice.out_end = slice.out_begin + source_slice.b.shape[0];
      slice.rank_begin = rank;
      slice.rank = source_slice.a.shape[0];
      slice.b_offset = bytes;
      rank += slice.rank;
      const int64_t panels = ceil_div(slice.out_end, kLoRAColumns) - slice.out_begin / kLoRAColumns;
      bytes += panels * panel_bytes(m.b_store_, slice.rank);
      m.slices_.push_back(slice);
    }
    m.panel_bytes_ = bytes;
    m.row_scale_.resize(m.rank_);
    return {};
  }

  // Where row j of A begins; its chunks lie *stride bytes apart.
  std::byte* a_row(int64_t j, int64_t* stride) const {
    const int64_t chunks = ceil_div(m_.in_, kLoRAChunk), bytes = chunk_bytes(m_.a_store_);
    const int64_t group = j / LoRAMatrix::kShrinkRanks * LoRAMatrix::kShrinkRanks;
    *stride = std::min(LoRAMatrix::kShrinkRanks, m_.rank_ - group) * bytes;
    return panels_ + (group * chunks + j - group) * bytes;
  }

  void move_a(const LoRASliceSource& source, const LoRAMatrix::Slice& slice) {
    const int64_t bytes = value_bytes(m_.a_store_), chunk = kLoRAChunk * bytes;
    const int64_t whole = m_.in_ / kLoRAChunk, tail = m_.in_ % kLoRAChunk;
    for (int64_t i = 0; i < slice.rank; ++i) {
      m_.row_scale_[slice.rank_begin + i] = source.scale;
      int64_t stride = 0;
      std::byte* to = a_row(slice.rank_begin + i, &stride);
      const std::byte* from = source.a.row(i);
      for (int64_t c = 0; c < whole; ++c) move_chunk(m_.a_store_, from + c * chunk, to + c * stride);
      if (tail == 0) continue;
      std::array<std::byte, kLoRAChunk * sizeof(float)> padded{};
      std::memcpy(padded.data(), from + whole * chunk, tail * bytes);
      move_chunk(m_.a_store_, padded.data(), to + whole * stride);
    }
  }

  void move_b(const LoRASliceSource& source, const LoRAMatrix::Slice& slice) {
    const int64_t bytes = panel_bytes(m_.b_store_, slice.rank);
    std::byte* to = panels_ + slice.b_offset;
    for (int64_t first = slice.out_begin / kLoRAColumns * kLoRAColumns; first < slice.out_end; first += kLoRAColumns) {
      const int64_t begin = std::max(first, slice.out_begin), end = std::min(first + kLoRAColumns, slice.out_end);
      if (end - begin < kLoRAColumns) std::memset(to, 0, bytes);
      move_columns(m_.b_store_, source.b.row(begin - slice.out_begin), slice.rank, end - begin, begin - first, to);
      to += bytes;
    }
  }

  void move_a_blocks(const LoRASliceSource& source, const LoRAMatrix::Slice& slice) {
    for (int64_t i = 0; i < slice.rank; ++i) {
      m_.row_scale_[slice.rank_begin + i] = source.scale;
      int64_t stride = 0;
      std::byte* to = a_row(slice.rank_begin + i, &stride);
      for (int64_t c = 0; c < m_.in_ / kLoRAChunk; ++c, to += stride) {
        const Q8Block block = q8_block(source.a.row(i), c);
        std::memcpy(to, &block.scale, sizeof block.scale);
        std::memcpy(to + sizeof block.scale, block.values, kLoRAChunk);
      }
    }
  }

  void move_b_blocks(const LoRASliceSource& source, const LoRAMatrix::Slice& slice) {
    std::byte* to = panels_ + slice.b_offset;
    for (int64_t first = slice.out_begin / kLoRAColumns * kLoRAColumns; first < slice.out_end; first += kLoRAColumns) {
      for (int64_t b = 0; b < slice.rank / kLoRAChunk; ++b) {
        std::array<float, kLoRAColumns> scales{};
        std::byte* values = to + sizeof scales;
        std::memset(values, 0, kLoRAChunk * kLoRAColumns);
        for (int64_t c = std::max(first, slice.out_begin); c < std::min(first + kLoRAColumns, slice.out_end); ++c) {
          const Q8Block block = q8_block(source.b.row(c - slice.out_begin), b);
          scales[c - first] = block.scale;
          for (int64_t j = 0; j < kLoRAChunk; ++j) values[j * kLoRAColumns + c - first] = block.values[j];
        }
        std::memcpy(to, scales.data(), sizeof scales);
        to = values + kLoRAChunk * kLoRAColumns;
      }
    }
  }

  Status pack_a(const LoRASliceSource& source, const LoRAMatrix::Slice& slice) {
    if (m_.a_store_ == LoRAStore::kQ8) {
      move_a_blocks(source, slice);
      return {};
    }
    if (keeps_bits(source.a.dtype, m_.a_store_)) {
      move_a(source, slice);
      return {};
    }
    const int64_t chunks = ceil_div(m_.in_, kLoRAChunk);
    std::vector<float> row(chunks * kLoRAChunk, 0.0F);
    for (int64_t i = 0; i < slice.rank; ++i) {
      dequantise_row(source.a.dtype, source.a.row(i), m_.in_, row.data());
      const int64_t j = slice.rank_begin + i;
      m_.row_scale_[j] = source.scale;
      if (m_.a_store_ == LoRAStore::kI8) {
        CHORAL_TRY(const float scale, quantise(row));
        m_.row_scale_[j] *= scale;
      }
      int64_t stride = 0;
      std::byte* to = a_row(j, &stride);
      for (int64_t c = 0; c < chunks; ++c) {
        put_pairs(m_.a_store_, std::span(row).subspan(c * kLoRAChunk, kLoRAChunk), to + c * stride, lost_);
      }
    }
    return {};
  }

  Status pack_b(const LoRASliceSource& source, const LoRAMatrix::Slice& slice) {
    if (m_.b_store_ == LoRAStore::kQ8) {
      move_b_blocks(source, slice);
      return {};
    }
    if (keeps_bits(source.b.dtype, m_.b_store_)) {
      move_b(source, slice);
      return {};
    }
    std::vector<float> column(slice.rank);
    std::vector<float> panel(slice.rank * kLoRAColumns);
    std::byte* to = panels_ + slice.b_offset;
    for (int64_t first = slice.out_begin / kLoRAColumns * kLoRAColumns; first < slice.out_end; first += kLoRAColumns) {
      std::fill(panel.begin(), panel.end(), 0.0F);
      std::array<float, kLoRAColumns> scales{};
      for (int64_t c = std::max(first, slice.out_begin); c < std::min(first + kLoRAColumns, slice.out_end); ++c) {
        dequantise_row(source.b.dtype, source.b.row(c - slice.out_begin), slice.rank, column.data());
        if (m_.b_store_ == LoRAStore::kI8) {
          CHORAL_TRY(scales[c - first], quantise(column));
        }
        for (int64_t j = 0; j < slice.rank; ++j) panel[j * kLoRAColumns + c - first] = column[j];
      }
      std::byte* values = to;
      if (m_.b_store_ == LoRAStore::kI8) {
        std::memcpy(to, scales.data(), sizeof scales);
        values += sizeof scales;
      }
      put_pairs(m_.b_store_, panel, values, lost_);
      to += panel_bytes(m_.b_store_, slice.rank);
    }
    return {};
  }

  LoRAMatrix& m_;
  std::byte* panels_;
  bool lost_ = false;  // a finite value has no finite form in its store
};

Result<LoRAMatrix> LoRAMatrix::lay_out(const LoRAMatrixSource& source, LoRAFormat format) {
  return LoRAPacker::lay_out(source, format);
}

Status LoRAMatrix::fill(const LoRAMatrixSource& source, std::byte* panels) { return LoRAPacker(*this, panels).fill(source); }

Result<LoRAMatrix> LoRAMatrix::pack(const LoRAMatrixSource& source, LoRAFormat format) {
  CHORAL_TRY(LoRAMatrix m, lay_out(source, format));
  CHORAL_TRY(m.own_panels_, AlignedBuffer::allocate(m.panel_bytes_));
  CHORAL_RETURN_IF_ERROR(m.fill(source, m.own_panels_.data()));
  return m;
}

}  // namespace choral::kernels
