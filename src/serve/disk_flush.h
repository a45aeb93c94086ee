// What was written is on the disk. Any thread; waits for it.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace choral::serve {

Status flush_file(const std::filesystem::path& path);
Status flush_folder(const std::filesystem::path& path);  // which names are in it

}  // namespace choral::serve
