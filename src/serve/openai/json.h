// What serve takes from the readers of requests (requests/json.h). For .cc files only.
#pragma once

#include "requests/json.h"

namespace choral::serve {

using requests::dumped;
using requests::Json;
using requests::parse_object;
using requests::ParsedSize;
using requests::read_value;
using requests::shown;
using requests::wrong_type;

}  // namespace choral::serve
