// What a piece of a GGUF tensor holds, in the file's order and type.
#pragma once

#include "platform/context.h"
#include "tools/quantize/gguf_tensors.h"

namespace choral::tools {

// The bytes of `piece` of `plan`, made of the model's tensor `source`.
Result<Tensor> make_gguf_piece(const platform::Context& ctx, const GgufTensorPlan& plan, const GgufPiece& piece,
                               const io::SourceTensor& source);

}  // namespace choral::tools
