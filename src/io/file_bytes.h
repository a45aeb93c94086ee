// A whole file as bytes that stay as long as this lives. Parsers of file formats take either kind: mapped (mapped_file.h), for
// models, which are read once and are too large to copy; read into memory (read_file.h), for adapters, whose bytes must stay what
// they were when they were hashed. Thread-safe: all members are const.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace choral::io {

class FileBytes {
 public:
  virtual ~FileBytes() = default;
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }  // as given to whoever opened it, for messages

  // `range` is not read again: its memory may go.
  virtual void release(std::span<const std::byte> range) const = 0;
  // kUnavailable when bytes() may not be one content of the file. To be asked after the last read.
  virtual Status check_unchanged() const = 0;
  // RegularFile::identity(); empty of bytes of no file, and where it can't be told.
  virtual std::string identity() const { return {}; }

 protected:
  explicit FileBytes(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace choral::io
