#include "io/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/system_error.h"

namespace choral::io {

namespace fs = std::filesystem;

Result<std::unique_ptr<NewFile>> NewFile::create(const fs::path& path, mode_t mode) {
  constexpr int kTries = 100;  // names that an earlier process of this number, or one of another machine, left or has
  static std::atomic<uint32_t> count = 0;
  std::unique_ptr<NewFile> file(new NewFile);
  file->path_ = path;
  for (int i = 0; i < kTries && !file->file_.open(); ++i) {
    file->beside_ = path;
    file->beside_ += fmt::format("{}{}-{}", kMark, ::getpid(), count.fetch_add(1));
    file->file_ = OwnedFd(::open(file->beside_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!file->file_.open() && errno != EEXIST) break;
  }
  if (!file->file_.open()) return system_error(errno, "cannot write " + file->beside_.string());
  return file;
}

NewFile::~NewFile() {
  if (file_.open()) ::unlink(beside_.c_str());
}

Status NewFile::write(std::span<const std::byte> bytes) {
  CHORAL_RETURN_IF_ERROR(write_at(size_, bytes));
  size_ += bytes.size();
  return {};
}

Status NewFile::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return system_error(wrote < 0 ? errno : ENOSPC, "cannot write " + beside_.string());
    bytes = bytes.subspan(static_cast<size_t>(wrote));
    offset += static_cast<uint64_t>(wrote);
  }
  return {};
}

Status NewFile::finish() {
  if (::fsync(file_.get()) != 0) return system_error(errno, "cannot write " + beside_.string());
  if (::rename(beside_.c_str(), path_.c_str()) != 0)
    return system_error(errno, fmt::format("cannot rename {} to {}", beside_.string(), path_.string()));
  file_.reset();
  // The name is on the disk when its folder is. Without that the machine's end loses the file, and never leaves half of it.
  const fs::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  if (const OwnedFd open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); open.open()) ::fsync(open.get());
  return {};
}

}  // namespace choral::io
