// `choral quantize --format gguf`: one file with weights, configuration, tokenizer and chat template, which answers without its
// folder, here and elsewhere. Linear layers take the scheme's type; embedding and head Q8_0, as they are read by row and decide
// most; the rest is float32.
#pragma once

#include <memory>

#include "quant/written/written_scheme.h"
#include "tools/quantize.h"

namespace choral::tools {

Result<std::unique_ptr<CheckpointQuantizer>> open_gguf_quantizer(const QuantizeOptions& options,
                                                                 const quant::WrittenScheme& scheme);

}  // namespace choral::tools
