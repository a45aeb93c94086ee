// Names of KV content. The KV of a block depends on every token before it and on the weights that made it, so
//   key_i = SHA-256(key_{i-1}, token ids of block i),   key_{-1} = the PrefixRoot,
//   PrefixRoot = SHA-256(identities and scales of the adapters, salt).
// Equal keys mean equal KV; an adapter reloaded under its old name has another identity and so another root; tenants with
// different salts never share. SHA-256 because prompts are hostile: a collision would leak another request's context.
// Values; PrefixHasher is not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace choral::cache {

using PrefixKey = Sha256Digest;

struct PrefixRoot {
  PrefixKey key{};
  bool operator==(const PrefixRoot&) const = default;
};

// One adapter of a request's mix: the hash of its content and the factor it is applied with.
struct AdapterIdentity {
  Sha256Digest digest{};
  float scale = 1.0F;
};

// Adapters in the order in which they are applied (none = base model); `salt` separates tenants (may be empty).
PrefixRoot make_prefix_root(std::span<const AdapterIdentity> adapters, std::string_view salt);

class PrefixHasher {
 public:
  PrefixKey next(const PrefixKey& previous, std::span<const int32_t> block_token_ids);

 private:
  Sha256 hash_;
};

// The keys of one sequence's full blocks, computed once each. reserve() first; extend() then allocates nothing.
class PrefixChain {
 public:
  void reserve(int32_t block_capacity) { keys_.reserve(static_cast<size_t>(block_capacity)); }
  // `token_ids` is the whole sequence; afterwards there is a key for each of its full blocks.
  void extend(PrefixHasher& hasher, const PrefixRoot& root, std::span<const int32_t> token_ids, int32_t block_tokens);

  int32_t size() const { return static_cast<int32_t>(keys_.size()); }
  const PrefixKey& operator[](int32_t block) const { return keys_[static_cast<size_t>(block)]; }
  std::span<const PrefixKey> keys() const { return keys_; }

 private:
  std::vector<PrefixKey> keys_;
};

}  // namespace choral::cache
