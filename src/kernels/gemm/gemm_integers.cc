#include "kernels/gemm/gemm_integers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/first_found.h"
#include "kernels/gemm/gemm_quant_matrix.h"
#include "kernels/gemm/weight_parts.h"

namespace choral::kernels {
namespace {

constexpr int64_t kMostGroupBlocks = 8;

// What integers may be.
struct Range {
  int least, largest;
};
Range range_of(const IntegerOptions& options) {
  if (options.codebook != Codebook::kLinear) return {0, 15};
  const int half = 1 << (options.bits - 1);
  return {-half, half - 1};
}

Status check_options(const IntegerOptions& options) {
  if (options.bits != 4 && options.bits != 8) return unsupported("integers of {} bits; those of 4 and 8 are read", options.bits);
  if (options.codebook != Codebook::kLinear && options.bits != 4) {
    return unsupported("a codebook for integers of {} bits; codes have 4", options.bits);
  }
  if (options.group_size < 0 || options.group_size % kQuantBlock != 0) {
    return unsupported("groups of {} k; a group is a multiple of {}, or 0 for one scale a channel", options.group_size,
                       kQuantBlock);
  }
  return {};
}

Status check_groups(const IntegerPart& part, size_t index, const IntegerOptions& options, int64_t groups, bool with_zeros) {
  const auto wanted = static_cast<size_t>(part.rows.tensor.rows() * groups);
  CHORAL_RETURN_IF_ERROR(check_scales(part.rows, index, part.scales, groups));
  if (part.zeros.empty() == with_zeros) {
    return invalid_argument("part {} has {} zero points, part 0 has {}; stacked parts have them all or none", index,
                            with_zeros ? "no" : "its", with_zeros ? "its own" : "none");
  }
  if (!with_zeros) return {};
  if (options.codebook != Codebook::kLinear) return unsupported("part {} has zero points and a codebook", index);
  if (part.zeros.size() != wanted) {
    return invalid_argument("part {} has {} zero points; {} rows with {} each need {}", index, part.zeros.size(),
                            part.rows.tensor.rows(), groups, wanted);
  }
  const Range range = range_of(options);
  for (size_t i = 0; i < wanted; ++i) {
    if (part.zeros[i] < range.least - 1 || part.zeros[i] > range.largest + 1) {
      return invalid_argument("part {} has a zero point of {} for row {}; those of {} bits are within {} and {}", index,
                              part.zeros[i], static_cast<int64_t>(i) / groups, options.bits, range.least - 1, range.largest + 1);
    }
    if (!std::isfinite(part.scales[i] * static_cast<float>(part.zeros[i]))) {
      return invalid_argument("part {} has a scale of {} with a zero point of {} for row {}, whose product no float holds", index,
                              part.scales[i], part.zeros[i], static_cast<int64_t>(i) / groups);
    }
  }
  return {};
}

// The first row with an integer that its bits don't hold is named.
Status check_integers(const IntegerPart& part, size_t index, const IntegerOptions& options, ThreadPool& pool) {
  if (options.bits == 8) return {};
  const TensorView& t = part.rows.tensor;
  const Range range = range_of(options);
  const auto outside = [&](int8_t q) { return q < range.least || q > range.largest; };
  FirstFound bad;
  pool.parallel_for(t.rows(), 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const auto* q = reinterpret_cast<const int8_t*>(t.row(row));
      int least = 0, largest = 0;  // both are within every range
      for (int64_t i = 0; i < t.cols(); ++i) {
        least = std::min<int>(least, q[i]);
        largest = std::max<int>(largest, q[i]);
      }
      if (least >= range.least && largest <= range.largest) continue;
      return bad.found(row);
    }
  });
  if (!bad.index()) return {};
  const int64_t row = *bad.index();
  const auto* q = reinterpret_cast<const int8_t*>(t.row(row));
  return invalid_argument("part {} has {} in row {}; integers of {} bits are within {} and {}", index,
                          static_cast<int>(*std::find_if(q, q + t.cols(), outside)), row, options.bits, range.least,
                          range.largest);
}

// Rows of all parts in packed order.
struct Channel {
  const int8_t* q;
  const float* scales;   // [groups]
  const int16_t* zeros;  // [groups], or null
};

Channel channel_of(const IntegerPart& part, int64_t row, int64_t groups, bool with_zeros) {
  return {reinterpret_cast<const int8_t*>(part.rows.tensor.row(row)), part.scales.data() + row * groups,
          with_zeros ? part.zeros.data() + row * groups : nullptr};
}

QuantForm form_of(const IntegerOptions& options, bool with_zeros) {
  int64_t blocks = kMostGroupBlocks;  // that a group's stored pieces have
  while (options.group_size / kQuantBlock % blocks != 0) blocks /= 2;
  return {options.bits, with_zeros ? QuantScales::kFM : QuantScales::kF,
          options.codebook == Codebook::kE2M1 ? QuantCodes::kE2M1 : QuantCodes::kLinear, static_cast<int>(blocks)};
}

std::string name_of(const IntegerOptions& options, bool with_zeros) {
  return fmt::format("{}{}{}", options.codebook == Codebook::kE2M1 ? "e2m1" : fmt::format("int{}", options.bits),
                     with_zeros ? " with zeros" : "",
                     options.group_size == 0 ? "" : fmt::format(" in groups of {}", options.group_size));
}

void pack_channel(const QuantForm& form, const Channel& channel, int64_t k, int64_t group_blocks, int lane, std::byte* panel) {
  const int64_t blocks = ceil_div(k, kQuantBlock);
  const auto shift = static_cast<uint8_t>(form.codes == QuantCodes::kLinear ? 1 << (form.bits - 1) : 0);
  const float unit = form.codes == QuantCodes::kE2M1 ? 0.5f : 1.0f;  // of the numbers that codes stand for
  QuantSourceGroup source;
  for (int64_t b = 0; b < blocks; b += form.blocks, panel += form.group_bytes()) {
    const int count = static_cast<int>(std::min<int64_t>(form.blocks, blocks - b));
    const int64_t group = b / group_blocks;
    source.f[0] = channel.scales[group] * unit;
    source.f[1] = channel.zeros == nullptr ? 0.0f : -(channel.scales[group] * static_cast<float>(channel.zeros[group]));
    for (int64_t i = 0; i < count * kQuantBlock; ++i) {
      const int64_t at = b * kQuantBlock + i;
      source.n[i / kQuantBlock][i % kQuantBlock] = static_cast<uint8_t>((at < k ? channel.q[at] : 0) + shift);
    }
    write_quant_group(form, count, source, lane, panel);
  }
}

}  // namespace

Result<std::unique_ptr<PackedMatrix>> pack_integers(std::span<const IntegerPart> parts, const IntegerOptions& options,
                                                    ThreadPool& pool) {
  if (parts.empty()) return invalid_argument("a weight needs at least one part");
  CHORAL_RETURN_IF_ERROR(check_options(options));
  const Shape& first = parts[0].rows.tensor.shape;
  const int64_t k = first.rank() == 2 ? std::max<int64_t>(first[1], 0) : 0;
  const int64_t group_size = options.group_size == 0 ? round_up(std::max<int64_t>(k, 1), kQuantBlock) : options.group_size;
  const int64_t groups = ceil_div(k, group_size);
  bool with_zeros = false;  // zero points that are all 0 are as none
  for (size_t i = 0; i < parts.size(); ++i) {
    CHORAL_RETURN_IF_ERROR(check_part(parts[i].rows, i, "an integer weight", DType::kI8, k));
    CHORAL_RETURN_IF_ERROR(check_groups(parts[i], i, options, groups, !parts[0].zeros.empty()));
    CHORAL_RETURN_IF_ERROR(check_integers(parts[i], i, options, pool));
    with_zeros |= std::any_of(parts[i].zeros.begin(), parts[i].zeros.end(), [](int16_t zero) { return zero != 0; });
  }
  std::vector<Channel> channels;
  for (const IntegerPart& part : parts) {
    for_each_row(part.rows, [&](int64_t row) { channels.push_back(channel_of(part, row, groups, with_zeros)); });
  }
  const QuantForm form = form_of(options, with_zeros);
  const auto pack = [&](int64_t begin, int64_t count, std::byte* panel) {
    for (int64_t lane = 0; lane < count; ++lane) {
      pack_channel(form, channels[static_cast<size_t>(begin + lane)], k, group_size / kQuantBlock, static_cast<int>(lane), panel);
    }
  };
  return pack_panels({form, name_of(options, with_zeros), std::ssize(channels), k, options.planes}, pack, pool);
}

}  // namespace choral::kernels
