#include "lora/store/lora_memory_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr MemoryTier kDisk = MemoryTier::kDisk, kHost = MemoryTier::kHost, kDevice = MemoryTier::kDevice;

[[maybe_unused]] const int kParams = setenv("RC_PARAMS", "max_success=300", 0);

std::vector<AdapterId> adapters(const std::vector<int32_t>& numbers) {
  std::vector<AdapterId> out;
  for (const int32_t number : numbers) out.push_back(AdapterId{number});
  return out;
}

std::vector<AdapterId> ids(const MemoryAnswer& answer) {
  std::vector<AdapterId> out;
  for (const auto& eviction : answer.evictions) out.push_back(eviction.id);
  return out;
}

TEST(LoRAMemoryManager, TheOneUnusedLongestLeaves) {
  LoRAMemoryManager memory({.host_bytes = 100});
  for (const AdapterId id : adapters({1, 2, 3})) EXPECT_EQ(memory.reserve(id, 30).room, MemoryRoom::kFits);
  memory.acquire(AdapterId{1});
  memory.release(AdapterId{1});
  EXPECT_EQ(ids(memory.ask(AdapterId{4}, 30)), adapters({2}));
  EXPECT_EQ(memory.used_bytes(kHost), 90);  // asking changed nothing
  const MemoryAnswer answer = memory.reserve(AdapterId{4}, 50);
  EXPECT_EQ(answer.room, MemoryRoom::kFitsAfterEviction);
  EXPECT_EQ(ids(answer), adapters({2, 3}));
  EXPECT_TRUE(answer.evictions[0].forgotten);  // it was on no disk
  EXPECT_EQ(memory.used_bytes(kHost), 80);
  EXPECT_EQ(memory.find(AdapterId{2}), nullptr);
  EXPECT_EQ(memory.find(AdapterId{1})->uses, 1);
  EXPECT_EQ(memory.evictions(), 2);
}

TEST(LoRAMemoryManager, WhatIsInUseStaysAndNothingLeavesInVain) {
  LoRAMemoryManager memory({.host_bytes = 100});
  memory.reserve(AdapterId{1}, 60);
  memory.reserve(AdapterId{2}, 30);
  memory.acquire(AdapterId{1});
  const MemoryAnswer none = memory.reserve(AdapterId{3}, 50);  // 2 alone would not be enough
  EXPECT_EQ(none.room, MemoryRoom::kNoRoom);
  EXPECT_THAT(none.evictions, IsEmpty());
  EXPECT_NE(memory.find(AdapterId{2}), nullptr);
  EXPECT_EQ(memory.find(AdapterId{3}), nullptr);
  EXPECT_EQ(memory.reserve(AdapterId{3}, 101).room, MemoryRoom::kTooLarge);
  memory.release(AdapterId{1});
  EXPECT_TRUE(memory.reserve(AdapterId{3}, 50).ok());
}

TEST(LoRAMemoryManager, TiersAreLeftOneByOne) {
  LoRAMemoryManager memory({.device_bytes = 20, .host_bytes = 30, .disk_bytes = 40});
  for (const AdapterId id : adapters({1, 2, 3})) {
    EXPECT_TRUE(memory.reserve(id, 12, kDisk).ok());
    EXPECT_TRUE(memory.reserve(id, 10, kHost).ok());
  }
  EXPECT_EQ(memory.reserve(AdapterId{1}, 10, kDevice).room, MemoryRoom::kFits);
  EXPECT_EQ(memory.reserve(AdapterId{2}, 10, kDevice).room, MemoryRoom::kFits);
  EXPECT_THAT(memory.reserve(AdapterId{3}, 10, kDevice).evictions, ElementsAre(MemoryEviction{AdapterId{1}, kDevice, false}));
  EXPECT_TRUE(memory.find(AdapterId{1})->on(kHost));
  EXPECT_THAT(memory.make_room({.bytes = 10}, kHost).evictions, ElementsAre(MemoryEviction{AdapterId{1}, kHost, false}));
  EXPECT_TRUE(memory.find(AdapterId{1})->on(kDisk));
  EXPECT_THAT(memory.reserve(AdapterId{4}, 12, kDisk).evictions, ElementsAre(MemoryEviction{AdapterId{1}, kDisk, true}));
  EXPECT_EQ(memory.reserve(AdapterId{5}, 12, kDisk).room, MemoryRoom::kFitsAfterEviction);  // 4: files of loaded ones stay
  EXPECT_EQ(memory.find(AdapterId{4}), nullptr);
  // Off the host is off the device.
  EXPECT_THAT(memory.make_room({.bytes = 20}, kHost).evictions, ElementsAre(MemoryEviction{AdapterId{2}, kHost, false}));
  EXPECT_EQ(memory.used_bytes(kDevice), 10);
  EXPECT_FALSE(memory.find(AdapterId{2})->on(kDevice));
  EXPECT_EQ(memory.find(AdapterId{2})->loads, 3);
  EXPECT_EQ(memory.find(AdapterId{2})->evictions, 1);
}

TEST(LoRAMemoryManager, TheirNumberIsLimitedBesideTheirBytes) {
  LoRAMemoryManager memory({.host_bytes = 100, .host_adapters = 2});
  memory.reserve(AdapterId{1}, 0);  // its leaving helps the number
  memory.reserve(AdapterId{2}, 10);
  EXPECT_EQ(ids(memory.reserve(AdapterId{3}, 10)), adapters({1}));
  EXPECT_EQ(memory.reserve(AdapterId{3}, 20).room, MemoryRoom::kFits) << "it counts once";
  EXPECT_EQ(memory.used(kHost).adapters, 2);
  EXPECT_EQ(memory.make_room({.bytes = 0, .adapters = 3}).room, MemoryRoom::kTooLarge);
  EXPECT_EQ(ids(memory.make_room({.bytes = 0, .adapters = 2})), adapters({2, 3}));
}

TEST(LoRAMemoryManager, TheLongestUnusedLeavesTheDeviceForASlot) {
  LoRAMemoryManager memory({.device_bytes = 100, .host_bytes = 100});
  for (const AdapterId id : adapters({1, 2, 3})) {
    memory.reserve(id, 10);
    EXPECT_EQ(memory.allocate_adapter(id, 20).room, MemoryRoom::kFits);
  }
  memory.acquire(AdapterId{2});
  memory.acquire(AdapterId{1});
  memory.release(AdapterId{1});
  EXPECT_EQ(memory.evict_to_cpu(), AdapterId{3});
  EXPECT_FALSE(memory.find(AdapterId{3})->on(kDevice));
  EXPECT_TRUE(memory.find(AdapterId{3})->on(kHost));
  EXPECT_EQ(memory.evict_to_cpu(), AdapterId{1});
  EXPECT_EQ(memory.evict_to_cpu(), std::nullopt) << "2 is in use";
  EXPECT_EQ(memory.used_bytes(kDevice), 20);
  EXPECT_EQ(memory.used_bytes(kHost), 30);
  EXPECT_EQ(memory.evictions(), 2);
}

TEST(LoRAMemoryManager, RoomIsMadeWithoutThoseToKeep) {
  LoRAMemoryManager memory({.host_bytes = 100});
  for (const AdapterId id : adapters({1, 2, 3})) memory.reserve(id, 30);
  const std::vector<AdapterId> keep = adapters({1, 3, 9});
  EXPECT_EQ(memory.make_room({.bytes = 50}, kHost, keep).room, MemoryRoom::kNoRoom);
  EXPECT_EQ(memory.used_bytes(kHost), 90);
  EXPECT_EQ(ids(memory.make_room({.bytes = 40}, kHost, keep)), adapters({2}));
  EXPECT_TRUE(memory.find(AdapterId{1})->on(kHost));
}

TEST(LoRAMemoryManager, WithoutADeviceNothingComesToIt) {
  LoRAMemoryManager memory({.host_bytes = 30});
  memory.reserve(AdapterId{1}, 10);
  EXPECT_EQ(memory.reserve(AdapterId{1}, 10, kDevice).room, MemoryRoom::kTooLarge);
}

TEST(LoRAMemoryManager, PinsHoldATierAndAllBelowIt) {
  LoRAMemoryManager memory({.device_bytes = 40, .host_bytes = 40});
  for (const AdapterId id : adapters({1, 2})) {
    memory.reserve(id, 20, kHost);
    memory.reserve(id, 20, kDevice);
  }
  EXPECT_TRUE(memory.pin(AdapterId{1}, kDevice).ok());
  EXPECT_EQ(ids(memory.make_room({.bytes = 20}, kDevice)), adapters({2}));
  EXPECT_EQ(memory.make_room({.bytes = 40}, kDevice).room, MemoryRoom::kNoRoom);
  EXPECT_EQ(memory.make_room({.bytes = 40}, kHost).room, MemoryRoom::kNoRoom);
  EXPECT_EQ(memory.drop(AdapterId{1}, kDevice).code(), Code::kUnavailable);
  EXPECT_TRUE(memory.pin(AdapterId{1}, kHost).ok());  // now it may leave the device
  EXPECT_EQ(ids(memory.make_room({.bytes = 40}, kDevice)), adapters({1}));
  EXPECT_TRUE(memory.find(AdapterId{1})->on(kHost));
  memory.unpin(AdapterId{1});
  EXPECT_TRUE(memory.make_room({.bytes = 40}, kHost).ok());
}

TEST(LoRAMemoryManager, NotEverythingCanBePinned) {
  LoRAMemoryManager memory({.host_bytes = 100});
  for (const AdapterId id : adapters({1, 2, 3, 4})) memory.reserve(id, 25);
  for (const AdapterId id : adapters({1, 2, 3})) EXPECT_TRUE(memory.pin(id).ok()) << id.value();
  EXPECT_TRUE(memory.pin(AdapterId{3}).ok());  // again: counted once
  const Status refused = memory.pin(AdapterId{4});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("100 of 100 bytes"));
  EXPECT_EQ(memory.pinned_bytes(kHost), 75);
  EXPECT_EQ(memory.reserve(AdapterId{3}, 26).room, MemoryRoom::kNoRoom);  // nor by growing
  EXPECT_TRUE(memory.reserve(AdapterId{5}, 25).ok());
  EXPECT_EQ(memory.pin(AdapterId{9}).code(), Code::kNotFound);
  EXPECT_EQ(memory.pin(AdapterId{5}, kDevice).code(), Code::kUnavailable);
}

TEST(LoRAMemoryManager, RemoveAndDropRefuseWhatIsInUse) {
  LoRAMemoryManager memory({.host_bytes = 100});
  memory.reserve(AdapterId{1}, 25);
  EXPECT_TRUE(memory.pin(AdapterId{1}).ok());
  memory.acquire(AdapterId{1});
  EXPECT_EQ(memory.remove(AdapterId{1}).code(), Code::kUnavailable);
  EXPECT_EQ(memory.drop(AdapterId{1}, kHost).code(), Code::kUnavailable);
  memory.release(AdapterId{1});
  EXPECT_EQ(memory.drop(AdapterId{1}, kHost).code(), Code::kUnavailable);  // pinned
  EXPECT_TRUE(memory.remove(AdapterId{1}).ok());
  EXPECT_EQ(memory.remove(AdapterId{1}).code(), Code::kNotFound);
  EXPECT_EQ(memory.used_bytes(kHost), 0);
  EXPECT_EQ(memory.count(), 0u);
}

// --- against a model: a plain list, oldest use first ---

struct Plain {
  AdapterId id;
  int64_t bytes[3] = {-1, -1, -1};
  int pinned = -1;
  int32_t in_use = 0;
  int64_t uses = 0, loads = 0, evictions = 0;
};

struct Model {
  int64_t budgets[3];
  int64_t most_on_host = kAnyNumber;
  std::vector<Plain> list;

  Plain* find(AdapterId id) {
    for (Plain& p : list) {
      if (p.id == id) return &p;
    }
    return nullptr;
  }
  void touch(AdapterId id) {
    const auto it = std::find_if(list.begin(), list.end(), [id](const Plain& p) { return p.id == id; });
    std::rotate(it, it + 1, list.end());
  }
  int64_t used(int tier) const {
    int64_t total = 0;
    for (const Plain& p : list) total += std::max<int64_t>(p.bytes[tier], 0);
    return total;
  }
  int64_t pinned(int tier) const {
    int64_t total = 0;
    for (const Plain& p : list) {
      if (p.pinned >= tier) total += std::max<int64_t>(p.bytes[tier], 0);
    }
    return total;
  }
  int64_t most_pinned(int tier) const { return budgets[tier] - budgets[tier] / 4; }
  int64_t most(int tier) const { return tier == 1 ? most_on_host : kAnyNumber; }
  int64_t number(int tier) const {
    return std::count_if(list.begin(), list.end(), [tier](const Plain& p) { return p.bytes[tier] >= 0; });
  }
  int64_t pinned_number(int tier) const {
    return std::count_if(list.begin(), list.end(), [tier](const Plain& p) { return p.bytes[tier] >= 0 && p.pinned >= tier; });
  }
  int64_t most_pinned_number(int tier) const { return most(tier) - (most(tier) - 1) / 4 - 1; }
  static bool may_leave(const Plain& p, int tier) { return p.in_use == 0 && p.pinned < tier && (tier != 0 || p.bytes[1] < 0); }
  void leave(size_t i, int tier) {
    for (int t = tier; t < 3; ++t) list[i].bytes[t] = -1;
    if (list[i].bytes[0] < 0 && list[i].bytes[1] < 0) list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // Who leaves; nothing when there is no way.
  std::optional<std::vector<AdapterId>> victims(AdapterId keep, int64_t more, int more_adapters, int tier) const {
    std::vector<AdapterId> out;
    int64_t free = budgets[tier] - used(tier), places = most(tier) - number(tier);
    for (const Plain& p : list) {
      if (free >= more && places >= more_adapters) break;
      if (p.id == keep || p.bytes[tier] < 0 || !may_leave(p, tier)) continue;
      if (p.bytes[tier] == 0 && places >= more_adapters) continue;
      out.push_back(p.id);
      free += p.bytes[tier];
      ++places;
    }
    if (free < more || places < more_adapters) return std::nullopt;
    return out;
  }
  void evict(const std::vector<AdapterId>& victims, int tier) {
    for (const AdapterId id : victims) {
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].id != id) continue;
        ++list[i].evictions;
        leave(i, tier);
        break;
      }
    }
  }
};

void check_same(const LoRAMemoryManager& memory, Model& model) {
  RC_ASSERT(memory.count() == model.list.size());
  for (int t = 0; t < 3; ++t) {
    const auto tier = static_cast<MemoryTier>(t);
    RC_ASSERT(memory.used_bytes(tier) == model.used(t));
    RC_ASSERT(memory.used_bytes(tier) <= memory.budget_bytes(tier));
    RC_ASSERT(memory.pinned_bytes(tier) == model.pinned(t));
    RC_ASSERT(memory.used(tier).adapters == model.number(t));
    RC_ASSERT(memory.used(tier).within(memory.budget(tier)));
    RC_ASSERT(memory.pinned(tier).adapters == model.pinned_number(t));
    RC_ASSERT(memory.pinned(tier).within(memory.pinnable(tier)));
  }
  uint64_t last = 0;
  for (const Plain& p : model.list) {
    const MemoryRecord* record = memory.find(p.id);
    RC_ASSERT(record != nullptr);
    for (size_t t = 0; t < 3; ++t) RC_ASSERT(record->bytes[t] == p.bytes[t]);
    RC_ASSERT(!record->on(kDevice) || record->on(kHost));
    RC_ASSERT((record->pinned ? static_cast<int>(*record->pinned) : -1) == p.pinned);
    RC_ASSERT(record->in_use == p.in_use && record->uses == p.uses);
    RC_ASSERT(record->loads == p.loads && record->evictions == p.evictions);
    RC_ASSERT(record->last_use > last);  // the order of use is the list's
    last = record->last_use;
  }
}

RC_GTEST_PROP(LoRAMemoryManagerProperty, EqualsAPlainList, ()) {
  Model model;
  model.budgets[0] = *rc::gen::inRange<int64_t>(20, 120);
  model.budgets[1] = *rc::gen::inRange<int64_t>(10, 100);
  model.budgets[2] = *rc::gen::element<int64_t>(0, 30, 60);
  model.most_on_host = *rc::gen::element(kAnyNumber, int64_t{1}, int64_t{2}, int64_t{4});
  LoRAMemoryManager memory({.device_bytes = model.budgets[2],
                            .host_bytes = model.budgets[1],
                            .host_adapters = model.most_on_host,
                            .disk_bytes = model.budgets[0]});
  const int operations = *rc::gen::inRange(0, 200);
  int64_t evictions = 0, refusals = 0;
  for (int i = 0; i < operations; ++i) {
    const AdapterId id{*rc::gen::inRange(1, 9)};
    const int kind = *rc::gen::inRange(0, 12);
    int tier = *rc::gen::element(0, 1, 1, 1, 2, 2);
    const int64_t bytes = *rc::gen::inRange<int64_t>(0, 45);
    Plain* plain = model.find(id);
    if (kind < 5) {  // reserve, or only ask
      if (tier == 2 && (plain == nullptr || plain->bytes[1] < 0)) tier = 1;
      const int64_t present = plain == nullptr ? 0 : std::max<int64_t>(plain->bytes[tier], 0);
      const auto at = static_cast<MemoryTier>(tier);
      const bool there = plain != nullptr && plain->bytes[tier] >= 0;
      auto victims = model.victims(id, bytes - present, there ? 0 : 1, tier);
      const bool overpins =
          plain != nullptr && plain->pinned >= tier && model.pinned(tier) - present + bytes > model.most_pinned(tier);
      const MemoryAnswer asked = memory.ask(id, bytes, at);
      RC_ASSERT((asked.room == MemoryRoom::kTooLarge) == (bytes > model.budgets[tier]));
      RC_ASSERT(asked.ok() == (victims.has_value() && !overpins && bytes <= model.budgets[tier]));
      if (asked.ok()) RC_ASSERT(ids(asked) == *victims);
      RC_ASSERT((asked.room == MemoryRoom::kFitsAfterEviction) == !asked.evictions.empty());
      refusals += asked.ok() ? 0 : 1;
      check_same(memory, model);
      if (kind == 0) continue;
      const MemoryAnswer answer = memory.reserve(id, bytes, at);
      RC_ASSERT(answer.room == asked.room && answer.evictions == asked.evictions);
      if (!answer.ok()) continue;
      model.evict(*victims, tier);
      evictions += static_cast<int64_t>(victims->size());
      for (const auto& eviction : answer.evictions) RC_ASSERT(eviction.forgotten == (model.find(eviction.id) == nullptr));
      plain = model.find(id);
      if (plain == nullptr) plain = &model.list.emplace_back(Plain{.id = id});
      if (plain->bytes[tier] < 0) ++plain->loads;
      plain->bytes[tier] = bytes;
      model.touch(id);
    } else if (kind == 5) {
      const int places = *rc::gen::inRange(0, 3);
      const auto victims = model.victims(AdapterId{}, bytes, places, tier);
      const MemoryAnswer answer = memory.make_room({bytes, places}, static_cast<MemoryTier>(tier));
      RC_ASSERT(answer.ok() == victims.has_value());
      if (!answer.ok()) continue;
      RC_ASSERT(ids(answer) == *victims);
      model.evict(*victims, tier);
      RC_ASSERT(memory.free_bytes(static_cast<MemoryTier>(tier)) >= bytes);
    } else if (kind == 6 || kind == 7) {
      if (plain == nullptr || plain->bytes[1] < 0) continue;
      memory.acquire(id);
      ++plain->in_use;
      ++plain->uses;
      model.touch(id);
    } else if (kind == 8) {
      if (plain == nullptr || plain->in_use == 0) continue;
      memory.release(id);
      --plain->in_use;
      model.touch(id);
    } else if (kind == 9) {
      bool allowed = plain != nullptr && plain->bytes[tier] >= 0;
      for (int t = 0; allowed && t <= tier; ++t) {
        if (plain->bytes[t] < 0) continue;
        const int64_t others = model.pinned(t) - (plain->pinned >= t ? plain->bytes[t] : 0);
        allowed = others + plain->bytes[t] <= model.most_pinned(t) &&
                  model.pinned_number(t) + (plain->pinned >= t ? 0 : 1) <= model.most_pinned_number(t);
      }
      RC_ASSERT(memory.pin(id, static_cast<MemoryTier>(tier)).ok() == allowed);
      if (allowed) plain->pinned = tier;
    } else if (kind == 10) {
      if (plain == nullptr) continue;
      memory.unpin(id);
      plain->pinned = -1;
    } else {
      const bool all = *rc::gen::arbitrary<bool>();
      const bool allowed =
          plain != nullptr && plain->in_use == 0 && (all || (plain->bytes[tier] >= 0 && Model::may_leave(*plain, tier)));
      RC_ASSERT((all ? memory.remove(id) : memory.drop(id, static_cast<MemoryTier>(tier))).ok() == allowed);
      if (allowed) model.leave(plain - model.list.data(), all ? 0 : tier);
    }
    check_same(memory, model);
  }
  RC_CLASSIFY(evictions > 0, "evictions");
  RC_CLASSIFY(refusals > 0, "refusals");
}

}  // namespace
}  // namespace choral::lora
