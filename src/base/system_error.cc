#include "base/system_error.h"

#include <sys/resource.h>

#include <cerrno>
#include <system_error>

namespace choral {
namespace {

std::string open_files_text() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return fmt::format("; this process may have {} open at once: raise the limit of open files (ulimit -n)", limit.rlim_cur);
}

}  // namespace

Status system_error(int error, std::string_view what) {
  const std::string text = fmt::format("{}: {}", what, std::generic_category().message(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: return not_found("{}", text);
    case EACCES:
    case EPERM:
    case EROFS: return permission_denied("{}", text);
    case EMFILE: return resource_exhausted("{}{}", text, open_files_text());
    case ENFILE: return resource_exhausted("{}; the whole system has too many files open", text);
    case ENOSPC:
    case EDQUOT: return resource_exhausted("{}; make room or name another place", text);
    case EFBIG: return resource_exhausted("{}; the file system, or this process's limit (ulimit -f), has no larger files", text);
    case ENOMEM:
    case EAGAIN: return resource_exhausted("{}", text);
    case EIO: return internal_error("{}", text);
    default: return invalid_argument("{}", text);
  }
}

}  // namespace choral
