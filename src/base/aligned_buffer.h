// Owned bytes, 64-byte aligned and zero-filled; large ones ask for huge pages. The storage behind weights, caches and scratch.
// Move-only. Allocation failure is a Status, never a crash: sizes often come from files or flags.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"

namespace choral {

inline constexpr size_t kCacheLineBytes = 64;

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  static Result<AlignedBuffer> allocate(size_t size_bytes);

  // Writes to every page of memory that nobody wrote to: the first time costs more than all that comes after.
  void touch();

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return size_bytes_; }

  template <class T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), size_bytes_ / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), size_bytes_ / sizeof(T)};
  }

 private:
  struct Unmap {
    size_t mapped_bytes;
    void operator()(std::byte* p) const;
  };
  AlignedBuffer(std::byte* data, size_t size_bytes, size_t mapped_bytes)
      : data_(data, Unmap{mapped_bytes}), size_bytes_(size_bytes) {}

  std::unique_ptr<std::byte, Unmap> data_{nullptr, Unmap{0}};
  size_t size_bytes_ = 0;
};

}  // namespace choral
