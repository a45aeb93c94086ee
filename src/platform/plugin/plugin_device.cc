#include "platform/plugin/plugin_device.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/clock.h"
#include "kernels/gemm/gemm_float.h"

namespace choral::platform {

Result<std::shared_ptr<PluginDevice>> PluginDevice::open(std::shared_ptr<const PluginLibrary> plugin, const PluginProbe& probe,
                                                         ThreadPool& pool, int index) {
  std::shared_ptr<PluginDevice> device(new PluginDevice(std::move(plugin), probe, pool));
  auto config = with_header<choral_device_config>();
  config.index = index;
  config.pool = &device->pool_;
  const auto& lib = device->plugin();
  {
    const std::lock_guard one_at_a_time(plugin_opening());
    const HostCall under_way(device->pool_);
    CHORAL_RETURN_IF_ERROR(take_status(lib.api.open_device(&config, &device->handle_)));
  }
  if (device->handle_ == nullptr) return internal_error("open_device gave neither a device nor an error");
  CHORAL_RETURN_IF_ERROR(take_status(device->call(lib.memory.stream_create, &device->stream_)));
  if (device->stream_ == nullptr) return internal_error("stream_create gave neither a stream nor an error");
  CHORAL_RETURN_IF_ERROR(device->try_memory());
  return device;
}

PluginDevice::~PluginDevice() {
  if (stream_ != nullptr) call(plugin_->memory.stream_destroy, stream_);
  if (handle_ != nullptr) call(plugin_->api.close_device);
}

// Memory is held to what the header says of it before any is used.
Status PluginDevice::try_memory() {
  std::array<std::byte, 192> read;
  std::vector<Memory> taken;
  for (const size_t bytes : {size_t{0}, size_t{0}, size_t{1}, read.size()}) {
    CHORAL_TRY(auto memory, allocate(static_cast<int64_t>(bytes)));
    const auto same = [&](const Memory& other) { return other.data == memory.data; };
    if (std::any_of(taken.begin(), taken.end(), same)) {
      return internal_error("allocate gave {} bytes at a place that it had given before", bytes);
    }
    read.fill(std::byte{1});
    const auto size = static_cast<int64_t>(bytes);
    CHORAL_RETURN_IF_ERROR(copy(CHORAL_DEVICE_TO_HOST, read.data(), size, memory.data, size, size, 1).while_("copy"));
    if (std::any_of(read.begin(), read.begin() + size, [](std::byte b) { return b != std::byte{}; })) {
      return internal_error("allocate gave memory that is not zero-filled");
    }
    taken.push_back(std::move(memory));
  }
  return {};
}

Result<PluginDevice::Memory> PluginDevice::allocate(int64_t size_bytes) {
  void* memory = nullptr;
  CHORAL_RETURN_IF_ERROR(take_status(call(plugin_->memory.allocate, static_cast<uint64_t>(size_bytes), &memory)));
  if (memory == nullptr) return internal_error("allocate gave neither {} bytes nor an error", size_bytes);
  count_taken(size_bytes);
  auto owner = std::shared_ptr<void>(memory, [device = shared_from_this(), size_bytes](void* p) {
    device->call(device->plugin_->memory.release, p);
    device->count_taken(-size_bytes);
  });
  if (reinterpret_cast<uintptr_t>(memory) % kCacheLineBytes != 0)
    return internal_error("allocate gave memory that is not 64-byte aligned");
  return Memory{std::move(owner), static_cast<std::byte*>(memory)};
}

Result<std::optional<DeviceMemory>> PluginDevice::memory() const {
  if (plugin_->memory.capacity == nullptr) {
    if (memory_bytes_ == 0 && !host_accessible_) return std::optional<DeviceMemory>();
    const int64_t total = memory_bytes_ > 0 ? memory_bytes_ : std::numeric_limits<int64_t>::max();
    const int64_t taken = std::min(taken_bytes_.load(std::memory_order_relaxed), total);
    return std::optional(DeviceMemory{.free_bytes = total - taken, .total_bytes = total, .is_hosts = host_accessible_});
  }
  uint64_t free = 0, total = 0;
  CHORAL_RETURN_IF_ERROR(take_status(call(plugin_->memory.capacity, &free, &total)).while_("capacity"));
  if (free > total || total > uint64_t{1} << 60) {
    return internal_error("capacity says {} free bytes of {}, which no device has", free, total);
  }
  return std::optional(DeviceMemory{.free_bytes = static_cast<int64_t>(free), .total_bytes = static_cast<int64_t>(total)});
}

choral_copy copy_of_rows(int32_t kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                         int64_t rows) {
  auto copy = with_header<choral_copy>();
  copy.kind = kind;
  copy.to = to;
  copy.to_pitch = to_pitch;
  copy.from = from;
  copy.from_pitch = from_pitch;
  copy.row_bytes = row_bytes;
  copy.rows = rows;
  return copy;
}

Status PluginDevice::copy(int32_t kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                          int64_t rows) {
  const auto copy = copy_of_rows(kind, to, to_pitch, from, from_pitch, row_bytes, rows);
  if (kind != CHORAL_DEVICE_TO_HOST) return take_status(call(plugin_->memory.copy, stream_, &copy));
  const double begin = now_s();
  Status copied = take_status(call(plugin_->memory.copy, stream_, &copy));
  waited_s_ += now_s() - begin;
  return copied;
}

Status PluginDevice::synchronize() {
  const double begin = now_s();
  Status done = take_status(call(plugin_->memory.stream_synchronize, stream_));
  waited_s_ += now_s() - begin;
  return done;
}

Result<kernels::MachinePeaks> PluginDevice::measure_peaks() {
  if (plugin_->api.measure_peaks == nullptr) return unsupported("{} states no peaks", plugin_->name);
  auto peaks = with_header<choral_peaks>();
  Status measured = take_status(call(plugin_->api.measure_peaks, stream_, &peaks));
  if (!measured.ok()) return std::move(measured).while_(plugin_->name + ": measuring its peaks");
  constexpr double kGiga = 1e9, kMost = 1e18;
  for (const double rate :
       {peaks.read_bytes_per_s, peaks.copy_bytes_per_s, peaks.f32_ops_per_s, peaks.bf16_ops_per_s, peaks.int8_ops_per_s}) {
    if (!(rate >= 0 && rate <= kMost)) return internal_error("{} states a peak of {} a second", plugin_->name, rate);
  }
  return kernels::MachinePeaks{.read_gbps = peaks.read_bytes_per_s / kGiga,
                               .fma_gflops = peaks.f32_ops_per_s / kGiga,
                               .int8_gops = peaks.int8_ops_per_s / kGiga,
                               .tile_gflops = peaks.bf16_ops_per_s / kGiga,
                               .copy_gbps = peaks.copy_bytes_per_s / kGiga};
}

Result<std::unique_ptr<kernels::PackedMatrix>> PluginMatrix::pack(std::shared_ptr<PluginDevice> device,
                                                                  const kernels::PackSpec& spec) {
  std::vector<choral_weight_part> parts;
  int64_t n = 0;
  for (const auto& part : spec.rows) {
    const auto& tensor = part.tensor;
    const int64_t count = part.order.empty() ? tensor.rows() : std::ssize(part.order);
    parts.push_back(
        {tensor.data, count, row_bytes(tensor.dtype, tensor.cols()), part.order.empty() ? nullptr : part.order.data()});
    n += count;
  }
  auto weight = with_header<choral_weight>();
  weight.stored_dtype = static_cast<int32_t>(spec.rows.front().tensor.dtype);
  weight.dtype = static_cast<int32_t>(spec.format);
  weight.cols = spec.rows.front().tensor.cols();
  weight.parts = parts.data();
  weight.part_count = std::ssize(parts);
  weight.activations = static_cast<int32_t>(spec.activations);
  std::optional<WeightScales> scales;
  if (!spec.scales.empty()) {
    CHORAL_TRY(scales, WeightScales::of(spec));
    scales->describe(weight);
  }
  auto facts = with_header<choral_packed_facts>();
  std::unique_ptr<PluginMatrix> matrix(new PluginMatrix(std::move(device), n, weight.cols));
  const auto& d = *matrix->device_;
  CHORAL_RETURN_IF_ERROR(take_status(d.call(d.plugin().weights.prepack, d.stream(), &weight, &matrix->handle_, &facts)));
  if (matrix->handle_ == nullptr) return internal_error("prepack gave neither a weight nor an error");
  matrix->size_bytes_ = std::max<int64_t>(facts.size_bytes, 0);
  d.count_taken(matrix->size_bytes_);
  matrix->format_ = plugin_text(facts.format, sizeof facts.format);
  matrix->kernel_ = plugin_text(facts.kernel, sizeof facts.kernel);
  if (spec.format == DType::kI8) matrix->integers_ = std::move(scales);
  return std::unique_ptr<kernels::PackedMatrix>(std::move(matrix));
}

PluginMatrix::~PluginMatrix() {
  if (handle_ == nullptr) return;
  device_->call(device_->plugin().weights.release, handle_);
  device_->count_taken(-size_bytes_);
}

Status PluginMatrix::read_row(int64_t row, std::span<float> out) const {
  Status read = device_->read_row(handle_, row, out);
  if (read.ok()) [[likely]]
    return read;
  return std::move(read).while_(fmt::format("reading back row {} of a weight", row));
}

Result<const kernels::PackedMatrix*> PluginMatrix::host_copy(ThreadPool& pool) const {
  if (host_copy_ == nullptr) {
    CHORAL_TRY(host_copy_, integers_ ? copy_of_integers(pool) : copy_of_floats(pool));
  }
  return host_copy_.get();
}

Result<std::unique_ptr<kernels::PackedMatrix>> PluginMatrix::copy_of_floats(ThreadPool& pool) const {
  std::vector<float> rows(n() * k());
  for (int64_t i = 0; i < n(); ++i) {
    CHORAL_RETURN_IF_ERROR(read_row(i, std::span(rows).subspan(i * k(), k())));
  }
  const kernels::WeightRows whole{{std::as_bytes(std::span(rows)).data(), DType::kF32, {n(), k()}, kCpuDevice}, {}};
  return kernels::pack_float({&whole, 1}, DType::kF32, pool);
}

Result<std::unique_ptr<kernels::PackedMatrix>> PluginMatrix::copy_of_integers(ThreadPool& pool) const {
  std::vector<float> row(k());
  std::vector<int8_t> q(n() * k());
  for (int64_t i = 0; i < n(); ++i) {
    CHORAL_RETURN_IF_ERROR(read_row(i, row));
    CHORAL_RETURN_IF_ERROR(integers_->restore(i, row, std::span(q).subspan(i * k(), k())));
  }
  const kernels::WeightRows whole{{std::as_bytes(std::span(q)).data(), DType::kI8, {n(), k()}, kCpuDevice}, {}};
  return kernels::pack_weight(integers_->with({&whole, 1}), pool);
}

int64_t PluginMatrix::most_rows(CpuLevel) const {
  CHORAL_CHECK(false, "a device's matrix is multiplied through the device's table");
}

const kernels::MatrixProduct* PluginMatrix::plan(const kernels::Context&, const kernels::ProductInput&, const kernels::Epilogue&,
                                                 MatrixView<float>, int) const {
  CHORAL_CHECK(false, "a device's matrix is multiplied through the device's table");
}

}  // namespace choral::platform
