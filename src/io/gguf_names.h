// What GGUF calls things, in Hugging Face words: the architectures Choral reads from GGUF, and their tensors. Known to io and to
// the reader of GGUF adapters.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "io/gguf.h"

namespace choral::io {

struct GgufArchitecture {
  std::string_view name;        // "llama", also the prefix of its metadata keys
  std::string_view hf_class;    // "LlamaForCausalLM"
  std::string_view model_type;  // "llama"
  bool interleaved_qk;          // q_proj and k_proj rows are stored in interleaved rope order
};

// From general.architecture; kUnsupported names those that are read. Split files and mixtures of experts are refused here too.
Result<GgufArchitecture> gguf_architecture(const GgufFile& file);

// Whether a file of the GGUF architecture `name` may belong to a model of the class `hf_class`. llama.cpp writes Mistral's models
// as llama too, so these two pass for each other.
bool is_gguf_architecture_of(std::string_view name, std::string_view hf_class);

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name without a counterpart comes back as it is, so that
// whoever checks for unused tensors sees it.
std::string hf_tensor_name(std::string_view gguf_name);

}  // namespace choral::io
