#include "serve/disk_flush.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/owned_fd.h"
#include "base/system_error.h"

namespace choral::serve {

Status flush_folder(const std::filesystem::path& path) {
  const OwnedFd open(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open.get() < 0 || ::fsync(open.get()) != 0) return system_error(errno, fmt::format("cannot write {}", path.string()));
  return {};
}

}  // namespace choral::serve
