#include "serve/openai/metadata.h"

namespace choral::serve {

Status check_metadata(std::string_view field, const Json& metadata) {
  constexpr size_t kMostPairs = 16, kMostKey = 64, kMostValue = 512;
  if (!metadata.is_object()) return wrong_type(field, "an object", metadata);
  if (metadata.size() > kMostPairs) return too_large("'{}' has {} members; {} are taken", field, metadata.size(), kMostPairs);
  for (const auto& [name, value] : metadata.items()) {
    if (!value.is_string()) return wrong_type(fmt::format("{}.{}", field, shown(name)), "a string", value);
    if (name.size() > kMostKey || value.get_ref<const std::string&>().size() > kMostValue)
      return too_large("'{}.{}': names have up to {} bytes and values up to {}", field, shown(name), kMostKey, kMostValue);
  }
  return {};
}

}  // namespace choral::serve
