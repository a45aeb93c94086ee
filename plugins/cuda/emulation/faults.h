// What is broken about the emulated device, by the environment variable CHORAL_CUDA_EMULATION: "key=value" with commas between,
// such as "driver=12040" or "fail=launch,at=300,with=700". Read anew when devices are counted, which a process begins with.
// The library exports choral_break_emulated_cuda(text), by which a test replaces them at any time. It gives how often the
// function that was to fail was called before; calls then count anew.
#pragma once

#include <cstdint>
#include <string>

#include "runtime_api.h"

namespace cuda_emulation {

struct Faults {
  int driver = 13000;      // driver: the CUDA version that the driver knows; 0: there is no driver
  int devices = 1;         // devices: how many, all alike
  int capability = 90;     // capability: 10 · major + minor
  int pools = 1;           // pools: whether the driver has memory pools
  int wgmma = 1;           // wgmma: 0: it rounds otherwise than mma.sync (rounding.h)
  int64_t memory_mib = 0;  // memory_mib: of the device; 0: all that is reserved
  std::string fail;        // fail: this function's `at`-th call gives the error `with`; "launch" is the work of a kernel
  int64_t at = 1;
  int with = cudaErrorUnknown;

  static Faults from_environment();
  static Faults from(const char* text);  // null: none
};

}  // namespace cuda_emulation
