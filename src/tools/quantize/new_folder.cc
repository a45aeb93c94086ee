#include "tools/quantize/new_folder.h"

#include <unistd.h>

#include "base/system_error.h"

namespace choral::tools {

namespace fs = std::filesystem;

namespace {

// `path` with another end, of this process alone.
fs::path beside(const fs::path& path, std::string_view end) {
  auto other = path;
  return other += fmt::format(".{}-{}", end, ::getpid());
}

Status cannot(std::string_view verb, const fs::path& path, const std::error_code& error) {
  return system_error(error.value(), fmt::format("cannot {} {}", verb, path.string()));
}

Status cannot_rename(const fs::path& from, const fs::path& to, const std::error_code& error) {
  return system_error(error.value(), fmt::format("cannot rename {} to {}", from.string(), to.string()));
}

}  // namespace

Result<std::unique_ptr<NewFolder>> NewFolder::plan(const fs::path& path, bool replace) {
  std::unique_ptr<NewFolder> folder(new NewFolder);
  std::error_code error;
  folder->path_ = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error) return cannot("find", path, error);
  if (!folder->path_.has_filename()) folder->path_ = folder->path_.parent_path();
  folder->partial_ = beside(folder->path_, "part");
  CHORAL_RETURN_IF_ERROR(folder->check(replace));
  return folder;
}

Status NewFolder::check(bool replace) {
  std::error_code error;
  const auto status = fs::status(path_, error);
  if (status.type() == fs::file_type::none) return cannot("look at", path_, error);
  if (status.type() == fs::file_type::not_found) {
    if (fs::is_directory(path_.parent_path(), error)) return {};
    return not_found("{} is to be made in {}, which is no folder; make that first", path_.filename().string(),
                     path_.parent_path().string());
  }
  if (status.type() != fs::file_type::directory) return invalid_argument("{} is there and is no folder", path_.string());
  const bool empty = fs::is_empty(path_, error);
  if (error) return cannot("look into", path_, error);
  if (empty) return {};
  if (!replace)
    return invalid_argument("{} is not empty; name another folder, or replace the model in it with --force", path_.string());
  if (!fs::is_regular_file(path_ / "config.json", error)) {
    return invalid_argument("{} holds no model (no config.json), so --force does not replace it; name another folder",
                            path_.string());
  }
  replaces_ = true;
  return {};
}

Status NewFolder::make() {
  const std::lock_guard lock(mutex_);
  std::error_code error;
  if (!fs::create_directory(partial_, error)) {
    if (!error) error = std::make_error_code(std::errc::file_exists);
    return cannot("make", partial_, error);
  }
  made_ = true;
  return {};
}

NewFolder::~NewFolder() { remove_partial(); }

Status NewFolder::commit() {
  const std::lock_guard lock(mutex_);
  if (!made_) return cancelled("{} was given up", path_.string());
  std::error_code error;
  const auto old = beside(path_, "old");
  if (replaces_) {
    fs::rename(path_, old, error);
    if (error) return cannot_rename(path_, old, error);
  }
  fs::rename(partial_, path_, error);  // over an empty folder too
  if (error) {
    const Status status = cannot_rename(partial_, path_, error);
    if (replaces_) fs::rename(old, path_, error);
    return status;
  }
  made_ = false;
  if (replaces_) fs::remove_all(old, error);
  return error && replaces_ ? cannot("remove what was replaced,", old, error) : Status();
}

void NewFolder::remove_partial() {
  const std::lock_guard lock(mutex_);
  std::error_code ignored;
  if (made_) fs::remove_all(partial_, ignored);
  made_ = false;
}

}  // namespace choral::tools
