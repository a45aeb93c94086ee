// What tests call in the loaded plug-in. A file of the plug-in itself, which exports no symbol of its libraries.
#include "runtime.h"

extern "C" __attribute__((visibility("default"))) int64_t choral_break_emulated_cuda(const char* faults) {
  cuda_emulation::Runtime& runtime = cuda_emulation::runtime();
  const std::lock_guard held(runtime.lock);
  const int64_t calls = runtime.calls[runtime.faults.fail];
  runtime.break_with(cuda_emulation::Faults::from(faults));
  return calls;
}
