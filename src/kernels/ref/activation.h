// The oracle of activation.h: each function by its definition, in double. Single-threaded.
#pragma once

#include "kernels/activation/activation.h"

namespace choral::kernels::ref {

double activation(Activation f, double x);
void activation_and_mul(Activation f, MatrixView<const float> x, MatrixView<float> y);  // x [tokens, 2·inter] → y [tokens, inter]
void swigluoai_and_mul(const ClampedSwiglu& form, MatrixView<const float> x, MatrixView<float> y);

}  // namespace choral::kernels::ref
