#include "engine/adapters/adapter_version.h"

#include <span>

#include "base/printable.h"
#include "engine/adapters/adapter_contents.h"
#include "io/held_bytes.h"

namespace choral::engine {

VersionEnds::~VersionEnds() {
  while (take() != nullptr) {
  }
}

void VersionEnds::add(std::shared_ptr<AdapterContent> content) {
  ++count_;
  const std::lock_guard lock(mutex_);
  if (content != nullptr && !content->is_told_of) {
    content->is_told_of = true;
    content->told_of_next = std::move(contents_);
    contents_ = std::move(content);
  }
  if (wake_) wake_();
}

std::shared_ptr<AdapterContent> VersionEnds::take() {
  const std::lock_guard lock(mutex_);
  auto content = std::move(contents_);
  if (content == nullptr) return nullptr;
  contents_ = std::move(content->told_of_next);
  content->is_told_of = false;
  return content;
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
