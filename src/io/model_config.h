// The configuration of a model as one ConfigMap in the spelling of Hugging Face transformers 4, whatever it was written in:
// config.json of transformers 4 or 5, or the metadata of a GGUF file. Model code reads only this spelling:
//   quantization_config of quant_method "modelslim" is quant_model_description.json, a file of its own,
//   rope_theta, rope_scaling {rope_type, factor, …}, rope_local_base_freq (per-layer-type rope), torch_dtype, num_experts …
// Thread-safe: free functions on values.
#pragma once

#include <filesystem>

#include "base/status.h"
#include "io/config_map.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "io/model_location.h"

namespace choral::io {

// `path`: a model directory with config.json, a GGUF file, or a single .safetensors file with a config.json beside it.
// The result has a non-empty `architectures`.
Result<ConfigMap> load_model_config(const std::filesystem::path& path);
Result<ConfigMap> load_model_config(const ModelLocation& location);

// generation_config.json of a directory (or beside a .safetensors file); bos/eos/pad ids of a GGUF file; nothing there: an empty
// map.
Result<ConfigMap> load_generation_config(const std::filesystem::path& path);
Result<ConfigMap> load_generation_config(const ModelLocation& location);

// transformers 5 -> 4: rope_parameters -> rope_theta + rope_scaling (+ rope_local_base_freq when given per layer type),
// dtype -> torch_dtype, num_local_experts and n_routed_experts -> num_experts, rope_scaling.type -> rope_type; rope type
// "default" -> no rope_scaling. Everything else stays as it is. Two spellings that contradict each other are refused.
Result<ConfigMap> normalise_model_config(const ConfigMap& config);

// The architectures of gguf_names.h; another is kUnsupported. With a rope_freqs.weight tensor, rope_scaling becomes
// {"rope_type": "freq_factors", "freq_factors": [head_dim/2 numbers]}: frequency i is divided by factor i.
Result<ConfigMap> model_config_from_gguf(const GgufFile& file);
Result<ConfigMap> generation_config_from_gguf(const GgufFile& file);  // bos, eos (a list with the ends of turns), pad, sampling
// The way back, of the sampling.
Status put_gguf_sampling(const ConfigMap& generation_config, GgufMetadata& out);

}  // namespace choral::io
