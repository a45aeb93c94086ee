// Brings to the disk which names a folder has. Any thread; waits for it.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace choral::serve {

Status flush_folder(const std::filesystem::path& path);

}  // namespace choral::serve
