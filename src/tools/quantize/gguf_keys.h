// What a model is made of -> what a GGUF file says of it, by the keys of its architecture, and the tensors that stand for keys.
// That a reader makes the same model of it is not known here: gguf_read_back.h sees to that, so a number that has no key needs
// no care of its own. Pure.
#pragma once

#include <string>
#include <vector>

#include "io/gguf_names.h"
#include "io/gguf_writer.h"
#include "models/model.h"

namespace choral::tools {

struct GgufKeys {
  io::GgufMetadata metadata;
  // Factors of the rotary frequencies, where they are no formula's.
  struct Factors {
    std::string tensor;  // "rope_freqs.weight"
    std::vector<float> values;
  };
  std::vector<Factors> factors;
};

// `context`: how many positions the model has.
Result<GgufKeys> gguf_keys(const models::ModelSpec& spec, const io::GgufArchitecture& architecture, int64_t context);

}  // namespace choral::tools
