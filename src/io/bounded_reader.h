// The one cursor over untrusted little-endian bytes: every binary format is read through it and never by pointer arithmetic.
// Each read checks what is left first; an error names the file, the offset and what was being read. Nothing is copied:
// strings and byte ranges are views into the input. A failed read leaves the cursor where it was. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"

namespace choral::io {

class BoundedReader {
 public:
  // `file` is for messages; both must outlive the reader.
  BoundedReader(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  Result<uint8_t> u8(std::string_view what) { return number<uint8_t>(what); }
  Result<uint16_t> u16(std::string_view what) { return number<uint16_t>(what); }
  Result<uint32_t> u32(std::string_view what) { return number<uint32_t>(what); }
  Result<uint64_t> u64(std::string_view what) { return number<uint64_t>(what); }
  Result<float> f32(std::string_view what) { return number<float>(what); }
  Result<double> f64(std::string_view what) { return number<double>(what); }

  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what);
  // A u64 length and that many bytes; a length over `max_length` is kTooLarge. The bytes are not checked for UTF-8.
  Result<std::string_view> string(uint64_t max_length, std::string_view what);
  Status skip(uint64_t count, std::string_view what);
  // Moves to the next multiple of `alignment` (a power of two) from the start of the bytes.
  Status align(uint64_t alignment, std::string_view what);

  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return bytes_.size() - offset_; }
  std::string_view file() const { return file_; }

 private:
  template <class T>
  Result<T> number(std::string_view what);

  std::span<const std::byte> bytes_;
  std::string_view file_;
  size_t offset_ = 0;
};

}  // namespace choral::io
