#include "error.h"

#include <cstdarg>
#include <cstdio>

namespace choral_cuda {

const choral_host* host = nullptr;

namespace {

// More than the host keeps of a text, so that it is the host who cuts one, and says so.
constexpr size_t kTextBytes = 4200;

void put_text(char (&to)[kTextBytes], const char* format, va_list list) {
  const int length = std::snprintf(to, kTextBytes, "%s: ", CHORAL_CUDA_NAME);
  std::vsnprintf(to + length, kTextBytes - static_cast<size_t>(length), format, list);
}

}  // namespace

choral_status* error(int32_t code, const char* format, ...) {
  char text[kTextBytes];
  va_list list;
  va_start(list, format);
  put_text(text, format, list);
  va_end(list);
  return host->status_create(code, text);
}

void log(int32_t level, const char* format, ...) {
  char text[kTextBytes];
  va_list list;
  va_start(list, format);
  put_text(text, format, list);
  va_end(list);
  host->log(level, text);
}

std::string text_of(cudaError_t error) { return std::string(cudaGetErrorString(error)) + " (" + cudaGetErrorName(error) + ")"; }

bool is_lasting(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorContained:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

}  // namespace choral_cuda
