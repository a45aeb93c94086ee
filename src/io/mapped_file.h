// A regular file mapped read-only, and the one way to read a small file whole. Every reader of a model file starts here.
// Directories, pipes and devices are refused before anything is read. The mapping keeps its size: whoever truncates a file in
// place while it is mapped makes the next read fail with SIGBUS, so replace model files by rename. Thread-safe: all members are
// const; `release` only drops pages, which come back from the file on the next touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace choral::io {

class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }  // as given to open(), for messages

  // Gives the memory of the pages lying wholly inside `range` back (MADV_DONTNEED). For weights that were packed and are not read
  // again.
  void release(std::span<const std::byte> range) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The file's bytes. Over `max_bytes`: kTooLarge; absent: kNotFound; not a regular file: kInvalidArgument.
Result<std::string> read_whole_file(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace choral::io
