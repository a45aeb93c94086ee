// How the emulated device rounds, which is a question of the device and an answer of the kernels' emulation.
#pragma once

namespace cuda_emulation {

// The products of wgmma lose the last bits of their sums, as those of a device that rounds them otherwise than mma.sync would.
extern bool wgmma_rounds_otherwise;

}  // namespace cuda_emulation
