// The functions that every template can call: range, namespace, dict, cycler, joiner, and Hugging Face's raise_exception
// and strftime_now.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/object.h"

namespace choral::text::jinja {

std::vector<std::pair<std::string_view, Value>> global_functions();

}  // namespace choral::text::jinja
