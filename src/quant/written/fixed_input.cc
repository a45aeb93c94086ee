#include "quant/written/fixed_input.h"

#include <algorithm>
#include <cmath>

namespace choral::quant {

void InputRange::take(std::span<const float> x) {
  float low = least, high = greatest;
  bool all_finite = true;
  for (const float v : x) {
    low = v < low ? v : low;
    high = v > high ? v : high;
    all_finite &= std::isfinite(v);
  }
  least = low;
  greatest = high;
  finite &= all_finite;
}

void InputRange::join(const InputRange& other) {
  least = std::min(least, other.least);
  greatest = std::max(greatest, other.greatest);
  finite &= other.finite;
}

Result<kernels::StaticQuant> fixed_input(const InputRange& range, InputOffset offset, std::string_view layer) {
  if (!range.finite) return corrupt("{} was given a NaN or an infinity: the model broke down over the calibration text", layer);
  if (range.least > range.greatest) {
    return unsupported("{} was given nothing while the calibration text was read; let it stay float with --ignore", layer);
  }
  const float low = std::min(range.least, 0.0f), high = std::max(range.greatest, 0.0f);
  const float scale = offset == InputOffset::kNone ? std::max(-low, high) / 127.0f
                                                   : static_cast<float>((static_cast<double>(high) - low) / 255.0);
  if (!std::isnormal(scale)) {
    return unsupported("{} was given no number but 0 while the calibration text was read; let it stay float with --ignore",
                       layer);
  }
  if (offset == InputOffset::kNone) return kernels::StaticQuant{.scale = scale, .offset = 0};
  const float zero = std::clamp(std::rint(-128.0f - low / scale), -128.0f, 127.0f);
  return kernels::StaticQuant{.scale = scale, .offset = static_cast<int32_t>(zero)};
}

}  // namespace choral::quant
