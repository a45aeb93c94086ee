// W8A8's one scale for all rows of a layer's input, from what the layer was given while a text was read. Pure functions.
#pragma once

#include <limits>
#include <span>
#include <string_view>

#include "base/status.h"
#include "kernels/quant/row_quant.h"

namespace choral::quant {

// The least and the greatest number that a layer was given.
struct InputRange {
  float least = std::numeric_limits<float>::infinity();
  float greatest = -std::numeric_limits<float>::infinity();
  bool finite = true;  // all of them

  void take(std::span<const float> x);
  void join(const InputRange& other);
};

// The steps that reach the whole range: max|x| / 127; with an offset (greatest − least) / 255, 0 being met exactly. `layer` is
// for the message where there is no such step.
enum class InputOffset : uint8_t { kNone, kOfRange };
Result<kernels::StaticQuant> fixed_input(const InputRange& range, InputOffset offset, std::string_view layer);

}  // namespace choral::quant
