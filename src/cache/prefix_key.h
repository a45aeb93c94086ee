// Names of KV content. The KV of a block depends on every token before it and on the weights that made it, so
//   key_i = SHA-256(key_{i-1}, token ids of block i),   key_{-1} = the PrefixRoot,
//   PrefixRoot = SHA-256(identities and scales of the adapters, salt).
// An adapter that acts from token t > 0 on (aLoRA) leaves the KV before t the base's: the root is the base's, and only from block
// a = t / block_tokens on, the first that holds an activated token, the key knows the adapter and where it began to act:
//   key_a = SHA-256(SHA-256(key_{a-1}, activated root, t), token ids of block a),   later keys as above.
// So blocks before a are shared with the base and with any adapter that acts later; from a on with equal root and equal t only.
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

// What a sequence's KV depends on besides its tokens. With activation_token = 0 `root` is the adapters' and the other unused.
struct PrefixOrigin {
  PrefixRoot root = {};
  int32_t activation_token = 0;
  PrefixRoot activated_root = {};
};

// The name of what one group of layers (kv_groups.h) keeps of that content: as hard to meet as the key, and another home in the
// index for each group.
inline PrefixKey key_in_group(PrefixKey key, int32_t group) {
  key.front() ^= static_cast<uint8_t>(group * 37);
  return key;
}

class PrefixHasher {
 public:
  // The inner hash of key_a above: takes the place of `previous` for the block in which the adapter begins to act.
  PrefixKey activate(const PrefixKey& previous, const PrefixRoot& activated_root, int32_t activation_token);
  PrefixKey next(const PrefixKey& previous, std::span<const int32_t> block_token_ids);

 private:
  Sha256 hash_;
};

// The keys of one sequence's full blocks, computed once each. reserve() first; extend() then allocates nothing.
class PrefixChain {
 public:
  void reserve(int32_t block_capacity) { keys_.reserve(block_capacity); }
  // `token_ids` is the whole sequence; afterwards there is a key for each of its full blocks.
  void extend(PrefixHasher& hasher, const PrefixOrigin& origin, std::span<const int32_t> token_ids, int32_t block_tokens);
  void extend(PrefixHasher& hasher, const PrefixRoot& root, std::span<const int32_t> token_ids, int32_t block_tokens) {
    extend(hasher, PrefixOrigin{.root = root}, token_ids, block_tokens);
  }

  int32_t size() const { return static_cast<int32_t>(keys_.size()); }
  const PrefixKey& operator[](int32_t block) const { return keys_[block]; }
  std::span<const PrefixKey> keys() const { return keys_; }

 private:
  std::vector<PrefixKey> keys_;
};

}  // namespace choral::cache
