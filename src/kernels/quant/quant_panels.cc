#include "kernels/quant/quant_panels.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/float16.h"

namespace choral::kernels {
namespace {

constexpr int kLaneBytes = 4;  // of a step

uint32_t load_u32(const void* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void store_u32(void* p, uint32_t v) { std::memcpy(p, &v, sizeof v); }
void store_u16(std::byte* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }

uint16_t load_u16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

float half(uint16_t bits) { return to_float(Float16{bits}); }

// Four k of one lane at a time: a step of a lane is one 32-bit word.
void write_block(int bits, const uint8_t (&n)[kQuantBlock], int lane, std::byte* block) {
  std::byte* out = block + lane * kLaneBytes;
  uint32_t step[kQuantSteps];
  for (int s = 0; s < kQuantSteps; ++s) step[s] = load_u32(n + 4 * s);
  if (bits == 8) {
    for (int s = 0; s < kQuantSteps; ++s) store_u32(out + s * kQuantStepBytes, step[s]);
    return;
  }
  // Two planes with bits `from` and `from` + 1 of four steps each; one plane with bit `from` of all steps.
  const auto store_pairs = [&](int from, std::byte* planes) {
    for (int half = 0; half < 2; ++half) {
      uint32_t plane = 0;
      for (int s = 0; s < 4; ++s) plane |= (step[4 * half + s] >> from & 0x03030303u) << 2 * s;
      store_u32(planes + half * kQuantStepBytes, plane);
    }
  };
  const auto store_bits = [&](int from, std::byte* plane) {
    uint32_t all = 0;
    for (int s = 0; s < kQuantSteps; ++s) all |= (step[s] >> from & 0x01010101u) << s;
    store_u32(plane, all);
  };
  if (bits < 4) {
    store_pairs(0, out);
    if (bits == 3) store_bits(2, out + 2 * kQuantStepBytes);
    return;
  }
  for (int i = 0; i < kQuantSteps / 2; ++i) {
    store_u32(out + i * kQuantStepBytes, (step[2 * i] & 0x0F0F0F0Fu) | (step[2 * i + 1] & 0x0F0F0F0Fu) << 4);
  }
  std::byte* high = out + 4 * kQuantStepBytes;
  if (bits == 5) store_bits(4, high);
  if (bits == 6) store_pairs(4, high);
}

// Step s of the same.
uint32_t read_step(int bits, const std::byte* lane, int s) {
  const auto pairs = [&](const std::byte* planes) {
    return load_u32(planes + s / 4 * kQuantStepBytes) >> (s % 4 * 2) & 0x03030303u;
  };
  const auto bit = [&](const std::byte* plane) { return load_u32(plane) >> s & 0x01010101u; };
  if (bits == 8) return load_u32(lane + s * kQuantStepBytes);
  if (bits == 2) return pairs(lane);
  if (bits == 3) return pairs(lane) | bit(lane + 2 * kQuantStepBytes) << 2;
  const uint32_t nibbles = load_u32(lane + s / 2 * kQuantStepBytes) >> (s % 2 * 4) & 0x0F0F0F0Fu;
  const std::byte* high = lane + 4 * kQuantStepBytes;
  return bits == 5 ? nibbles | bit(high) << 4 : bits == 6 ? nibbles | pairs(high) << 4 : nibbles;
}

bool has_float_d(QuantScales scales) {
  return scales == QuantScales::kF || scales == QuantScales::kFM || scales == QuantScales::kK8 || scales == QuantScales::kK16;
}

void write_header(QuantScales scales, int blocks, const QuantSourceGroup& source, int lane, std::byte* header) {
  std::byte* halves = header + lane * 2;
  std::byte* bytes = header + 64 + lane;
  std::byte* floats = header + lane * 4;
  if (has_float_d(scales)) {
    std::memcpy(floats, &source.f[0], sizeof(float));
  } else {
    store_u16(halves, source.d[0]);
  }
  switch (scales) {
    case QuantScales::kD:
      if (blocks > 1) store_u16(halves + 32, source.d[1]);
      break;
    case QuantScales::kDM: store_u16(halves + 32, source.m); break;
    case QuantScales::kK:
      store_u16(halves + 32, source.m);
      for (int j = 0; j < 8; ++j) {
        bytes[16 * j] = std::byte{source.scale[j]};
        bytes[16 * (8 + j)] = std::byte{source.min[j]};
      }
      break;
    case QuantScales::kK8:
      for (int j = 0; j < 8; ++j) bytes[16 * j] = std::byte{source.scale[j]};
      break;
    case QuantScales::kK16M: store_u16(halves + 32, source.m); [[fallthrough]];
    case QuantScales::kK16:
      for (int j = 0; j < 16; ++j) bytes[16 * j] = std::byte{source.scale[j]};
      break;
    case QuantScales::kFM: std::memcpy(floats + 64, &source.f[1], sizeof(float)); break;
    case QuantScales::kF: break;
  }
}

// What write_header wrote.
QuantSourceGroup read_header(QuantScales scales, const std::byte* header, int lane) {
  QuantSourceGroup group{};
  const std::byte* halves = header + lane * 2;
  const std::byte* bytes = header + 64 + lane;
  if (has_float_d(scales)) {
    std::memcpy(&group.f[0], header + lane * 4, sizeof(float));
    if (scales == QuantScales::kFM) std::memcpy(&group.f[1], header + 64 + lane * 4, sizeof(float));
    if (scales == QuantScales::kF || scales == QuantScales::kFM) return group;
  } else {
    group.d[0] = load_u16(halves);
    group.d[1] = group.m = load_u16(halves + 32);
  }
  const int count = scales == QuantScales::kD || scales == QuantScales::kDM       ? 0
                    : scales == QuantScales::kK16 || scales == QuantScales::kK16M ? 16
                                                                                  : 8;
  for (int j = 0; j < count; ++j) group.scale[j] = std::to_integer<uint8_t>(bytes[16 * j]);
  for (int j = 0; j < 8 && scales == QuantScales::kK; ++j) group.min[j] = std::to_integer<uint8_t>(bytes[16 * (8 + j)]);
  return group;
}

}  // namespace

bool has_quant_form(DType type) { return facts(type).is_block; }

QuantForm quant_form(DType type) {
  switch (type) {
    case DType::kQ8_0: return {8, QuantScales::kD};
    case DType::kQ4_0: return {4, QuantScales::kD};
    case DType::kQ4_1: return {4, QuantScales::kDM};
    case DType::kQ5_0: return {5, QuantScales::kD};
    case DType::kQ5_1: return {5, QuantScales::kDM};
    case DType::kQ4_K: return {4, QuantScales::kK};
    case DType::kQ5_K: return {5, QuantScales::kK};
    case DType::kQ6_K: return {6, QuantScales::kK16};
    case DType::kQ2_K: return {2, QuantScales::kK16M};
    case DType::kQ3_K: return {3, QuantScales::kK16};
    case DType::kIQ4_NL: return {4, QuantScales::kD, QuantCodes::kIQ4};
    case DType::kIQ4_XS: return {4, QuantScales::kK8, QuantCodes::kIQ4};
    case DType::kTQ1_0:
    case DType::kTQ2_0: return {2, QuantScales::kF, QuantCodes::kTernary, 8};
    case DType::kMXFP4: return {4, QuantScales::kF, QuantCodes::kE2M1, 1};
    case DType::kIQ1_S: return {3, QuantScales::kK8, QuantCodes::kIQ1};
    case DType::kIQ1_M: return {3, QuantScales::kK16, QuantCodes::kIQ1};
    case DType::kIQ2_XXS: return {3, QuantScales::kK8, QuantCodes::kIQ2};
    case DType::kIQ2_XS:
    case DType::kIQ2_S: return {3, QuantScales::kK16, QuantCodes::kIQ2};
    case DType::kIQ3_XXS: return {4, QuantScales::kK8, QuantCodes::kIQ3XXS};
    case DType::kIQ3_S: return {4, QuantScales::kK8, QuantCodes::kIQ3S};
    default: break;
  }
  CHORAL_CHECK(false, "not a block-quantised type");
}

void write_quant_group(QuantForm form, int blocks, const QuantSourceGroup& source, int lane, std::byte* group) {
  write_header(form.scales, blocks, source, lane, group);
  for (int j = 0; j < blocks; ++j) {
    write_block(form.bits, source.n[j], lane, group + form.header_bytes() + j * form.block_bytes());
  }
}

void pack_quant_panel(DType type, std::span<const std::byte* const> rows, int64_t blocks, std::byte* panel) {
  CHORAL_CHECK(rows.size() <= kQuantLanes, "a panel has 16 lanes");
  const QuantForm form = quant_form(type);
  QuantSourceGroup source;
  for (int64_t b = 0; b < blocks; b += form.group_blocks(), panel += form.group_bytes()) {
    const int count = static_cast<int>(std::min<int64_t>(form.group_blocks(), blocks - b));
    for (int lane = 0; lane < static_cast<int>(rows.size()); ++lane) {
      read_quant_source(type, rows[lane], b, count, source);
      write_quant_group(form, count, source, lane, panel);
    }
  }
}

QuantLaneBlock lane_block(QuantForm form, const QuantSourceGroup& group, int block) {
  QuantLaneBlock out;
  const auto values = quant_code_values(form.codes);
  for (int i = 0; i < kQuantBlock; ++i) out.n[i] = form.is_codebook() ? values[group.n[block][i]] : group.n[block][i];
  const float d = half(group.d[0]), m = half(group.m);
  const auto signed_scale = [&](int i) { return group.f[0] * static_cast<float>(static_cast<int8_t>(group.scale[i])); };
  out.min[0] = out.min[1] = 0.0f;
  switch (form.scales) {
    case QuantScales::kFM: out.min[0] = group.f[1]; [[fallthrough]];
    case QuantScales::kF: out.scale[0] = group.f[0]; break;
    case QuantScales::kD: out.scale[0] = half(group.d[block]); break;
    case QuantScales::kDM:
      out.scale[0] = d;
      out.min[0] = m;
      break;
    case QuantScales::kK:  // 11-bit times 6-bit significands: the products are exact
      out.scale[0] = d * static_cast<float>(group.scale[block]);
      out.min[0] = -m * static_cast<float>(group.min[block]);
      break;
    case QuantScales::kK8: out.scale[0] = signed_scale(block); break;
    case QuantScales::kK16M:
      for (int i = 0; i < 2; ++i) {
        const int pair = group.scale[2 * block + i];
        out.scale[i] = d * static_cast<float>(pair & 15);
        out.min[i] = -m * static_cast<float>(pair >> 4);
      }
      break;
    case QuantScales::kK16:
      for (int i = 0; i < 2; ++i) out.scale[i] = signed_scale(2 * block + i);
      break;
  }
  return out;
}

QuantLaneBlock read_quant_lane(QuantForm form, const std::byte* panel, int64_t block, int lane) {
  const int index = static_cast<int>(block % form.group_blocks());
  const std::byte* bytes = panel + form.block_offset(block) + lane * kLaneBytes;
  QuantSourceGroup group = read_header(form.scales, panel + block / form.group_blocks() * form.group_bytes(), lane);
  for (int s = 0; s < kQuantSteps; ++s) store_u32(group.n[index] + 4 * s, read_step(form.bits, bytes, s));
  return lane_block(form, group, index);
}

}  // namespace choral::kernels
