#include "serve/kv_events/kv_event_message.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace choral::serve {
namespace {

using Json = nlohmann::json;

Json read(const std::string& message) { return Json::from_msgpack(message); }

TEST(KvEventMessage, ABatchIsAnArrayOfTimeEventsAndRank) {
  const std::vector<KvEvent> events{KvBlocksRemoved{.blocks = {1, ~uint64_t{0}}, .group = 1}};
  EXPECT_EQ(read(kv_event_message(events, 2, 1.5)), Json::parse(R"([1.5, [{"type": "BlockRemoved",
      "block_hashes": [1, 18446744073709551615], "medium": "GPU", "group_idx": 1}], 0])"));
  EXPECT_EQ(read(all_blocks_cleared_message(2.5)), Json::parse(R"([2.5, [{"type": "AllBlocksCleared"}], 0])"));
}

TEST(KvEventMessage, BlocksOfTheBaseHaveNoExtraKeys) {
  const std::vector<KvEvent> events{KvBlocksStored{.blocks = {7, 8}, .parent = 6, .token_ids = {1, 2, 3, 4}}};
  EXPECT_EQ(read(kv_event_message(events, 2, 1))[1][0], Json::parse(R"({"type": "BlockStored", "block_hashes": [7, 8],
      "parent_block_hash": 6, "token_ids": [1, 2, 3, 4], "block_size": 2, "lora_id": null, "medium": "GPU", "lora_name": null,
      "extra_keys": [null, null], "group_idx": 0, "kv_cache_spec_kind": "full_attention"})"));
}

TEST(KvEventMessage, AdapterAndSaltAreExtraKeysTheSaltOfTheFirstBlockAlone) {
  KvBlocksStored event{.blocks = {7, 8},
                       .token_ids = {1, 2, 3, 4},
                       .adapters = {{.name = "sql"}},
                       .cache_salt = "tenant",
                       .group = 1,
                       .window = 512};
  auto json = read(kv_event_message(std::vector<KvEvent>{event}, 2, 1))[1][0];
  EXPECT_TRUE(json["parent_block_hash"].is_null());
  EXPECT_EQ(json["lora_name"], "sql");
  EXPECT_EQ(json["extra_keys"], Json::parse(R"([["sql", "tenant"], ["sql"]])"));
  EXPECT_EQ(json["kv_cache_spec_kind"], "sliding_window");
  EXPECT_EQ(json["kv_cache_spec_sliding_window"], 512);
  event.parent = 6;
  event.adapters.clear();
  json = read(kv_event_message(std::vector<KvEvent>{event}, 2, 1))[1][0];
  EXPECT_EQ(json["extra_keys"], Json::parse("[null, null]")) << "what lies behind a first block is named by it";
}

TEST(KvEventMessage, AMixIsNamedAsOnTheCommandLine) {
  EXPECT_EQ(kv_event_lora_name({}), "");
  EXPECT_EQ(kv_event_lora_name(std::vector<AdapterUse>{{.name = "a"}, {.name = "b", .scale = 0.5F}}), "a+b:0.5");
}

}  // namespace
}  // namespace choral::serve
