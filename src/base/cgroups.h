// The control groups that this process is in, of version 1 and 2: a limit of any group around it holds for it, and a container
// often sees none but its own. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/system_files.h"

namespace choral {

struct Cgroup {
  std::string folder;  // of its files, for SystemFiles
  std::string name;    // "/system.slice/choral.service", as far as it can be seen from here; "/" for the outermost
  int version = 2;
};

// Those of `controller` ("memory", "cpu"), of each version the process's own first and then each that holds it.
std::vector<Cgroup> cgroups_of(const SystemFiles& files, std::string_view controller);

}  // namespace choral
