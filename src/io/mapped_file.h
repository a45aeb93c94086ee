// A regular file mapped read-only, and the one way to read a small file whole. Every reader of a model file starts here.
// Directories, pipes and devices are refused before anything is read. The mapping keeps its size and shows the file as it is:
// whoever writes to a file in place while it is mapped changes what is read, and whoever cuts it leaves nothing to read. Neither
// ends the process (mapping_guard.h): what is lost reads as zeros, and check_unchanged(), to be asked after the last read, says
// that the file was cut or written to since open(). A file that is replaced by rename or removed stays as it was. Thread-safe:
// all members are const; `release` only drops pages, which come back from the file on the next touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "io/file_bytes.h"
#include "io/mapping_guard.h"
#include "io/regular_file.h"

namespace choral::io {

class MappedFile : public FileBytes {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  static Result<std::shared_ptr<const MappedFile>> open(RegularFile file);
  ~MappedFile() override;

  // Gives the memory of the pages lying wholly inside `range` back (MADV_DONTNEED). For weights that were packed and are not read
  // again.
  void release(std::span<const std::byte> range) const override;
  Status check_unchanged() const override;
  std::string identity() const override { return file_.identity(); }
  // All of it will be read over and over: it shall be in huge pages, where the kernel has them for files.
  void use_huge_pages() const;

 private:
  MappedFile(RegularFile file, std::span<const std::byte> bytes);

  RegularFile file_;  // open, so that changes are seen whatever becomes of its name
  std::optional<MappingGuard> guard_;
};

// The file's bytes. Written to meanwhile: kUnavailable. Over `max_bytes`:
// kTooLarge; absent: kNotFound; not a regular file: kInvalidArgument.
Result<std::string> read_whole_file(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace choral::io
