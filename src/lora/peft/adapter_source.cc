#include "lora/peft/adapter_source.h"

#include "io/mapped_file.h"

namespace choral::lora {

std::string AdapterSource::text() const { return in_memory() ? "in memory" : path_.string(); }

Result<PEFTHelper> AdapterSource::read_config() const {
  return in_memory() ? read_config_bytes(*files_) : PEFTHelper::from_local_dir(path_);
}

Result<AdapterFile> AdapterSource::read_shapes(const AdapterLimits& limits) const {
  return in_memory() ? read_adapter_bytes(*files_, /*shapes_only=*/true, limits) : read_adapter_shapes(path_, limits);
}

Result<AdapterFile> AdapterSource::read_file(const AdapterLimits& limits, io::ReadMemory& memory) const {
  return in_memory() ? read_adapter_bytes(*files_, /*shapes_only=*/false, limits) : read_adapter_file(path_, limits, memory);
}

Result<std::string> AdapterSource::read_beside(const std::string& name, uint64_t max_bytes) const {
  if (!in_memory()) {
    const std::filesystem::path path = path_ / name;
    std::error_code ignored;
    return std::filesystem::exists(path, ignored) ? io::read_whole_file(path, max_bytes) : std::string();
  }
  const auto found = files_->find(name);
  if (found == files_->end()) return std::string();
  const auto bytes = found->second->bytes();
  if (bytes.size() > max_bytes)
    return too_large("{} has {} bytes; at most {} are read", found->second->path(), bytes.size(), max_bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace choral::lora
