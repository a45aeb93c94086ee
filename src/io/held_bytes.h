// Bytes in memory that stand for a file's (file_bytes.h). Thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "io/file_bytes.h"

namespace choral::io {

class HeldBytes final : public FileBytes {
 public:
  // `owner` holds the bytes; `name` is for messages.
  HeldBytes(std::string name, std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : FileBytes(std::move(name)), owner_(std::move(owner)) {
    bytes_ = bytes;
  }
  void release(std::span<const std::byte>) const override {}
  Status check_unchanged() const override { return {}; }

 private:
  std::shared_ptr<const void> owner_;
};

}  // namespace choral::io
