// generation_config.json's sampling -> GGUF metadata: generation_config_from_gguf() backwards.
#include <algorithm>

#include "io/gguf_names.h"
#include "io/model_config.h"

namespace choral::io {

Status put_gguf_sampling(const ConfigMap& generation_config, GgufMetadata& out) {
  CHORAL_TRY(const bool samples, generation_config.get_bool_or("do_sample", true));
  for (const auto& name : kGgufSampling) {
    const bool greedy = name.hf == "temperature" && !samples;
    if (!greedy && !generation_config.contains(name.hf)) continue;
    CHORAL_TRY(const double value, generation_config.get_double_or(name.hf, 0));
    if (name.hf == "top_k" && value >= 0) {
      out.set_u32(name.gguf, static_cast<uint32_t>(std::min(value, 1e9)));
    } else if (name.hf != "top_k") {
      out.set_f32(name.gguf, greedy ? 0.0f : static_cast<float>(value));
    }
  }
  return {};
}

}  // namespace choral::io
