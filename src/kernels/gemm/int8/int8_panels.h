// The packed layout of int8 weights: panels of 16 output channels, k inside, the same bytes on every CPU level.
// A panel is a run of groups, each the k that share one scale a channel. A group is a header and then its weights:
//   header   16 floats: the scales; in a matrix with corrections, after them 16 int32: what is added to each channel's sum
//   weights  steps of 4 consecutive k, 16 channels x 4 k = 64 bytes, stored as w + 128: what vpdpbusd and tdpbsud take
// so that decode reads one stream and prefill needs no second form. A last group may be shorter; k is padded to 4 with w = 0.
// Sums: int32 holds those of a group of 65536 k exactly (255 * 128 * 65536 < 2^31), so no group is longer: a channel with one
// scale over more k is so many groups with that scale.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/checked_math.h"
#include "kernels/gemm/panel_bytes.h"

namespace choral::kernels {

inline constexpr int64_t kInt8Lanes = 16;      // output channels of a panel
inline constexpr int64_t kInt8Step = 4;        // k of a step
inline constexpr int64_t kInt8StepBytes = 64;  // 16 channels x 4 k
inline constexpr int64_t kInt8LongestGroup = 65536;
inline constexpr int kInt8Zero = 128;  // a weight is its stored byte less this

struct Int8Form {
  int64_t k = 0;
  int64_t group = kInt8LongestGroup;  // k of a scale
  bool corrected = false;

  int64_t groups() const { return ceil_div(k, group); }
  int64_t group_k(int64_t g) const { return std::min(group, k - g * group); }
  int64_t header_bytes() const { return corrected ? 128 : 64; }
  int64_t group_bytes() const { return header_bytes() + group / kInt8Step * kInt8StepBytes; }  // of a whole group
  int64_t panel_bytes() const { return groups() * header_bytes() + ceil_div(k, kInt8Step) * kInt8StepBytes; }
};

struct Int8Panels {
  Int8Form form;
  int64_t n = 0;
  PanelBytes bytes = {};

  int64_t panels() const { return ceil_div(n, kInt8Lanes); }
  const std::byte* panel(int64_t p) const { return bytes.data() + p * form.panel_bytes(); }
};

// A row of W as it is stored: k integers, its scales (one for each group, or one for all), and what corrects its sums (as many,
// or none).
struct Int8Channel {
  const int8_t* w;
  std::span<const float> scales;
  std::span<const int32_t> corrections;
};

// Writes one panel, form.panel_bytes() long; fewer than 16 channels leave lanes of zeros.
void pack_int8_panel(const Int8Form& form, std::span<const Int8Channel> channels, std::byte* panel);

// Channel `row` as floats: w · scale, and that divided by `divisor`.
void read_int8_row(const Int8Panels& panels, int64_t row, float divisor, std::span<float> out);

}  // namespace choral::kernels
