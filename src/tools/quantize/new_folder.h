// A folder that is there only when it is whole: its files are written into a neighbour with another name, which commit() moves
// into place.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>

#include "base/status.h"

namespace choral::tools {

class NewFolder {
 public:
  // `path` must not be there or be an empty folder; with `replace` it may also be a folder with a config.json, a model's, which
  // goes when the new one is in place. Makes nothing.
  static Result<std::unique_ptr<NewFolder>> plan(const std::filesystem::path& path, bool replace);
  ~NewFolder();  // without commit() nothing stays
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  Status make();
  const std::filesystem::path& path() const { return path_; }        // where it will be, without links
  const std::filesystem::path& partial() const { return partial_; }  // where it is written
  Status commit();
  // Any thread: the process is about to end.
  void remove_partial();

 private:
  NewFolder() = default;
  Status check(bool replace);

  std::filesystem::path path_, partial_;
  bool replaces_ = false;
  std::mutex mutex_;  // guards the one below, and moving into place
  bool made_ = false;
};

}  // namespace choral::tools
