#include "cache/kv_groups.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"

namespace choral::cache {
namespace {

// Bytes of a token's keys, with its scales, and of its values.
uint64_t key_bytes(const KVTokenLayout& layer) {
  return layer.kv_heads * (layer.key_dim * layer.element_bytes + layer.scale_bytes_per_head);
}
uint64_t value_bytes(const KVTokenLayout& layer) { return layer.kv_heads * layer.value_dim * layer.element_bytes; }

// The layers that share a window and a shape.
struct Kind {
  KVTokenLayout layout;
  std::vector<size_t> layers;
  int64_t parts = 1;  // of the largest layout, which is each array's

  int64_t places() const { return ceil_div(std::ssize(layers), parts); }
};

std::vector<Kind> kinds_of(std::span<const KVTokenLayout> layers) {
  std::vector<Kind> kinds;
  for (size_t i = 0; i < layers.size(); ++i) {
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.layout == layers[i]; });
    if (kind == kinds.end()) kind = kinds.insert(kind, {.layout = layers[i], .layers = {}});
    kind->layers.push_back(i);
  }
  return kinds;
}

// False: a kind has no whole number of places in the largest one's, or too many for their numbers to stay small.
bool find_parts(std::vector<Kind>& kinds, const KVTokenLayout& largest) {
  constexpr uint64_t kMostParts = 4;
  for (Kind& kind : kinds) {
    const uint64_t parts = key_bytes(largest) / key_bytes(kind.layout);
    const bool fits =
        key_bytes(kind.layout) * parts == key_bytes(largest) && value_bytes(kind.layout) * parts == value_bytes(largest);
    if (!fits || parts > kMostParts) return false;
    kind.parts = static_cast<int64_t>(parts);
  }
  return true;
}

int64_t groups_of(const std::vector<Kind>& kinds, int64_t group_layers) {
  int64_t groups = 0;
  for (const Kind& kind : kinds) groups += ceil_div(kind.places(), group_layers);
  return groups;
}

int64_t choose_group_layers(const std::vector<Kind>& kinds, int64_t layer_count) {
  int64_t best = layer_count;
  for (int64_t size = layer_count; size > 0; --size) {
    if (groups_of(kinds, size) > kMostGroups) break;  // smaller ones are more still
    if (groups_of(kinds, size) * size < groups_of(kinds, best) * best) best = size;
  }
  return best;
}

KvGroups one_group(std::span<const KVTokenLayout> layers) {
  const auto sees_all = [](const KVTokenLayout& layer) { return layer.window == 0; };
  const auto farthest =
      std::max_element(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return a.window < b.window; });
  KvGroups groups{.layers = {},
                  .arrays = {layers.begin(), layers.end()},
                  .windows = {std::any_of(layers.begin(), layers.end(), sees_all) ? 0 : farthest->window},
                  .parts = {1}};
  for (size_t i = 0; i < layers.size(); ++i) groups.layers.push_back({0, static_cast<int32_t>(i)});
  return groups;
}

}  // namespace

int64_t KvPoolShape::most_blocks(int64_t token_count, int64_t step_tokens) const {
  const int64_t all = ceil_div(token_count, block_tokens);
  int64_t most = 0;
  for (const int32_t window : windows) {
    // A step's tokens and what the first of them sees lie anywhere in their blocks.
    const int64_t seen = window + step_tokens - 1;
    most += window == 0 ? all : std::min(all, ceil_div(seen - 1, block_tokens) + 1);
  }
  return most;
}

KvGroups group_layers(std::span<const KVTokenLayout> layers) {
  CHORAL_CHECK(!layers.empty(), "a model without layers keeps nothing");
  auto kinds = kinds_of(layers);
  const auto largest =
      *std::max_element(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return key_bytes(a) < key_bytes(b); });
  const bool one_window =
      std::all_of(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.layout.window == largest.window; });
  if (one_window || kinds.size() > kMostGroups || !find_parts(kinds, largest)) return one_group(layers);
  int64_t places = 0;
  for (const Kind& kind : kinds) places += kind.places();
  const int64_t size = choose_group_layers(kinds, places);
  KvGroups groups;
  groups.layers.resize(layers.size());
  groups.arrays.assign(static_cast<size_t>(size), largest);
  for (const Kind& kind : kinds) {
    for (size_t i = 0; i < kind.layers.size(); ++i) {
      const int64_t place = static_cast<int64_t>(i) / kind.parts, part = static_cast<int64_t>(i) % kind.parts;
      const auto array = static_cast<int32_t>(place % size);
      if (array == 0 && part == 0) {
        groups.windows.push_back(kind.layout.window);
        groups.parts.push_back(static_cast<int32_t>(kind.parts));
      }
      groups.layers[kind.layers[i]] = {static_cast<int32_t>(groups.windows.size()) - 1, array, static_cast<int32_t>(part)};
    }
  }
  return groups;
}

}  // namespace choral::cache
