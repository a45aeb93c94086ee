#include "io/new_file.h"

#include <cerrno>

#include "base/system_error.h"

namespace choral::io {

std::filesystem::path NewFile::partial_path(const std::filesystem::path& path) {
  auto beside = path;
  beside += ".part";
  return beside;
}

Result<std::unique_ptr<NewFile>> NewFile::create(const std::filesystem::path& path) {
  std::unique_ptr<NewFile> file(new NewFile);
  file->path_ = path;
  file->beside_ = partial_path(path);
  file->file_.open(file->beside_, std::ios::binary | std::ios::trunc);
  if (!file->file_) return file->cannot_write();
  return file;
}

NewFile::~NewFile() {
  if (finished_) return;
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(beside_, ignored);
}

Status NewFile::write(std::span<const std::byte> bytes) {
  file_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  return file_ ? Status() : cannot_write();
}

Status NewFile::finish() {
  file_.close();
  if (!file_) return cannot_write();
  std::error_code error;
  std::filesystem::rename(beside_, path_, error);
  if (error) return system_error(error.value(), fmt::format("cannot rename {} to {}", beside_.string(), path_.string()));
  finished_ = true;
  return {};
}

Status NewFile::cannot_write() const { return system_error(errno, "cannot write " + beside_.string()); }

}  // namespace choral::io
