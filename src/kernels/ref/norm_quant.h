// The oracle of fused/norm_quant.h: the norm in double, rounded to float once, then quantised by the definition. Single-threaded.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/norm/rms_norm.h"
#include "kernels/quant/quantise_planes.h"

namespace choral::kernels::ref {

// y = rms_norm(x) and its int8 rows. y is always written.
void rms_norm_dynamic_quant(MatrixView<const float> x, std::span<const float> w, float eps, MatrixView<int8_t> q,
                            std::span<float> scale, MatrixView<float> y, std::span<const float> bias = {});

// y = rms_norm(x) and its two planes. y is always written.
void rms_norm_quantise(MatrixView<const float> x, std::span<const float> w, float eps, QuantiseOptions options,
                       QuantisedBlock* planes, MatrixView<float> y, std::span<const float> bias = {});

}  // namespace choral::kernels::ref
