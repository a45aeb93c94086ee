// A file that is there only when it is whole: written beside its place under a name that no other process has, brought to the
// disk, then renamed. Of several that write one file at once, the last to finish stays. write_at() may be called from several
// threads.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

#include "base/owned_fd.h"
#include "base/status.h"

namespace choral::io {

class NewFile {
 public:
  // What an unfinished file's name has behind that of the file.
  static constexpr std::string_view kMark = ".part-";

  // `mode` as the umask leaves it.
  static Result<std::unique_ptr<NewFile>> create(const std::filesystem::path& path, mode_t mode = 0666);
  ~NewFile();  // without finish() nothing stays
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::filesystem::path& unfinished_path() const { return beside_; }  // where it is written
  Status write(std::span<const std::byte> bytes);                           // behind what write() wrote before
  Status write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  Status finish();

 private:
  NewFile() = default;

  std::filesystem::path path_, beside_;
  OwnedFd file_;
  uint64_t size_ = 0;  // what write() wrote
};

}  // namespace choral::io
