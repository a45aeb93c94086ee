// Between a device's memory and the host's. Where the host computes, all of this is the memory itself and costs nothing; where it
// reaches the device's memory, it is the memory itself too, once what is queued has been waited for. Whoever holds a view queues
// nothing that its matrix is for. Copies live in the host's scratch (or the step's memory) until the enclosing StepMark or the
// step ends.
#pragma once

#include <cstring>
#include <span>

#include "platform/session.h"

namespace choral::platform {

enum class Access { kRead, kWrite, kReadWrite };

// A matrix of the step as the host may touch it; what was written goes back at the end of the scope.
template <class T>
class HostView {
 public:
  HostView(const Context& ctx, MatrixView<T> on_device, Access access)
      : ctx_(ctx), device_(on_device), host_(on_device), write_back_(access != Access::kRead) {
    if (device_.rows == 0 || ctx.session.reach_memory(access != Access::kWrite)) return;
    using Value = std::remove_const_t<T>;
    Value* data = ctx.kernel.scratch.make<Value>(device_.rows * device_.cols).data();
    host_ = {data, device_.rows, device_.cols};
    if (access != Access::kWrite) {
      ctx.session.copy(CopyKind::kToHost, data, pitch(host_), device_.data, pitch(device_), pitch(host_), device_.rows);
    }
  }
  ~HostView() {
    if constexpr (!std::is_const_v<T>) {
      if (write_back_) copy_to_device(ctx_, host_, device_);
    }
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  MatrixView<T> operator*() const { return host_; }

 private:
  static int64_t pitch(const MatrixView<T>& m) { return m.stride * static_cast<int64_t>(sizeof(T)); }

  const Context& ctx_;
  MatrixView<T> device_, host_;
  bool write_back_;
};

// The matrix itself where the host reaches it, else a copy in scratch that is never written back: valid until the enclosing
// StepMark or the step ends, and the host's to change.
inline MatrixView<float> host_copy(const Context& ctx, MatrixView<const float> on_device) {
  const MatrixView<const float> copy = *HostView<const float>(ctx, on_device, Access::kRead);
  return {const_cast<float*>(copy.data), copy.rows, copy.cols, copy.stride};
}

// Rows of the host's into rows of the device's memory, unless they are the same.
inline void copy_to_device(const Context& ctx, MatrixView<const float> from, MatrixView<float> to) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  if (from.rows == 0 || from.cols == 0 || from.data == to.data) return;
  ctx.session.copy(CopyKind::kToDevice, to.data, to.stride * kFloat, from.data, from.stride * kFloat, from.cols * kFloat,
                   from.rows);
}

// Rows of bytes to memory of the device: of the host's, or of the device's own, in the order of what is called.
inline void copy_rows(Session& session, CopyKind kind, std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch,
                      int64_t row_bytes, int64_t rows) {
  if (row_bytes == 0) return;
  if (!host_reads(session)) return session.copy(kind, to, to_pitch, from, from_pitch, row_bytes, rows);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(to + row * to_pitch, from + row * from_pitch, static_cast<size_t>(row_bytes));
  }
}
inline void copy_to_device(Session& session, std::span<const std::byte> from, std::byte* to) {
  const auto bytes = std::ssize(from);
  copy_rows(session, CopyKind::kToDevice, to, bytes, from.data(), bytes, bytes, 1);
}

// Host values as the step's operators read them.
template <class T>
const T* to_device(const Context& ctx, std::span<const T> values) {
  if (host_reads(ctx.session) || values.empty()) return values.data();
  T* data = ctx.memory.make<T>(values.size()).data();
  const auto bytes = static_cast<int64_t>(values.size_bytes());
  ctx.session.copy(CopyKind::kToDevice, data, bytes, values.data(), bytes, bytes, 1);
  return data;
}
template <class T>
IndexArray<T> place_indices(const Context& ctx, std::span<const T> values) {
  return {values, to_device(ctx, values)};
}

// Values of the device as the host reads them: themselves, or a copy in scratch, valid until the enclosing StepMark or the step
// ends.
template <class T>
std::span<const T> to_host(const Context& ctx, std::span<const T> on_device) {
  if (on_device.empty() || ctx.session.reach_memory(true)) return on_device;
  const auto copy = ctx.kernel.scratch.make<T>(on_device.size());
  const auto bytes = static_cast<int64_t>(on_device.size_bytes());
  ctx.session.copy(CopyKind::kToHost, copy.data(), bytes, on_device.data(), bytes, bytes, 1);
  return copy;
}

// A small vector of a layer on both sides: filled on the host while loading, then kept on the device.
class KeptVector {
 public:
  std::vector<float>& host() { return host_; }
  std::span<const float> host() const { return host_; }
  Status keep(Session& session);
  // For operators. Empty when the vector is.
  std::span<const float> on_device() const { return on_device_; }

 private:
  std::vector<float> host_;
  Tensor copy_;  // empty where the host's memory is the device's
  std::span<const float> on_device_;
};

}  // namespace choral::platform
