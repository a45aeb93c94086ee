#include "engine/adapters/adapter_version.h"

#include <span>

#include "base/printable.h"
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
  auto files = std::make_shared<lora::HeldFiles>();
  for (const auto& [name, content] : *spec.bytes) {
    const auto bytes = std::as_bytes(std::span(content));
    files->emplace(name, std::make_shared<io::HeldBytes>(printable(name) + " in memory", bytes, spec.bytes));
  }
  return lora::AdapterSource(std::move(files));
}

}  // namespace choral::engine
