// What goes wrong, as the host's status: what, where, what to do. Any thread.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <new>
#include <string>

#include "choral/plugin.h"

namespace choral_cuda {

extern const choral_host* host;  // set by the query, before anything else is called

choral_status* error(int32_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));
void log(int32_t level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// "an illegal memory access was encountered (cudaErrorIllegalAddress)"
std::string text_of(cudaError_t error);
// Whether the device takes no work of this process any more after such an error.
bool is_lasting(cudaError_t error);
std::string size_text(uint64_t bytes);  // "1.5 GiB"

// body() -> choral_status*, for calls that allocate on the host: no exception crosses the border.
template <class Body>
choral_status* without_exceptions(const char* what, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return error(CHORAL_RESOURCE_EXHAUSTED, "%s: no host memory is left", what);
  }
}

#define CUDA_TRY(call)                                 \
  do {                                                 \
    if (choral_status* failed = (call)) return failed; \
  } while (false)

}  // namespace choral_cuda
