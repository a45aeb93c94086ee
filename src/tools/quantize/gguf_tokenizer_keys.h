// The keys of GGUF metadata that say what a model's tokenizer is and which tokens end an answer.
#pragma once

#include "io/gguf_writer.h"
#include "tools/quantize/float_model.h"

namespace choral::tools {

// Of the tokenizer and the generation config beside `model`, whose vocabulary is padded to the embedding's rows.
Status add_tokenizer_keys(const FloatModel& model, io::GgufMetadata& metadata);

}  // namespace choral::tools
