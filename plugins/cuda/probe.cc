// What there is: a driver, new enough; a device, able enough. Nothing of it opens the device.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "device.h"
#include "structs.h"

namespace choral_cuda {
namespace {

constexpr int kScore = 100;
constexpr int kLeastMajor = 8;  // the kernels' tensor instructions

std::string version_text(int version) { return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10); }

// "470.82.01" of the kernel module, or empty.
std::string module_version() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version.substr(0, 32);
}

// The oldest driver that runs this plug-in, as its package is called.
std::string wanted_driver() {
  int runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  return "CUDA " + version_text(runtime) + (runtime / 1000 == 13 ? " (driver 580 or newer)" : "");
}

std::string driver_fault() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    return "no NVIDIA driver: libcuda.so.1 can't be loaded; install the driver, and in a container pass the device in (--gpus "
           "all)";
  }
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  (void)cudaGetLastError();
  if (counted == cudaErrorInsufficientDriver) {
    const std::string module = module_version();
    return "the NVIDIA driver" + (module.empty() ? "" : " " + module) + " is too old: it knows CUDA " + version_text(version) +
           ", this plug-in needs " + wanted_driver();
  }
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0)) {
    return "there is a driver and no device: CUDA_VISIBLE_DEVICES may hide them, and nvidia-smi -L lists them";
  }
  return counted == cudaSuccess ? "" : "devices can't be counted: " + text_of(counted);
}

}  // namespace

std::string examine(int ordinal, DeviceFacts* facts) {
  std::string fault = driver_fault();
  if (!fault.empty()) return fault;
  cudaDeviceProp properties{};
  int pools = 0;
  cudaError_t result = cudaGetDeviceProperties(&properties, ordinal);
  const auto ask = [&](int* value, cudaDeviceAttr attribute) {
    if (result == cudaSuccess) result = cudaDeviceGetAttribute(value, attribute, ordinal);
  };
  ask(&facts->major, cudaDevAttrComputeCapabilityMajor);
  ask(&facts->minor, cudaDevAttrComputeCapabilityMinor);
  ask(&facts->sm_count, cudaDevAttrMultiProcessorCount);
  ask(&facts->block_shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  ask(&pools, cudaDevAttrMemoryPoolsSupported);
  if (result != cudaSuccess) {
    (void)cudaGetLastError();
    return "device " + std::to_string(ordinal) + " does not say what it is: " + text_of(result);
  }
  facts->name = properties.name;
  facts->memory_bytes = properties.totalGlobalMem;
  if (facts->major < kLeastMajor) {
    return facts->name + " has compute capability " + std::to_string(facts->major) + "." + std::to_string(facts->minor) +
           "; the kernels need 8.0 (Ampere) or newer";
  }
  if (pools == 0) return facts->name + ": its driver gives no memory pools (cudaMallocAsync), as some virtual GPUs' don't";
  return "";
}

choral_status* probe(choral_probe* answer) {
  return without_exceptions("probe", [&]() -> choral_status* {
    choral_probe found{};
    DeviceFacts facts;
    const std::string why_not = examine(0, &facts);
    std::snprintf(found.reason, sizeof found.reason, "%s", why_not.c_str());
    if (why_not.empty()) {
      (void)cudaGetDeviceCount(&found.device_count);
      found.score = kScore;
      found.memory_bytes = facts.memory_bytes;
      for (int other = 1; other < found.device_count; ++other) {
        cudaDeviceProp properties{};
        if (cudaGetDeviceProperties(&properties, other) != cudaSuccess) continue;
        found.memory_bytes = std::min<uint64_t>(found.memory_bytes, properties.totalGlobalMem);
      }
      std::snprintf(found.device_name, sizeof found.device_name, "%s", facts.name.c_str());
    }
    write(answer, found);
    return nullptr;
  });
}

}  // namespace choral_cuda
