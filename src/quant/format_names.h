// The names of what quant_config.cc reads. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace choral::quant {

std::vector<std::string> checkpoint_format_names();  // each a quant_method of config.json

}  // namespace choral::quant
