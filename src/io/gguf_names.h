// What GGUF calls things, in Hugging Face words: the architectures Choral reads from GGUF, and their tensors. Known to io and to
// the reader of GGUF adapters.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/gguf.h"

namespace choral::io {

// One thing by both names.
struct GgufRenaming {
  std::string_view gguf, hf;
};

// A tensor of a layer that GGUF holds as two, which give its rows in turns.
struct GgufJoint {
  enum class Turn {
    kRow,         // a row of each
    kAll,         // all rows of the first, then all of the second
    kLatentHead,  // a head's keys, turned round, and its values
    kDeltaHead,   // a key head's q and k and its value heads' v, of the first, and their z
  };
  std::string_view hf, first, second;
  Turn turn = Turn::kRow;
};

struct GgufArchitecture {
  std::string_view name;             // "llama", also the prefix of its metadata keys
  std::string_view hf_class;         // "LlamaForCausalLM"
  std::string_view model_type;       // "llama"
  bool interleaved_qk = false;       // q_proj and k_proj rows are stored in interleaved rope order
  bool experts = false;              // a mixture of experts: has "….expert_count"
  bool sigmoid_gating = false;       // its experts are scored by a sigmoid: "….expert_gating_func" is 2
  bool norms_hold_one = false;       // norms are stored as 1 + w, where Hugging Face has w (a delta net's is not)
  bool latent = false;               // its heads' keys and values are DeepSeek's latents: has "….attention.kv_lora_rank"
  bool layer_norm = false;           // its norms subtract the mean; their epsilon has another key
  std::optional<bool> windows = {};  // whether it has "….attention.sliding_window", where that tells two classes apart
  bool delta_nets = false;           // has "….ssm." sizes
  bool mamba2 = false;               // has them of Mamba-2 layers, which have no keys in "….attention.head_count_kv"
  bool tiled_value_heads = false;    // a delta net's value heads stand in tiles, see tiled_heads_order()
  std::span<const GgufRenaming> in_layer = {};  // what a layer's tensors are called otherwise than in llama
  std::span<const GgufJoint> joints = {};
};

// From general.architecture; kUnsupported names those that are read.
Result<GgufArchitecture> gguf_architecture(const GgufFile& file);

// Whether a file of the GGUF architecture `name` may belong to a model of the class `hf_class`. llama.cpp writes Mistral's models
// as llama too, so these two pass for each other.
bool is_gguf_architecture_of(std::string_view name, std::string_view hf_class);

// By which a model of the class `hf_class` is written; none: GGUF files of it are not read either. `experts`: whether it has
// some, where that tells two forms of a class apart.
std::optional<GgufArchitecture> gguf_architecture_of(std::string_view hf_class, bool experts = false);

// Sizes of a model, by both names; GGUF's follow the architecture: "llama.embedding_length".
inline constexpr std::array<GgufRenaming, 4> kGgufSizes{{{"embedding_length", "hidden_size"},
                                                         {"feed_forward_length", "intermediate_size"},
                                                         {"block_count", "num_hidden_layers"},
                                                         {"context_length", "max_position_embeddings"}}};

// How a model's makers sample from it.
inline constexpr std::array<GgufRenaming, 5> kGgufSampling{{{"general.sampling.temp", "temperature"},
                                                            {"general.sampling.top_k", "top_k"},
                                                            {"general.sampling.top_p", "top_p"},
                                                            {"general.sampling.min_p", "min_p"},
                                                            {"general.sampling.penalty_repeat", "repetition_penalty"}}};

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight". A name without a counterpart comes back as it is, so that
// whoever checks for unused tensors sees it. A tensor of all experts of a layer is "….experts.*.gate_proj.weight".
std::string hf_tensor_name(const GgufArchitecture& architecture, std::string_view gguf_name);
// The way back; empty: GGUF has no such tensor.
std::string gguf_tensor_name(const GgufArchitecture& architecture, std::string_view hf_name);
// Of a tensor that is one of a joint's two: the whole's Hugging Face name and the GGUF names of both.
struct GgufJointNames {
  const GgufJoint* joint = nullptr;
  std::string hf, first, second;
};
std::optional<GgufJointNames> gguf_joint_names(const GgufArchitecture& architecture, std::string_view gguf_name);
// The same of a tensor that GGUF holds as two, by its Hugging Face name.
std::optional<GgufJointNames> gguf_joint_of(const GgufArchitecture& architecture, std::string_view hf_name);
// Of a tensor of all experts' gates and, behind each one's, its up's, as llama.cpp may write them whatever the architecture is:
// the two Hugging Face names with a star for the expert. None: another tensor, or a model that has both as one too.
std::optional<std::pair<std::string, std::string>> gguf_halves(const GgufArchitecture& architecture, std::string_view gguf_name);
// What a tensor of this Hugging Face name is more than Hugging Face's, in each element.
float gguf_added(const GgufArchitecture& architecture, std::string_view hf_name);

// How many key heads each layer has, 0 where it has no attention: a number for all, or a list. Those that have some have equally
// many.
Result<std::vector<int64_t>> gguf_kv_heads(const ConfigMap& metadata, std::string_view architecture, int64_t layers);
// How many those have that have some. `absent`: where the file does not say.
Result<int64_t> gguf_key_heads(const ConfigMap& metadata, const GgufArchitecture& architecture, int64_t absent);

// Whether it is a matrix of one row, which GGUF holds as a vector.
bool is_one_row_in_gguf(std::string_view hf_name);

// Rows of a q_proj or k_proj of an architecture with interleaved_qk: row i of Hugging Face's order is row order[i] of the file.
// The file has each head's rows as pairs (j, j + d/2) side by side; Hugging Face has the first halves, then the second. `rows` is
// a multiple of 2 · heads.
std::vector<int32_t> half_split_order(int64_t rows, int64_t heads);

// Rows of what a delta net has for each value head, `dim` of them a head and maybe others before: row i of Hugging Face's order
// is row order[i] of the file. Hugging Face has the value heads of a key head side by side; the file has the first of every key
// head, then the second. `rows` is no less than value_heads · dim, and value_heads a multiple of key_heads.
std::vector<int32_t> tiled_heads_order(int64_t rows, int64_t key_heads, int64_t value_heads, int64_t dim);

}  // namespace choral::io
