// How an emulated kernel gets onto a stream. The work owns its arguments and runs later, one piece of work at a time in the whole
// process, by whichever thread waits for it; only there may it touch device memory.
#pragma once

#include <functional>

#include "runtime_api.h"

namespace cuda_emulation {

// Of a launch: an error that the launch itself gives, as cudaLaunchKernel would.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);

}  // namespace cuda_emulation
