#include "io/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/system_error.h"

namespace choral::io {
namespace {

// Of file systems whose clock is the kernel's, several of its ticks.
constexpr int64_t kTickNs = 100'000'000;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

Status file_error(std::string_view verb, std::string_view path, int code) {
  if (code == ENOENT || code == ENOTDIR) return not_found("{}: no such file", path);
  return system_error(code, fmt::format("cannot {} {}", verb, path));
}

FileStamp stamp_of(const struct stat& facts) {
  return {.device = static_cast<uint64_t>(facts.st_dev),
          .inode = static_cast<uint64_t>(facts.st_ino),
          .size = static_cast<uint64_t>(facts.st_size),
          .modified_ns = nanoseconds(facts.st_mtim)};
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
  file.status_changed_ns_ = nanoseconds(facts.st_ctim);
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  file.opened_ns_ = nanoseconds(now);
  file.is_of_this_user_ = (facts.st_uid == 0 || facts.st_uid == ::geteuid()) && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  return file;
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      stamp_(other.stamp_),
      status_changed_ns_(other.status_changed_ns_),
      opened_ns_(other.opened_ns_),
      is_of_this_user_(other.is_of_this_user_) {}

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

std::string RegularFile::identity() const {
  if (opened_ns_ - std::max(stamp_.modified_ns, status_changed_ns_) < kTickNs) return {};
  return fmt::format("{} {} {} {}", stamp_.size, stamp_.inode, stamp_.modified_ns, status_changed_ns_);
}

bool RegularFile::is_of_this_user() const { return is_of_this_user_; }

Status changed_while_read(std::string_view path) {
  return unavailable(
      "{} changed while it was read; try again once it is written, and replace such a file by renaming a finished one", path);
}

}  // namespace choral::io
