// What enters and leaves the prefix cache, in the order in which it does: for routers that send a request where the beginning of
// its prompt is known already. Values; see LLM::next_kv_events().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "choral/types.h"

namespace choral {

// Blocks of ModelInfo::kv_block_tokens tokens each, one behind the other. A block's name stands for its tokens, all tokens before
// them, the contents and factors of the adapters that computed them, and the salt: 64 bits of the SHA-256 by which the cache
// finds it. Layers that see a window keep blocks of their own, under the same name.
struct KvBlocksStored {
  std::vector<uint64_t> blocks = {};
  std::optional<uint64_t> parent = {};    // the block before them; none: they begin a text
  std::vector<int32_t> token_ids = {};    // of all of them
  std::vector<AdapterUse> adapters = {};  // that computed them; none: the base
  std::string cache_salt = {};            // Request's
  int group = 0;                          // of layers
  int window = 0;                         // that these layers see, in tokens; 0: everything
};

// Their memory was given to others.
struct KvBlocksRemoved {
  std::vector<uint64_t> blocks = {};
  int group = 0;
};

using KvEvent = std::variant<KvBlocksStored, KvBlocksRemoved>;

// The events of one step.
struct KvEventBatch {
  int64_t number = 0;  // counted from 0, one by one: where one is missing, events were lost
  std::vector<KvEvent> events = {};
};

}  // namespace choral
