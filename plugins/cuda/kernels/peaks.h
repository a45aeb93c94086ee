// Kernels that only the clock looks at (../peaks.cc).
#pragma once

#include "kernels.h"

namespace choral_cuda {

enum class Unit { kF32, kBf16, kInt8 };

// Each byte once; whole 16s. `sink`: four bytes that are not among them.
cudaError_t read_memory(const Launch& launch, const void* memory, size_t bytes, void* sink);
// Products in registers, on every multiprocessor.
cudaError_t compute(const Launch& launch, Unit unit, int rounds, void* sink);
// How many that are; a multiply and an add are two.
double operations(const Launch& launch, Unit unit, int rounds);

}  // namespace choral_cuda
