// What this machine gives at most, measured with the caller's threads and CPU level: the roof that kernels are compared with.
//   read_gbps   memory read by all threads at once, best of one to eight streams a thread with and without software prefetch;
//   fma_gflops  independent fp32 multiply-adds in registers (2 flop each; at level base a product and a sum);
//   int8_gops   int8 multiply-adds in registers (2 op each): vpdpbusd, or maddubs + madd + add, or SSE2 madd;
//   tile_gflops bf16 products of the tile unit (AMX), 0 where the level has none.
// Takes about a second and half a GiB, which is given back. `choral bench` and doctor print kernels as fractions of these.
#pragma once

#include "kernels/context.h"
#include "kernels/machine_peaks.h"

namespace choral::kernels {

MachinePeaks measure_peaks(const Context& ctx);

}  // namespace choral::kernels
