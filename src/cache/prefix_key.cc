#include "cache/prefix_key.h"

#include "base/check.h"

namespace choral::cache {

PrefixRoot make_prefix_root(std::span<const AdapterIdentity> adapters, std::string_view salt) {
  // Every part has a fixed size or its length before it: no two inputs give the same bytes.
  static constexpr char kDomain[] = "choral prefix root 1";
  Sha256 hash;
  hash.update(std::as_bytes(std::span(kDomain)));
  hash.update_value(static_cast<uint64_t>(adapters.size()));
  for (const AdapterIdentity& adapter : adapters) {
    hash.update(std::as_bytes(std::span(adapter.digest)));
    hash.update_value(adapter.scale);
  }
  hash.update_value(static_cast<uint64_t>(salt.size()));
  hash.update(std::as_bytes(std::span(salt)));
  return {hash.finish()};
}

PrefixKey PrefixHasher::next(const PrefixKey& previous, std::span<const int32_t> block_token_ids) {
  hash_.reset();
  hash_.update(std::as_bytes(std::span(previous)));
  hash_.update(std::as_bytes(block_token_ids));
  return hash_.finish();
}

PrefixKey PrefixHasher::activate(const PrefixKey& previous, const PrefixRoot& activated_root, int32_t activation_token) {
  // The domain keeps these bytes apart from those of a block of ids, whatever its size.
  static constexpr char kDomain[] = "choral prefix activation 1";
  hash_.reset();
  hash_.update(std::as_bytes(std::span(kDomain)));
  hash_.update(std::as_bytes(std::span(previous)));
  hash_.update(std::as_bytes(std::span(activated_root.key)));
  hash_.update_value(static_cast<int64_t>(activation_token));
  return hash_.finish();
}

void PrefixChain::extend(PrefixHasher& hasher, const PrefixOrigin& origin, std::span<const int32_t> token_ids,
                         int32_t block_tokens) {
  const size_t tokens = block_tokens;
  while ((keys_.size() + 1) * tokens <= token_ids.size()) {
    CHORAL_CHECK(keys_.size() < keys_.capacity(), "prefix chain grows beyond what was reserved");
    const int32_t block = size();
    PrefixKey previous = keys_.empty() ? origin.root.key : keys_.back();
    if (origin.activation_token > 0 && block == origin.activation_token / block_tokens) {
      previous = hasher.activate(previous, origin.activated_root, origin.activation_token);
    }
    keys_.push_back(hasher.next(previous, token_ids.subspan(keys_.size() * tokens, tokens)));
  }
}

}  // namespace choral::cache
