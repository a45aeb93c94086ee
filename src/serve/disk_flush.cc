#include "serve/disk_flush.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/system_error.h"
#include "serve/http/owned_fd.h"

namespace choral::serve {
namespace {

Status flush_at(const std::filesystem::path& path, int flags) {
  const OwnedFd open(::open(path.c_str(), flags | O_CLOEXEC));
  if (open.get() < 0 || ::fsync(open.get()) != 0) return system_error(errno, fmt::format("cannot write {}", path.string()));
  return {};
}

}  // namespace

Status flush_file(const std::filesystem::path& path) { return flush_at(path, O_RDONLY); }
Status flush_folder(const std::filesystem::path& path) { return flush_at(path, O_RDONLY | O_DIRECTORY); }

}  // namespace choral::serve
