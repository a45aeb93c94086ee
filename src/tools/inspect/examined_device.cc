#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/printable.h"
#include "base/size_text.h"
#include "engine/packed_cache.h"
#include "io/hub_cache.h"
#include "kernels/quant/stored_types.h"
#include "kernels/roofline.h"
#include "tools/doctor.h"

namespace choral::tools {
namespace {

Result<engine::DeviceSetup> set_up(const EngineOptions& options, ThreadPool& pool, DoctorReport& report, Status& status) {
  EngineOptions wanted = options;
  auto device = engine::set_up_device(wanted, "", pool);
  if (device.ok()) return device;
  status = device.status();
  report.wrong("device", status.message(), "--device cpu always works; docs/plugins.md says how plug-ins are found");
  wanted = options;
  wanted.device = "cpu";
  wanted.require_device = false;
  return engine::set_up_device(wanted, "", pool);
}

}  // namespace

ExaminedDevice::ExaminedDevice(std::unique_ptr<ThreadPool> pool, engine::DeviceSetup device)
    : pool_(std::move(pool)), device_(std::move(device)), context_(*device_.session, *pool_, cpu_level()) {}

kernels::MachinePeaks ExaminedDevice::measure_peaks() { return kernels::measure_peaks(context_.kernel); }

void ExaminedDevice::list_operators(DoctorReport& report) {
  for (const auto& fact : context_.ops.facts()) {
    report.operators.push_back(fmt::format("{:<20} version {}  {:<6} provider {}{}", fact.name, fact.version,
                                           fact.fused ? "fused" : "", fact.provider,
                                           fact.reason.empty() ? "" : ": " + fact.reason));
  }
  constexpr int64_t kRows = kernels::kPanelRows, kCols = 256;
  for (const DType format : kernels::stored_types()) {
    if (format == DType::kF64) continue;  // becomes float32 when it is read
    const std::vector<std::byte> zeros(kRows * row_bytes(format, kCols));
    const kernels::WeightRows rows{
        .tensor = TensorView{.data = zeros.data(), .dtype = format, .shape = {kRows, kCols}, .device = {}}, .order = {}};
    const auto packed = context_.session.prepack(context_, {.rows = {&rows, 1}, .format = format});
    report.operators.push_back(
        fmt::format("matmul of {:<10} {}", dtype_name(format),
                    packed.ok() ? (*packed)->kernel_name(context_.kernel.level) : packed.status().message()));
  }
}

Result<std::unique_ptr<ExaminedDevice>> ExaminedDevice::open(const EngineOptions& options, int threads, DoctorReport& report,
                                                             Status& status) {
  CHORAL_TRY(auto pool, ThreadPool::make(threads));
  CHORAL_TRY(auto device, set_up(options, *pool, report, status));
  for (const auto& note : device.notes) {
    const bool passed = note.starts_with("device not used") || note.find("gave way") != note.npos;
    if (passed) {
      report.notice("device", note, "");
    } else {
      report.fine("device", note);
    }
  }
  return std::make_unique<ExaminedDevice>(std::move(pool), std::move(device));
}

void look_for_gpu(const MachineFacts& machine, DoctorReport& report) {
  if (machine.nvidia_driver.empty()) return;
  const auto names_it = [](const Finding& finding) {
    return finding.subject == "device" && finding.text.find("cuda") != std::string::npos;
  };
  if (std::any_of(report.findings.begin(), report.findings.end(), names_it)) return;
  report.notice(
      "NVIDIA GPU", fmt::format("driver {}, and no plug-in that uses it", printable(machine.nvidia_driver)),
      "`./dev build cuda` in the source tree, then CHORAL_PLUGIN_PATH=build/cuda; beside the Python package, choral-cuda "
      "(docs/install.md)");
}

void examine_hub_cache(DoctorReport& report) {
  namespace fs = std::filesystem;
  const auto roots = io::hub_cache_roots();
  if (roots.empty()) return report.notice("model cache", "no place for it: HOME is not set", "set HF_HOME");
  std::error_code ignored;
  fs::path there = roots.front();
  if (!fs::exists(there, ignored)) {
    return report.notice("model cache", fmt::format("{} does not exist yet", there.string()),
                         "nothing to do, unless org/name should be found; HF_HOME names another place");
  }
  if (access(there.c_str(), R_OK | X_OK) != 0) {
    return report.wrong("model cache", fmt::format("{} cannot be read", there.string()),
                        "give this user the right to, or set HF_HOME");
  }
  if (access(there.c_str(), W_OK) != 0)
    return report.fine("model cache", fmt::format("{}, readable, not writable", there.string()));
  report.fine("model cache", fmt::format("{}, writable", there.string()));
}

void examine_packed_cache(DoctorReport& report) {
  const auto folder = engine::packed_cache_folder();
  if (folder.empty()) return;  // which the model cache says
  const auto [files, bytes] = engine::packed_cache_content(folder);
  report.fine("packed cache", fmt::format("{}: {} in {} file{} for the next starts, which may be removed", folder.string(),
                                          size_text(bytes), files, files == 1 ? "" : "s"));
}

}  // namespace choral::tools
