#include "serve/kv_events/kv_event_message.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace choral::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMedium = "GPU";

// What a block's name depends on beside tokens, as vLLM lists it: the adapter, and for a text's first block the salt.
Json extra_keys(const KvBlocksStored& event, const std::string& lora_name) {
  Json all = Json::array();
  for (size_t i = 0; i < event.blocks.size(); ++i) {
    Json keys = Json::array();
    if (!lora_name.empty()) keys.push_back(lora_name);
    if (i == 0 && !event.parent && !event.cache_salt.empty()) keys.push_back(event.cache_salt);
    all.push_back(keys.empty() ? Json() : std::move(keys));
  }
  return all;
}

Json written(const KvBlocksStored& event, int block_tokens) {
  const std::string lora_name = kv_event_lora_name(event.adapters);
  Json json{{"type", "BlockStored"},
            {"block_hashes", event.blocks},
            {"parent_block_hash", event.parent ? Json(*event.parent) : Json()},
            {"token_ids", event.token_ids},
            {"block_size", block_tokens},
            {"lora_id", nullptr},
            {"medium", kMedium},
            {"lora_name", lora_name.empty() ? Json() : Json(lora_name)},
            {"extra_keys", extra_keys(event, lora_name)},
            {"group_idx", event.group},
            {"kv_cache_spec_kind", event.window > 0 ? "sliding_window" : "full_attention"}};
  if (event.window > 0) json["kv_cache_spec_sliding_window"] = event.window;
  return json;
}

Json written(const KvBlocksRemoved& event, int) {
  return {{"type", "BlockRemoved"}, {"block_hashes", event.blocks}, {"medium", kMedium}, {"group_idx", event.group}};
}

std::string message(Json events, double unix_s) {
  constexpr int kDataParallelRank = 0;
  std::string bytes;
  Json::to_msgpack(Json::array({unix_s, std::move(events), kDataParallelRank}), bytes);
  return bytes;
}

}  // namespace

std::string kv_event_message(std::span<const KvEvent> events, int block_tokens, double unix_s) {
  Json all = Json::array();
  for (const auto& event : events)
    all.push_back(std::visit([block_tokens](const auto& e) { return written(e, block_tokens); }, event));
  return message(std::move(all), unix_s);
}

std::string all_blocks_cleared_message(double unix_s) {
  return message(Json::array({Json{{"type", "AllBlocksCleared"}}}), unix_s);
}

std::string kv_event_lora_name(std::span<const AdapterUse> adapters) {
  std::string text;
  for (const auto& use : adapters) {
    if (!text.empty()) text += '+';
    text += use.scale == 1.0F ? use.name : fmt::format("{}:{}", use.name, use.scale);
  }
  return text;
}

}  // namespace choral::serve
