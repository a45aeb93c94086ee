// What `choral doctor` looks at beyond /proc: the device, the model cache, a model. Each writes its findings into a report.
#pragma once

#include <cstdint>
#include <memory>

#include "base/machine_facts.h"
#include "choral/llm.h"
#include "engine/device_setup.h"
#include "kernels/machine_peaks.h"
#include "tools/doctor_report.h"

namespace choral::tools {

void examine_hub_cache(DoctorReport& report);
void examine_packed_cache(DoctorReport& report);
// A GPU that no plug-in was found for. Behind ExaminedDevice::open(), whose findings name the plug-ins that were.
void look_for_gpu(const MachineFacts& machine, DoctorReport& report);
// Which models and which forms of weights are served, by the tables that serve them.
void list_what_is_served(DoctorReport& report);

// The device that an engine with these options would use, open, with its threads.
class ExaminedDevice {
 public:
  // What was found and passed over is in the report too. When the device that was asked for cannot be had, `status` says why, and
  // the CPU is examined in its place.
  static Result<std::unique_ptr<ExaminedDevice>> open(const EngineOptions& options, int threads, DoctorReport& report,
                                                      Status& status);

  ExaminedDevice(std::unique_ptr<ThreadPool> pool, engine::DeviceSetup device);
  kernels::MachinePeaks measure_peaks();
  // options.model, from its headers: no weight is touched. The Status is the first thing that keeps it from loading.
  Status examine_model(const EngineOptions& options, DoctorReport& report);
  // Every operator, and the kernel that multiplies each format here: asked of a packed matrix of the smallest size.
  void list_operators(DoctorReport& report);

 private:
  std::unique_ptr<ThreadPool> pool_;
  engine::DeviceSetup device_;
  platform::Context context_;
};

}  // namespace choral::tools
