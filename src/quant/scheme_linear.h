// The LinearMethod over a scheme: bias, epilogue and the columns of each packed run are the same for all of them.
#pragma once

#include <memory>

#include "quant/scheme.h"

namespace choral::quant {

std::unique_ptr<LinearMethod> make_scheme_linear_method(SchemePtr scheme);

}  // namespace choral::quant
