// Any bytes as an adapter_config.json. What is accepted must answer for any module in bounded time: a rank of 1 or more, a finite
// scale.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "io/config_map.h"
#include "lora/peft/peft_helper.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using choral::lora::PEFTHelper;
  const auto config = choral::io::ConfigMap::parse_json({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!config.ok()) return 0;
  const auto peft = PEFTHelper::from_config(*config);
  if (!peft.ok() || !peft->validate_legal({}).ok()) return 0;
  for (const std::string_view module : {"model.layers.12.self_attn.q_proj", "lm_head", "model.embed_tokens", "a.7.b"}) {
    const auto rank = peft->rank_for(module);
    const auto scaling = peft->scaling_for(module);
    CHORAL_CHECK(!rank.ok() || (*rank >= 1 && *rank <= 64), "a rank that was not checked");
    CHORAL_CHECK(!scaling.ok() || std::isfinite(*scaling), "a scale that is no number");
    (void)peft->targets(module, choral::lora::TargetKind::kLinear);
    (void)peft->saves(module);
  }
  return 0;
}
