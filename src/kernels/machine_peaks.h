// What a machine or a device gives at most: the roof that kernels and steps are compared with. The CPU's is measured by
// kernels/roofline.h, a device's by itself. 0: it has none of that, or it was not measured.
#pragma once

namespace choral::kernels {

struct MachinePeaks {
  double read_gbps = 0;    // memory read by all threads at once
  double fma_gflops = 0;   // independent fp32 multiply-adds in registers
  double int8_gops = 0;    // int8 multiply-adds in registers
  double tile_gflops = 0;  // bf16 products of units for matrices: AMX, tensor cores
  double copy_gbps = 0;    // memory copied, read and written together; of devices
};

}  // namespace choral::kernels
