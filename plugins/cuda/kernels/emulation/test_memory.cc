// The emulated device of the kernels' tests: the host's own memory, and work that runs at once.
#include <cstdlib>

#include "../../emulation/queue.h"
#include "kernel_testing.h"

namespace {
int64_t launched = 0;
}

cudaError_t cuda_emulation::enqueue(cudaStream_t, std::function<void()> work) {
  ++launched;
  work();
  return cudaSuccess;
}

namespace choral_cuda {

void* allocate_shared(size_t bytes) { return std::malloc(bytes); }
void release_shared(void* memory) { std::free(memory); }
cudaError_t done(cudaError_t error) { return error; }
int64_t launches_so_far() { return launched; }
bool device_has_wgmma() { return true; }

}  // namespace choral_cuda
