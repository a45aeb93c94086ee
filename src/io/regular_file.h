// An open regular file. Directories, pipes and devices are refused before anything is read. Tells whether somebody wrote to the
// file since it was opened; a file that was replaced by rename is another one, and this one stays as it was.
// Not thread-safe where it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/status.h"

namespace choral::io {

// What tells one content of a file from another without reading it.
struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileStamp&) const = default;
};

// Of the file that has this name now.
Result<FileStamp> file_stamp(const std::filesystem::path& path);
// kUnavailable when that is not `before` any more.
Status check_unchanged(const std::filesystem::path& path, const FileStamp& before);

class RegularFile {
 public:
  static Result<RegularFile> open(const std::filesystem::path& path);
  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&&) = delete;
  ~RegularFile();

  const std::string& path() const { return path_; }     // as given to open(), for messages
  const FileStamp& stamp() const { return stamp_; }     // at open()
  int descriptor() const { return descriptor_; }        // stays this object's
  Result<size_t> read(std::span<std::byte> out);        // what follows; 0 at the end
  Status error(std::string_view verb, int code) const;  // of a system call on this file
  // kUnavailable when the file was written to or cut since open().
  Status check_unchanged() const;
  // What tells this content from every other that a file of this name has had, for whoever remembers it longer than the process
  // lives: size, inode, and the times of the last change, of which no program can set the second. Empty where the file changed
  // within a tick before it was opened: it might change again and tell the same.
  std::string identity() const;
  // Nobody but this user and root can have written it.
  bool is_of_this_user() const;

 private:
  RegularFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_;
  FileStamp stamp_;
  int64_t status_changed_ns_ = 0, opened_ns_ = 0;
  bool is_of_this_user_ = false;
};

// The error of both check_unchanged().
Status changed_while_read(std::string_view path);

}  // namespace choral::io
