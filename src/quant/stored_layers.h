// Formats whose quantised layers have tensors under names of their own (`qweight`): what the file holds of a layer decides, since
// descriptions forget layers that were left out, name them by parts of names that others have too, or leave routers open.
#pragma once

#include "quant/quant_config.h"

namespace choral::quant {

// `described` as it is for formats that have no such tensors (QuantConfig::packed_scheme).
std::unique_ptr<QuantConfig> with_stored_layers(std::unique_ptr<QuantConfig> described, HasTensor has_tensor);

}  // namespace choral::quant
