// A plug-in's device, open: its handle, its one stream, and memory and weights that keep it open as long as they live.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/thread_pool.h"
#include "kernels/machine_peaks.h"
#include "platform/plugin/plugin_host.h"
#include "platform/plugin/plugin_library.h"
#include "platform/plugin/plugin_platform.h"
#include "platform/plugin/weight_scales.h"
#include "platform/session.h"
#include "tensor/tensor.h"

namespace choral::platform {

// What a device's copy is called with.
choral_copy copy_of_rows(int32_t kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                         int64_t rows);

class PluginDevice : public std::enable_shared_from_this<PluginDevice> {
 public:
  // `pool` outlives the device.
  static Result<std::shared_ptr<PluginDevice>> open(std::shared_ptr<const PluginLibrary> plugin, const PluginProbe& probe,
                                                    ThreadPool& pool, int index);
  ~PluginDevice();

  const PluginLibrary& plugin() const { return *plugin_; }
  choral_stream* stream() const { return stream_; }
  // Of the plug-in's functions, one that begins with the device. While it runs the plug-in may use the host's threads.
  template <class Function, class... Arguments>
  auto call(Function function, Arguments... arguments) const {
    const HostCall under_way(pool_);
    return function(handle_, arguments...);
  }
  // Of any thread, several at once and those of the pool: no call in which the plug-in may use them.
  Status read_row(const choral_packed* weight, int64_t row, std::span<float> out) const {
    return take_status(plugin_->weights.read_row(handle_, weight, row, out.data()));
  }

  struct Memory {
    std::shared_ptr<void> owner;
    std::byte* data = nullptr;
  };
  Result<Memory> allocate(int64_t size_bytes);
  // By what the device says, or by what its probe said and was taken since. Nothing: neither does.
  Result<std::optional<DeviceMemory>> memory() const;
  bool host_accessible() const { return host_accessible_; }
  void count_taken(int64_t bytes) const { taken_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  Status copy(int32_t kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes, int64_t rows);
  Status synchronize();
  // On a stream of their own; null: the plug-in takes calls of one thread alone.
  Result<std::unique_ptr<SideCopies>> copies_beside();
  // unsupported: it states none.
  Result<kernels::MachinePeaks> measure_peaks();
  // In synchronize() and in copies to the host, which wait for what was queued before them.
  double waited_s() const { return waited_s_; }

 private:
  PluginDevice(std::shared_ptr<const PluginLibrary> plugin, const PluginProbe& probe, ThreadPool& pool)
      : plugin_(std::move(plugin)),
        pool_{pool},
        memory_bytes_(static_cast<int64_t>(probe.memory_bytes)),
        host_accessible_(probe.host_accessible) {}
  Status try_memory();

  std::shared_ptr<const PluginLibrary> plugin_;
  mutable choral_pool pool_;
  const int64_t memory_bytes_;
  const bool host_accessible_;
  mutable std::atomic<int64_t> taken_bytes_ = 0;  // by allocations and weights
  choral_device* handle_ = nullptr;
  choral_stream* stream_ = nullptr;
  double waited_s_ = 0;
};

// A weight in the device's layout.
class PluginMatrix : public kernels::PackedMatrix {
 public:
  // unsupported when the device does not take such a weight.
  static Result<std::unique_ptr<kernels::PackedMatrix>> pack(std::shared_ptr<PluginDevice> device,
                                                             const kernels::PackSpec& weight);
  ~PluginMatrix() override;

  const choral_packed* handle() const { return handle_; }
  int64_t size_bytes() const override { return size_bytes_; }
  bool on_device() const override { return true; }
  std::string format() const override { return format_; }
  std::string kernel_name(CpuLevel) const override { return kernel_; }
  // A copy on the host, made of the device's rows when it is first needed: after the device's own matmul failed. Integers are
  // integers there too, and meet x as they do on the device. Engine thread.
  Result<const kernels::PackedMatrix*> host_copy(ThreadPool& pool) const;
  // The session multiplies, by the device's matmul or by the copy.
  int64_t most_rows(CpuLevel level) const override;
  const kernels::MatrixProduct* plan(const kernels::Context& ctx, const kernels::ProductInput& x,
                                     const kernels::Epilogue& epilogue, MatrixView<float> y, int threads) const override;
  Status read_row(int64_t row, std::span<float> out) const override;

 private:
  PluginMatrix(std::shared_ptr<PluginDevice> device, int64_t n, int64_t k) : PackedMatrix(n, k), device_(std::move(device)) {}

  Result<std::unique_ptr<kernels::PackedMatrix>> copy_of_floats(ThreadPool& pool) const;
  Result<std::unique_ptr<kernels::PackedMatrix>> copy_of_integers(ThreadPool& pool) const;

  std::shared_ptr<PluginDevice> device_;
  choral_packed* handle_ = nullptr;
  int64_t size_bytes_ = 0;
  std::string format_, kernel_;
  std::optional<WeightScales> integers_;  // of a weight of int8
  mutable std::unique_ptr<kernels::PackedMatrix> host_copy_;
};

}  // namespace choral::platform
