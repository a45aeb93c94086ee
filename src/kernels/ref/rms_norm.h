// The oracle of rms_norm.h: plain loops in double. For tests and for reading; single-threaded.
#pragma once

#include <span>

#include "kernels/norm/rms_norm.h"

namespace choral::kernels::ref {

void rms_norm(MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<float> y,
              std::span<const float> bias = {});

}  // namespace choral::kernels::ref
