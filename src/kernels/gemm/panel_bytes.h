// The bytes of a packed matrix's panels: the matrix's own, or part of memory that somebody else owns and others read too, such as
// a mapped file. Never written to once a matrix has them. Move-only.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "base/aligned_buffer.h"

namespace choral::kernels {

class PanelBytes {
 public:
  PanelBytes() = default;
  PanelBytes(AlignedBuffer own) : own_(std::move(own)), bytes_(own_.data(), own_.size_bytes()) {}
  // `owner` keeps them.
  PanelBytes(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) : owner_(std::move(owner)), bytes_(bytes) {}
  PanelBytes(PanelBytes&& other) noexcept
      : own_(std::move(other.own_)), owner_(std::move(other.owner_)), bytes_(std::exchange(other.bytes_, {})) {}
  PanelBytes& operator=(PanelBytes&& other) noexcept {
    own_ = std::move(other.own_);
    owner_ = std::move(other.owner_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }

  const std::byte* data() const { return bytes_.data(); }
  size_t size_bytes() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  AlignedBuffer own_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

}  // namespace choral::kernels
