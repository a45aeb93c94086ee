#include "lora/peft/adapter_source.h"

#include "lora/peft/adapter_bytes.h"

namespace choral::lora {

std::string AdapterSource::text() const { return in_memory() ? "in memory" : path_.string(); }

Result<PEFTHelper> AdapterSource::read_config() const {
  if (!in_memory()) return PEFTHelper::from_local_dir(path_);
  io::JsonLimits json;
  json.max_bytes = PEFTLimits().max_config_bytes;
  json.max_depth = 16;
  CHORAL_TRY(const auto config, io::ConfigMap::parse_json(config_json_, "the config in memory", json));
  return PEFTHelper::from_config(config);
}

Result<AdapterFile> AdapterSource::read_shapes(const AdapterLimits& limits) const {
  return in_memory() ? read_adapter_bytes(tensors_, /*shapes_only=*/true, limits) : read_adapter_shapes(path_, limits);
}

Result<AdapterFile> AdapterSource::read_file(const AdapterLimits& limits, io::ReadMemory& memory) const {
  return in_memory() ? read_adapter_bytes(tensors_, /*shapes_only=*/false, limits) : read_adapter_file(path_, limits, memory);
}

}  // namespace choral::lora
