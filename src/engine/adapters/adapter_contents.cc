#include "engine/adapters/adapter_contents.h"

#include <algorithm>

#include "base/check.h"

namespace choral::engine {

bool AdapterContent::is_pinned() const {
  return std::any_of(versions.begin(), versions.end(), [](const auto& weak) {
    const auto version = weak.lock();
    return version != nullptr && version->pinned;
  });
}

std::shared_ptr<AdapterContent> AdapterContents::find(const Sha256Digest& digest) const {
  const auto known = by_digest_.find(digest);
  return known == by_digest_.end() ? nullptr : contents_.at(known->second);
}

std::shared_ptr<AdapterContent> AdapterContents::add(const lora::PackedAdapter& packed) {
  const auto tokens = packed.invocation_tokens();
  auto content = std::make_shared<AdapterContent>(AdapterContent{.id = lora::AdapterId{next_id_++},
                                                                 .digest = packed.digest(),
                                                                 .replaces = packed.replaces(),
                                                                 .own_tokens = packed.own_tokens(),
                                                                 .invocation_tokens = {tokens.begin(), tokens.end()}});
  const bool added = by_digest_.emplace(content->digest, content->id).second;
  CHORAL_CHECK(added, "a content is added twice");
  contents_.emplace(content->id, content);
  return content;
}

bool AdapterContents::review(AdapterContent& content) {
  std::erase_if(content.versions, [](const auto& version) { return version.expired(); });
  if (!content.versions.empty()) return true;
  by_digest_.erase(content.digest);
  contents_.erase(content.id);
  return false;
}

}  // namespace choral::engine
