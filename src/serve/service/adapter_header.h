// How answers say which content of an adapter they are about: "X-Choral-Adapter: sql; generation=2; digest=…". Pure.
#pragma once

#include <string_view>

#include "serve/http/message.h"

namespace choral::serve {

void add_adapter_header(std::string_view name, int generation, std::string_view digest, Headers& headers);

}  // namespace choral::serve
