// What passes between the host and a device's memory: copies, or the memory itself where the host reaches it.
#include <algorithm>
#include <cstring>

#include "platform/plugin/plugin_session.h"

namespace choral::platform {
namespace {

int32_t way_of(CopyKind kind) {
  switch (kind) {
    case CopyKind::kToDevice: return CHORAL_HOST_TO_DEVICE;
    case CopyKind::kToHost: return CHORAL_DEVICE_TO_HOST;
    case CopyKind::kOnDevice: break;
  }
  return CHORAL_DEVICE_TO_DEVICE;
}

}  // namespace

Result<Tensor> PluginSession::allocate(DType dtype, Shape shape) {
  const int64_t bytes = row_bytes(dtype, shape.elements());
  CHORAL_TRY(auto memory, device_->allocate(bytes));
  return Tensor(std::move(memory.owner), memory.data, dtype, shape, platform_.device());
}

Result<Tensor> PluginSession::keep(std::span<const float> values) {
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  CHORAL_TRY(auto memory, device_->allocate(bytes));
  if (reach_memory(false)) {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(memory.data));
  } else {
    queued_ = true;
    CHORAL_RETURN_IF_ERROR(device_->copy(CHORAL_HOST_TO_DEVICE, memory.data, bytes, values.data(), bytes, bytes, 1));
  }
  return Tensor(std::move(memory.owner), memory.data, DType::kF32, {std::ssize(values)}, platform_.device());
}

bool PluginSession::reach_memory(bool waits) {
  if (!device_->host_accessible() || !lost_.ok() || (queued_ && !waits)) return false;
  if (queued_) {
    about_to_wait();
    fail(device_->synchronize().while_("synchronize"));
    queued_ = false;
  }
  return lost_.ok();
}

void PluginSession::copy(CopyKind kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                         int64_t rows) {
  if (!lost_.ok()) return;
  if (kind != CopyKind::kOnDevice && reach_memory(kind == CopyKind::kToHost)) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<std::byte*>(to) + row * to_pitch, static_cast<const std::byte*>(from) + row * from_pitch,
                  static_cast<size_t>(row_bytes));
    }
    return;
  }
  queued_ = true;
  if (kind == CopyKind::kToHost) {
    ++host_copies_;
    host_copied_bytes_ += row_bytes * rows;
    about_to_wait();
  }
  fail(device_->copy(way_of(kind), to, to_pitch, from, from_pitch, row_bytes, rows).while_("copy"));
}

}  // namespace choral::platform
