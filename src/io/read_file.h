// A file read into memory once and as a whole: what is parsed, checked, hashed and packed are the same bytes, whatever becomes of
// the file. For adapters, which come and go while they are served. The memory is kept from one file to the next, because reading
// into fresh pages costs several times what the copy does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/aligned_buffer.h"
#include "io/file_bytes.h"
#include "io/regular_file.h"

namespace choral::io {

// Memory for files that are read one after the other. Not thread-safe; files read into it may outlive it.
class ReadMemory {
 public:
  explicit ReadMemory(uint64_t kept_bytes) : kept_bytes_(kept_bytes) {}

  // At least `size` bytes, of any content: what was kept if nobody holds it any more.
  Result<std::shared_ptr<AlignedBuffer>> take(uint64_t size);

 private:
  uint64_t kept_bytes_;  // a larger buffer is not kept
  std::shared_ptr<AlignedBuffer> kept_;
};

// The file from its beginning, of which nothing was read yet. kUnavailable: it changed since it was opened. Over `max_bytes`:
// kTooLarge. Errors of opening it: mapped_file.h.
Result<std::shared_ptr<const FileBytes>> read_file(RegularFile& file, uint64_t max_bytes, ReadMemory& memory);
Result<std::shared_ptr<const FileBytes>> read_file(const std::filesystem::path& path, uint64_t max_bytes, ReadMemory& memory);

}  // namespace choral::io
