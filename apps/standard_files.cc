#include "standard_files.h"

#include <fcntl.h>
#include <unistd.h>

namespace choral::apps {

void replace_closed_standard_files() {
  // The lowest free number is given first.
  int opened = ::open("/dev/null", O_RDONLY);
  while (opened >= 0 && opened <= STDERR_FILENO) opened = ::open("/dev/null", O_RDONLY);
  if (opened >= 0) ::close(opened);
}

}  // namespace choral::apps
