#include "cache/kv_groups.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"

namespace choral::cache {
namespace {

// The layers that share a window.
struct Kind {
  int32_t window = 0;
  std::vector<size_t> layers;
};

std::vector<Kind> kinds_of(std::span<const KVTokenLayout> layers) {
  std::vector<Kind> kinds;
  for (size_t i = 0; i < layers.size(); ++i) {
    auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& k) { return k.window == layers[i].window; });
    if (kind == kinds.end()) kind = kinds.insert(kind, {.window = layers[i].window, .layers = {}});
    kind->layers.push_back(i);
  }
  return kinds;
}

int64_t groups_of(const std::vector<Kind>& kinds, int64_t group_layers) {
  int64_t groups = 0;
  for (const Kind& kind : kinds) groups += ceil_div(std::ssize(kind.layers), group_layers);
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
                  .windows = {std::any_of(layers.begin(), layers.end(), sees_all) ? 0 : farthest->window}};
  for (size_t i = 0; i < layers.size(); ++i) groups.layers.push_back({0, static_cast<int32_t>(i)});
  return groups;
}

bool same_arrays(const KVTokenLayout& a, KVTokenLayout b) {
  b.window = a.window;
  return a == b;
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
  const auto kinds = kinds_of(layers);
  const bool can_share = std::all_of(layers.begin(), layers.end(), [&](const auto& l) { return same_arrays(l, layers.front()); });
  if (kinds.size() == 1 || kinds.size() > kMostGroups || !can_share) return one_group(layers);
  const int64_t size = choose_group_layers(kinds, std::ssize(layers));
  KvGroups groups;
  groups.layers.resize(layers.size());
  groups.arrays.assign(static_cast<size_t>(size), layers.front());
  for (const Kind& kind : kinds) {
    for (size_t i = 0; i < kind.layers.size(); ++i) {
      const auto array = static_cast<int32_t>(static_cast<int64_t>(i) % size);
      if (array == 0) groups.windows.push_back(kind.window);
      groups.layers[kind.layers[i]] = {static_cast<int32_t>(groups.windows.size()) - 1, array};
    }
  }
  return groups;
}

}  // namespace choral::cache
