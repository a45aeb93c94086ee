// Names from untrusted files go into messages through here: control bytes and non-ASCII become \xNN (a file must not drive a
// terminal or forge a log line), quotes are escaped and long names are cut.
#pragma once

#include <string>
#include <string_view>

namespace choral {

std::string printable(std::string_view name, size_t max_bytes = 120);

}  // namespace choral
