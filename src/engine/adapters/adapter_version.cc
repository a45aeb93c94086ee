#include "engine/adapters/adapter_version.h"

#include <span>

#include "io/held_bytes.h"

namespace choral::engine {

void VersionEnds::add() {
  ++count_;
  const std::lock_guard lock(mutex_);
  if (wake_) wake_();
}

void VersionEnds::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

lora::AdapterSource AdapterVersion::source_of(const AdapterSpec& spec) {
  if (spec.bytes == nullptr) return spec.path;
  const auto tensors = std::as_bytes(std::span(spec.bytes->tensors));
  return {spec.bytes->config_json, std::make_shared<io::HeldBytes>("the tensors in memory", tensors, spec.bytes)};
}

}  // namespace choral::engine
