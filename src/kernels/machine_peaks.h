// What this machine gives at most: the roof that kernels and steps are compared with. Measured by kernels/roofline.h.
#pragma once

namespace choral::kernels {

struct MachinePeaks {
  double read_gbps = 0;    // memory read by all threads at once
  double fma_gflops = 0;   // independent fp32 multiply-adds in registers
  double int8_gops = 0;    // int8 multiply-adds in registers
  double tile_gflops = 0;  // bf16 products of the tile unit (AMX), 0 where the level has none
};

}  // namespace choral::kernels
