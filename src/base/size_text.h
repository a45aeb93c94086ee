// Sizes as people read them. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace choral {

// In powers of 1024: "12 bytes", "1.5 GiB".
std::string size_text(int64_t bytes);

}  // namespace choral
