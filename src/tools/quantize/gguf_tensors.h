// The tensors of a GGUF file and what each is made of: GGUF stacks experts, has some matrices in two, some rows and columns in
// another order, some numbers in another form. checkpoint_gguf.cc backwards. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/gguf_names.h"
#include "io/safetensors_writer.h"
#include "models/decoder.h"
#include "tools/quantize/float_model.h"

namespace choral::tools {

// A share of a tensor of the file: rows of a tensor of the model. The elements of a vector are its rows.
struct GgufPiece {
  std::string source;
  std::vector<int32_t> rows;  // row i is the source's row rows[i]; empty: all of them as they are
};

struct GgufTensorPlan {
  io::TensorToCome tensor;
  std::vector<GgufPiece> pieces = {};  // one after the other
  std::vector<int32_t> columns = {};   // column j is the source's column columns[j]; empty: as they are
  int64_t turned = 0;                  // > 0: rows are taken so many at a time, and each such matrix is turned round
  float added = 0;                     // to each element
  bool is_decay = false;               // -exp(x) of each
};

// Without what stands for keys. Of layers behind the model's own, which predict further tokens, there is none. An error where
// GGUF has no name for a tensor.
Result<std::vector<GgufTensorPlan>> plan_gguf_tensors(const FloatModel& model, const models::DecoderSpec& spec,
                                                      const io::GgufArchitecture& architecture, DType codes);

// What a reader calls the tensor that `source` became, or became a part of.
std::string name_read_back(std::string_view source);

}  // namespace choral::tools
