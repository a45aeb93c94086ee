#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "element_place.h"
#include "packed_weight.h"
#include "stored_rows.h"

namespace choral_cuda {
namespace {

constexpr int64_t kMostColumns = 1 << 16;  // of int8 rows: 2^16 products of at most 255 · 128 are less than 2^31

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

bool is_float(int32_t dtype) { return dtype == CHORAL_F32 || dtype == CHORAL_F16 || dtype == CHORAL_BF16; }

Format float_format(int32_t dtype) {
  return dtype == CHORAL_F32 ? Format::kF32 : dtype == CHORAL_F16 ? Format::kF16 : Format::kBF16;
}

const char* plan_scaled(const choral_weight& weight, PackedWeight* w) {
  const bool int8_rows = weight.activations == CHORAL_X_INT8_ROWS;
  const bool e2m1 = weight.codebook == CHORAL_E2M1;
  if (weight.codebook != CHORAL_LINEAR && !e2m1) return "a codebook that is not known";
  if (weight.stored_dtype == CHORAL_E4M3) {
    const bool floats = weight.activations == CHORAL_X_FULL || weight.activations == CHORAL_X_16;
    if (!floats || weight.zero_count != 0) return "e4m3 with zeros or with x as integers";
    w->format = Format::kE4M3;
  } else if (weight.stored_dtype == CHORAL_I8) {
    w->format = int8_rows ? Format::kInt8Rows : weight.bits == 4 && !e2m1 ? Format::kInt4 : Format::kInt8;
  } else {
    return "scales beside elements that are neither i8 nor e4m3";
  }
  w->group = static_cast<int32_t>(weight.group_size == 0 || weight.group_size >= weight.cols ? int64_t{w->blocks} * kBlockColumns
                                                                                             : weight.group_size);
  if (int8_rows) {
    if (w->group < weight.cols) return "int8 rows of x with several scales a row";
    if (weight.zero_count != 0) return "int8 rows of x with zeros";
    if (weight.cols > kMostColumns) return "int8 rows of x of more than 65536 columns";
  } else if (weight.has_fixed_input != 0) {
    return "a fixed input scale without int8 rows of x";
  }
  if (w->group % kBlockColumns != 0 && w->group != 16 && w->group != 32) {
    return "groups of columns that are not 16, 32 or a multiple of 64";
  }
  if (weight.zero_count != 0) w->min_offset = 1;  // some place, for now
  return nullptr;
}

const char* choose_format(const choral_weight& weight, PackedWeight* w) {
  if (weight.activations < CHORAL_X_FULL || weight.activations > CHORAL_X_16) return "a form of x that is not known";
  if (weight.scale_count != 0) return plan_scaled(weight, w);
  const BlockType type = block_type(weight.stored_dtype);
  const bool readable = is_float(weight.stored_dtype) || weight.stored_dtype == CHORAL_E4M3 || type.elements != 0;
  if (!readable) return "an element type that it does not read";
  if (type.elements != 0 && weight.cols % type.elements != 0) return "rows that are not whole blocks";
  if (is_float(weight.dtype)) {
    w->format = float_format(weight.dtype);
    if (weight.activations == CHORAL_X_16 && w->format == Format::kF32) return "x in 16 bits by weights of 32";
    if (weight.activations == CHORAL_X_INT8_BLOCKS) w->activations = CHORAL_X_FULL;  // of block types alone
  } else if (weight.dtype != weight.stored_dtype) {
    return "elements to be rounded to a type that is no float";
  } else if (weight.stored_dtype == CHORAL_E4M3) {
    w->format = Format::kE4M3;
    w->group = w->blocks * kBlockColumns;
  } else {
    if (weight.activations == CHORAL_X_INT8_ROWS) return "blocks with x as int8 rows";
    w->format = type.four_bits ? Format::kInt4 : Format::kInt8;
    w->group = type.group;
    w->min_offset = type.has_min ? 1 : 0;
  }
  return nullptr;
}

const char* name_of(Format format) {
  switch (format) {
    case Format::kF32: return "f32";
    case Format::kF16: return "f16";
    case Format::kBF16: return "bf16";
    case Format::kInt4: return "int4";
    case Format::kE4M3: return "e4m3";
    default: return "int8";
  }
}

void describe(PackPlan* plan) {
  const PackedWeight& w = plan->weight;
  plan->format = name_of(w.format);
  if (w.scale_offset != 0 && w.group < w.cols) plan->format += ", a scale for " + std::to_string(w.group) + " columns";
  if (w.scale_offset != 0 && w.group >= w.cols) plan->format += ", a scale a row";
  if (w.min_offset != 0) plan->format += " and a minimum";
  plan->kernel = w.format == Format::kF32        ? "fused multiply-adds"
                 : w.format == Format::kInt8Rows ? "mma m16n8k32 of int8, exact sums"
                 : w.format == Format::kF16      ? "mma m16n8k16 of f16, x "
                                                 : "mma m16n8k16 of bf16, x ";
  if (w.format == Format::kF32 || w.format == Format::kInt8Rows) return;
  plan->kernel += w.activations == CHORAL_X_16 ? "rounded to one plane" : "as two planes";
  if (w.activations == CHORAL_X_INT8_BLOCKS) plan->kernel += " of its int8 blocks";
}

// A row of integers with all that belongs to it, in W's terms.
void read_integers(const choral_weight& weight, const PackedWeight& w, int64_t row, IntegerRow* out) {
  const unsigned char* stored = stored_row(weight, row);
  if (weight.scale_count == 0 && weight.stored_dtype != CHORAL_E4M3) {
    read_blocks(weight.stored_dtype, stored, w.cols, out);
    if (w.format == Format::kInt4 && w.min_offset != 0) {  // codes 0 to 15
      for (int8_t& q : out->q) q = static_cast<int8_t>(q - 8);
      for (size_t i = 0; i < out->scales.size(); ++i) out->mins[i] += 8.0f * out->scales[i];
    }
    return;
  }
  const int64_t groups = weight.scale_count == 0 ? 1 : (w.cols + w.group - 1) / w.group;
  out->q.resize(w.cols);
  std::memcpy(out->q.data(), stored, w.cols);
  out->scales.assign(groups, 1.0f);
  out->mins.assign(groups, 0.0f);
  for (int64_t i = 0; i < groups && weight.scale_count != 0; ++i) {
    out->scales[i] = weight.scales[row * groups + i];
    if (weight.zero_count != 0) out->mins[i] = -(out->scales[i] * static_cast<float>(weight.zeros[row * groups + i]));
  }
  if (weight.scale_count != 0 && weight.codebook == CHORAL_E2M1) {
    constexpr int8_t kTwice[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int8_t& q : out->q) q = kTwice[q & 15];
    for (float& scale : out->scales) scale *= 0.5f;
  }
}

void place_integers(const PackedWeight& w, const IntegerRow& from, int row, unsigned char* record) {
  int32_t sum = 0;
  for (int64_t column = 0; column < w.cols; ++column) {
    unsigned char* block = record + column / kBlockColumns * block_bytes(w.format);
    const int at = element_place(w.format, row, static_cast<int>(column % kBlockColumns));
    const int q = from.q[column];
    sum += q;
    if (w.format == Format::kInt4) {
      const int shift = at % 2 * 4;
      block[at / 2] = static_cast<unsigned char>((block[at / 2] & ~(15 << shift)) | ((q + 8) & 15) << shift);
    } else {
      block[at] = static_cast<unsigned char>(q);
    }
  }
  for (size_t i = 0; i < from.scales.size(); ++i) {
    const size_t at = i * kTileRows + scale_place(row);
    reinterpret_cast<float*>(record + w.scale_offset)[at] = from.scales[i];
    if (w.min_offset != 0) reinterpret_cast<float*>(record + w.min_offset)[at] = from.mins[i];
  }
  if (w.sum_offset != 0) reinterpret_cast<int32_t*>(record + w.sum_offset)[row] = sum;
}

void place_floats(const PackedWeight& w, const std::vector<float>& from, int row, unsigned char* record) {
  for (int64_t column = 0; column < w.cols; ++column) {
    unsigned char* block = record + column / kBlockColumns * block_bytes(w.format);
    const int at = element_place(w.format, row, static_cast<int>(column % kBlockColumns));
    const float value = from[column];
    if (w.format == Format::kF32) {
      reinterpret_cast<float*>(block)[at] = value;
    } else {
      reinterpret_cast<uint16_t*>(block)[at] = w.format == Format::kF16 ? to_f16(value) : to_bf16(value);
    }
  }
}

}  // namespace

PackedWeight PackPlan::placed(const void* image) const {
  PackedWeight w = weight;
  w.image = static_cast<const unsigned char*>(image);
  w.k_order = k_order.empty() ? nullptr : reinterpret_cast<const int32_t*>(w.image + tail_offset);
  return w;
}

const char* plan_packing(const choral_weight& weight, PackPlan* plan) {
  *plan = PackPlan();
  PackedWeight& w = plan->weight;
  for (int64_t i = 0; i < weight.part_count; ++i) w.rows += weight.parts[i].rows;
  w.cols = weight.cols;
  w.blocks = static_cast<int32_t>((w.cols + kBlockColumns - 1) / kBlockColumns);
  w.section_blocks = (w.blocks + kSections - 1) / kSections;
  w.activations = weight.activations;
  w.group = w.blocks * kBlockColumns;
  if (const char* reason = choose_format(weight, &w); reason != nullptr) return reason;

  w.tile_bytes = int64_t{w.blocks} * block_bytes(w.format);
  if (w.format >= Format::kInt4) {
    const int64_t groups = (int64_t{w.blocks} * kBlockColumns + w.group - 1) / w.group;
    const int64_t bytes = groups * kTileRows * static_cast<int64_t>(sizeof(float));
    w.scale_offset = w.tile_bytes;
    w.tile_bytes += bytes;
    if (w.min_offset != 0) {
      w.min_offset = w.tile_bytes;
      w.tile_bytes += bytes;
    }
  }
  if (w.format == Format::kInt8Rows) {
    w.has_fixed_input = weight.has_fixed_input;
    w.input_scale = weight.input_scale;
    w.input_offset = weight.has_fixed_input != 0 ? weight.input_offset : 0;
    w.sum_offset = w.tile_bytes;
    w.tile_bytes += kTileRows * static_cast<int64_t>(sizeof(int32_t));
  }
  w.tile_bytes = round_up(w.tile_bytes, 128);
  plan->row_tiles = (w.rows + kTileRows - 1) / kTileRows;
  plan->tail_offset = plan->row_tiles * w.tile_bytes;
  if (weight.k_order_count != 0) plan->k_order.assign(weight.k_order, weight.k_order + weight.cols);
  plan->image_bytes = plan->tail_offset + static_cast<int64_t>(plan->k_order.size() * sizeof(int32_t));
  describe(plan);
  return nullptr;
}

void pack_tiles(const choral_weight& weight, const PackPlan& plan, int64_t begin, int64_t end, unsigned char* to) {
  const PackedWeight& w = plan.weight;
  std::memset(to, 0, (end - begin) * w.tile_bytes);
  IntegerRow integers;
  std::vector<float> floats;
  for (int64_t row = begin * kTileRows; row < std::min(end * kTileRows, w.rows); ++row) {
    unsigned char* record = to + (row / kTileRows - begin) * w.tile_bytes;
    if (w.format >= Format::kInt4) {
      read_integers(weight, w, row, &integers);
      place_integers(w, integers, static_cast<int>(row % kTileRows), record);
    } else {
      read_floats(weight.stored_dtype, stored_row(weight, row), w.cols, &floats);
      place_floats(w, floats, static_cast<int>(row % kTileRows), record);
    }
  }
}

void pack_tail(const PackPlan& plan, unsigned char* to) {
  if (!plan.k_order.empty()) std::memcpy(to, plan.k_order.data(), plan.k_order.size() * sizeof(int32_t));
}

void unpack_row(const PackPlan& plan, const unsigned char* record, int64_t row, float* out) {
  for (int64_t column = 0; column < plan.weight.cols; ++column) {
    const int64_t at = plan.k_order.empty() ? column : plan.k_order[column];
    out[at] = element_of(plan.weight, record, static_cast<int>(row % kTileRows), column);
  }
}

}  // namespace choral_cuda
