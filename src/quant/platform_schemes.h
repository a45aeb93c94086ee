// A model's quantisation with the schemes that its platform brings in the place of the engine's own.
#pragma once

#include <memory>

#include "platform/scheme_overrides.h"
#include "quant/quant_config.h"

namespace choral::quant {

// Layers get what `usual` gives them, or what `overrides` makes of it.
Result<std::unique_ptr<QuantConfig>> with_platform_schemes(std::unique_ptr<QuantConfig> usual,
                                                           const platform::SchemeOverrides& overrides);

}  // namespace choral::quant
