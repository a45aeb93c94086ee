#include "io/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/system_error.h"

namespace choral::io {
namespace {

Status file_error(std::string_view verb, std::string_view path, int code) {
  if (code == ENOENT || code == ENOTDIR) return not_found("{}: no such file", path);
  return system_error(code, fmt::format("cannot {} {}", verb, path));
}

FileStamp stamp_of(const struct stat& facts) {
  return {.device = static_cast<uint64_t>(facts.st_dev),
          .inode = static_cast<uint64_t>(facts.st_ino),
          .size = static_cast<uint64_t>(facts.st_size),
          .modified_ns = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

}  // namespace

Result<FileStamp> file_stamp(const std::filesystem::path& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return file_error("examine", path.string(), errno);
  return stamp_of(facts);
}

Status check_unchanged(const std::filesystem::path& path, const FileStamp& before) {
  const auto now = file_stamp(path);
  return now.ok() && *now == before ? Status() : changed_while_read(path.string());
}

Result<RegularFile> RegularFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe without a writer must not hang; it means nothing to a regular file.
  RegularFile file(path.string(), ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.descriptor_ < 0) return file.error("open", errno);
  struct stat facts {};
  if (::fstat(file.descriptor_, &facts) != 0) return file.error("examine", errno);
  if (S_ISDIR(facts.st_mode)) return invalid_argument("{} is a directory, a file is needed", file.path_);
  if (!S_ISREG(facts.st_mode)) return invalid_argument("{} is not a regular file (a pipe, socket or device)", file.path_);
  file.stamp_ = stamp_of(facts);
  return file;
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), stamp_(other.stamp_) {}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<size_t> RegularFile::read(std::span<std::byte> out) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // Linux reads less than 2 GiB in one call
  while (true) {
    const ssize_t got = ::read(descriptor_, out.data(), std::min(out.size(), kMostAtOnce));
    if (got >= 0) return static_cast<size_t>(got);
    if (errno != EINTR) return error("read", errno);
  }
}

Status RegularFile::error(std::string_view verb, int code) const { return file_error(verb, path_, code); }

Status RegularFile::check_unchanged() const {
  struct stat facts {};
  if (::fstat(descriptor_, &facts) != 0) return error("examine", errno);
  return stamp_of(facts) == stamp_ ? Status() : changed_while_read(path_);
}

Status changed_while_read(std::string_view path) {
  return unavailable(
      "{} changed while it was read; try again once it is written, and replace such a file by renaming a finished one", path);
}

}  // namespace choral::io
