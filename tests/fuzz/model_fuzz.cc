// Any text as a model's config.json, with what it says of quantised weights: a model of bounded size is built, or a Status says
// why not. What is built has a cache for each layer, and layers that adapters can name.
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/check.h"
#include "io/config_map.h"
#include "io/model_config.h"
#include "io/text_half.h"
#include "models/registry.h"
#include "platform/platform.h"
#include "quant/quant_config.h"

namespace {

constexpr int64_t kPositions = 64;  // more would only be larger tables

struct Cpu {
  choral::ThreadPool pool{1};
  std::unique_ptr<choral::platform::Session> session = *choral::platform::cpu_platform().open(pool, {});
  choral::platform::CustomOpConfig custom_ops;
  choral::platform::LayerOverrides overrides;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Cpu cpu;
  const auto map = choral::io::ConfigMap::parse_json({reinterpret_cast<const char*>(data), size}, "fuzzed");
  if (!map.ok()) return 0;
  const auto text = choral::io::text_half_config(*map);
  if (!text.ok()) return 0;
  const auto config = choral::io::normalise_model_config(*text);
  if (!config.ok()) return 0;
  const auto quant_config = choral::quant::make_quant_config(*config, "auto");
  if (!quant_config.ok()) return 0;
  const auto model =
      choral::models::make_model(*config, {*cpu.session, **quant_config, cpu.custom_ops, cpu.overrides, kPositions});
  if (!model.ok()) return 0;
  CHORAL_CHECK((*model)->hidden_size() > 0 && (*model)->vocab_size() > 0 && !(*model)->modules().empty(), "a model of no size");
  for (const auto& shape : (*model)->kv_shapes()) {
    CHORAL_CHECK(shape.kv_heads > 0 && shape.key_dim > 0 && shape.value_dim >= 0, "a layer without a cache");
  }
  for (const auto& target : (*model)->lora_targets()) {
    CHORAL_CHECK(!target.name.empty() && !target.members.empty(), "a layer that no adapter can name");
  }
  return 0;
}
