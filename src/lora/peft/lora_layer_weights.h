// One module's low-rank pair as its file holds it: y += scaling · B·(A·x) + scaling · bias. Names follow vLLM's LoRALayerWeights;
// the layout is PEFT's (A [r, in], B [out, r]), and ranks are the tensors' own.
// Copies share the tensors' bytes. A plain value.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "lora/peft/adapter_tensor.h"
#include "tensor/tensor.h"

namespace choral::lora {

class LoRALayerWeights {
 public:
  std::string module_name;  // "model.layers.0.self_attn.q_proj"
  int64_t rank = 0;
  double lora_alpha = 0;
  AdapterTensor lora_a;       // [r, in]; of an embedding [r, vocabulary, with the adapter's own tokens if it adapts those]
  AdapterTensor lora_b;       // [out, r]; of an embedding [width, r]; of a head also the rows of the adapter's own tokens
  AdapterTensor bias;         // lora_B.bias [out], multiplied by `scaling` too; empty = none
  AdapterTensor magnitude;    // DoRA's m [out]; empty = plain LoRA
  float scaling = 1.0F;       // alpha/r or alpha/sqrt(r), with the patterns applied
  bool is_embedding = false;  // B·A[:, token] is added to the token's row
  // A belongs to the fused module that the file names ("…qkv_proj"): the layer's other parts hold the same bytes in lora_a, so
  // whoever packs them may keep A once.
  bool shares_lora_a = false;

  int64_t input_dim() const { return lora_a.view.shape[1]; }
  int64_t output_dim() const { return lora_b.view.shape[0]; }
  bool is_dora() const { return !magnitude.empty(); }
  int64_t size_bytes() const;
};

}  // namespace choral::lora
