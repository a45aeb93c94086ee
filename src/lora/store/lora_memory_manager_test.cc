#include "lora/store/lora_memory_manager.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace choral::lora {
namespace {

[[maybe_unused]] const int kParams = setenv("RC_PARAMS", "max_success=300", 0);

std::vector<AdapterId> adapters(const std::vector<int32_t>& numbers) {
  std::vector<AdapterId> out;
  for (const int32_t number : numbers) out.push_back(AdapterId{number});
  return out;
}

// 1 to `count` with this size, which came in that order.
LoRAMemoryManager filled(const MemoryAmount& budget, int32_t count, int64_t size_bytes) {
  LoRAMemoryManager memory(budget);
  for (int32_t number = 1; number <= count; ++number) {
    memory.add_adapter(AdapterId{number}, size_bytes);
    EXPECT_EQ(memory.allocate_adapter(AdapterId{number}, size_bytes).room, MemoryRoom::kFits);
  }
  return memory;
}

TEST(LoRAMemoryManager, TheOneUnusedLongestLeaves) {
  LoRAMemoryManager memory = filled({100, kAnyNumber}, 3, 30);
  memory.acquire(AdapterId{1}, MemoryUse::kRequest);
  memory.release(AdapterId{1}, MemoryUse::kRequest);
  memory.add_adapter(AdapterId{4}, 50);
  EXPECT_EQ(memory.room_for(AdapterId{4}), MemoryRoom::kFitsAfterEviction);
  EXPECT_EQ(memory.used().bytes, 90) << "asking changed nothing";
  const MemoryAnswer answer = memory.allocate_adapter(AdapterId{4}, 50);
  EXPECT_EQ(answer.room, MemoryRoom::kFitsAfterEviction);
  EXPECT_EQ(answer.evictions, adapters({2, 3}));
  EXPECT_EQ(memory.used().bytes, 80);
  EXPECT_FALSE(memory.at(AdapterId{2}).has_room);
  EXPECT_EQ(memory.evictions(), 2);
}

TEST(LoRAMemoryManager, WhatIsInUseStaysAndNothingLeavesInVain) {
  for (const MemoryUse use : {MemoryUse::kLoad, MemoryUse::kClaim, MemoryUse::kRequest}) {
    LoRAMemoryManager memory = filled({100, kAnyNumber}, 2, 45);
    memory.acquire(AdapterId{1}, use);
    memory.add_adapter(AdapterId{3}, 60);  // 2 alone would not be enough
    const MemoryAnswer none = memory.allocate_adapter(AdapterId{3}, 60);
    EXPECT_EQ(none.room, MemoryRoom::kNoRoom);
    EXPECT_TRUE(none.evictions.empty());
    EXPECT_TRUE(memory.at(AdapterId{2}).has_room);
    EXPECT_FALSE(memory.at(AdapterId{3}).has_room);
    EXPECT_EQ(memory.allocate_adapter(AdapterId{3}, 101).room, MemoryRoom::kTooLarge);
    memory.release(AdapterId{1}, use);
    EXPECT_TRUE(memory.allocate_adapter(AdapterId{3}, 60).ok());
  }
}

TEST(LoRAMemoryManager, AnAdapterIsThereWhenItsLoadEnded) {
  LoRAMemoryManager memory = filled({100, kAnyNumber}, 1, 10);
  memory.acquire(AdapterId{1}, MemoryUse::kLoad);
  memory.acquire(AdapterId{1}, MemoryUse::kClaim);
  EXPECT_TRUE(memory.at(AdapterId{1}).has_room);
  EXPECT_FALSE(memory.at(AdapterId{1}).resident());
  memory.release(AdapterId{1}, MemoryUse::kLoad);
  EXPECT_TRUE(memory.at(AdapterId{1}).resident());
  EXPECT_EQ(memory.evict_to_cpu(), std::nullopt) << "it is claimed";
}

TEST(LoRAMemoryManager, TheirNumberIsLimitedBesideTheirBytes) {
  LoRAMemoryManager memory({100, 2});
  for (const AdapterId id : adapters({1, 2, 3})) memory.add_adapter(id, 10);
  memory.allocate_adapter(AdapterId{1}, 0);  // its leaving helps the number
  memory.allocate_adapter(AdapterId{2}, 10);
  EXPECT_EQ(memory.allocate_adapter(AdapterId{3}, 10).evictions, adapters({1}));
  EXPECT_EQ(memory.used().adapters, 2);
  EXPECT_EQ(memory.make_room({.bytes = 0, .adapters = 3}).room, MemoryRoom::kTooLarge);
  EXPECT_EQ(memory.make_room({.bytes = 0, .adapters = 2}).evictions, adapters({2, 3}));
}

TEST(LoRAMemoryManager, TheLongestUnusedLeavesForASlot) {
  LoRAMemoryManager memory = filled({100, kAnyNumber}, 3, 20);
  memory.acquire(AdapterId{2}, MemoryUse::kRequest);
  memory.acquire(AdapterId{1}, MemoryUse::kRequest);
  memory.release(AdapterId{1}, MemoryUse::kRequest);
  EXPECT_EQ(memory.evict_to_cpu(), AdapterId{3});
  EXPECT_EQ(memory.evict_to_cpu(), AdapterId{1});
  EXPECT_EQ(memory.evict_to_cpu(), std::nullopt) << "2 is in use";
  EXPECT_EQ(memory.used().bytes, 20);
  EXPECT_EQ(memory.evictions(), 2);
}

TEST(LoRAMemoryManager, RoomIsMadeWithoutThoseToKeep) {
  LoRAMemoryManager memory = filled({100, kAnyNumber}, 3, 30);
  const std::vector<AdapterId> keep = adapters({1, 3, 9});
  EXPECT_EQ(memory.make_room({.bytes = 50}, keep).room, MemoryRoom::kNoRoom);
  EXPECT_EQ(memory.used().bytes, 90);
  EXPECT_EQ(memory.make_room({.bytes = 40}, keep).evictions, adapters({2}));
}

TEST(LoRAMemoryManager, NotEverythingCanBePinned) {
  LoRAMemoryManager memory = filled({100, kAnyNumber}, 4, 25);
  for (const AdapterId id : adapters({1, 2, 3})) EXPECT_TRUE(memory.pin(id)) << id.value();
  EXPECT_TRUE(memory.pin(AdapterId{3})) << "again: counted once";
  EXPECT_FALSE(memory.pin(AdapterId{4}));
  EXPECT_EQ(memory.pinned().bytes, 75);
  EXPECT_EQ(memory.make_room({.bytes = 25}).evictions, adapters({4}));
  EXPECT_EQ(memory.make_room({.bytes = 50}).room, MemoryRoom::kNoRoom);
  memory.unpin(AdapterId{2});
  EXPECT_EQ(memory.make_room({.bytes = 50}).evictions, adapters({2}));
}

TEST(LoRAMemoryManager, WhatIsForgottenTakesItsRoomAndPinAlong) {
  LoRAMemoryManager memory = filled({100, kAnyNumber}, 1, 25);
  EXPECT_TRUE(memory.pin(AdapterId{1}));
  memory.remove_adapter(AdapterId{1});
  EXPECT_FALSE(memory.knows(AdapterId{1}));
  EXPECT_EQ(memory.used().bytes, 0);
  EXPECT_EQ(memory.pinned().adapters, 0);
  EXPECT_EQ(memory.count(), 0u);
}

// --- against a model: a plain list, oldest use first ---

struct Plain {
  AdapterId id;
  int64_t bytes = 0;
  bool there = false, pinned = false;
  int32_t uses[kMemoryUses] = {};
  bool may_leave() const { return there && !pinned && uses[0] + uses[1] + uses[2] == 0; }
};

struct Model {
  MemoryAmount budget;
  std::vector<Plain> list;

  Plain* find(AdapterId id) {
    const auto it = std::find_if(list.begin(), list.end(), [id](const Plain& p) { return p.id == id; });
    return it == list.end() ? nullptr : &*it;
  }
  void touch(AdapterId id) {
    const auto it = std::find_if(list.begin(), list.end(), [id](const Plain& p) { return p.id == id; });
    std::rotate(it, it + 1, list.end());
  }
  template <class Counted>
  MemoryAmount sum(Counted counted) const {
    MemoryAmount total;
    for (const Plain& p : list) {
      if (counted(p)) total = {total.bytes + p.bytes, total.adapters + 1};
    }
    return total;
  }
  MemoryAmount used() const {
    return sum([](const Plain& p) { return p.there; });
  }
  MemoryAmount pinned() const {
    return sum([](const Plain& p) { return p.pinned; });
  }
  MemoryAmount most_pinned() const { return {budget.bytes - budget.bytes / 4, budget.adapters - (budget.adapters - 1) / 4 - 1}; }
  // Who leaves; nothing when there is no way.
  std::optional<std::vector<AdapterId>> victims(const MemoryAmount& more, AdapterId keep = {}) const {
    std::vector<AdapterId> out;
    MemoryAmount free{budget.bytes - used().bytes, budget.adapters - used().adapters};
    for (const Plain& p : list) {
      if (more.within(free)) break;
      if (p.id == keep || !p.may_leave() || (p.bytes == 0 && free.adapters >= more.adapters)) continue;
      out.push_back(p.id);
      free = {free.bytes + p.bytes, free.adapters + 1};
    }
    return more.within(free) ? std::optional(out) : std::nullopt;
  }
  void evict(const std::vector<AdapterId>& gone) {
    for (const AdapterId id : gone) find(id)->there = false;
  }
};

void check_same(const LoRAMemoryManager& memory, Model& model) {
  RC_ASSERT(memory.count() == model.list.size());
  for (const auto& [counted, expected, limit] : {std::tuple(memory.used(), model.used(), memory.budget()),
                                                 std::tuple(memory.pinned(), model.pinned(), memory.pinnable())}) {
    RC_ASSERT(counted.bytes == expected.bytes && counted.adapters == expected.adapters);
    RC_ASSERT(counted.within(limit));
  }
  uint64_t last = 0;
  for (const Plain& p : model.list) {
    const MemoryRecord& record = memory.at(p.id);
    RC_ASSERT(record.size_bytes == p.bytes && record.has_room == p.there && record.pinned == p.pinned);
    RC_ASSERT(std::equal(record.uses.begin(), record.uses.end(), p.uses));
    RC_ASSERT(record.last_use >= last);  // the order of use is the list's
    last = record.last_use;
  }
}

RC_GTEST_PROP(LoRAMemoryManagerProperty, EqualsAPlainList, ()) {
  Model model{.budget = {*rc::gen::inRange<int64_t>(10, 100), *rc::gen::element(kAnyNumber, int64_t{1}, int64_t{2}, int64_t{4})},
              .list = {}};
  LoRAMemoryManager memory(model.budget);
  const int operations = *rc::gen::inRange(0, 200);
  int64_t evictions = 0, refusals = 0;
  for (int i = 0; i < operations; ++i) {
    const AdapterId id{*rc::gen::inRange(1, 9)};
    const int64_t bytes = *rc::gen::inRange<int64_t>(0, 45);
    const auto use = *rc::gen::inRange<size_t>(0, kMemoryUses);
    Plain* plain = model.find(id);
    const int kind = *rc::gen::inRange(0, 11);
    if (plain == nullptr) {
      memory.add_adapter(id, bytes);
      model.list.insert(model.list.begin(), Plain{.id = id, .bytes = bytes});  // never used: the oldest
    } else if (kind < 4) {
      if (plain->there) continue;
      const auto victims = model.victims({bytes, 1});
      const MemoryAnswer answer = memory.allocate_adapter(id, bytes);
      RC_ASSERT(answer.ok() == victims.has_value());
      RC_ASSERT((answer.room == MemoryRoom::kTooLarge) == (bytes > model.budget.bytes));
      RC_ASSERT((answer.room == MemoryRoom::kFitsAfterEviction) == !answer.evictions.empty());
      refusals += answer.ok() ? 0 : 1;
      if (!answer.ok()) continue;
      RC_ASSERT(answer.evictions == *victims);
      evictions += std::ssize(*victims);
      model.evict(*victims);
      plain->there = true;
      plain->bytes = bytes;
      model.touch(id);
    } else if (kind == 4) {
      const MemoryAmount amount{bytes, *rc::gen::inRange(0, 3)};
      const auto victims = model.victims(amount, id);
      const MemoryAnswer answer = memory.make_room(amount, {&id, 1});
      RC_ASSERT(answer.ok() == victims.has_value());
      if (!answer.ok()) continue;
      RC_ASSERT(answer.evictions == *victims);
      model.evict(*victims);
    } else if (kind == 5 || kind == 6) {
      if (!plain->there) continue;
      memory.acquire(id, static_cast<MemoryUse>(use));
      ++plain->uses[use];
      model.touch(id);
    } else if (kind == 7) {
      if (plain->uses[use] == 0) continue;
      memory.release(id, static_cast<MemoryUse>(use));
      --plain->uses[use];
      model.touch(id);
    } else if (kind == 8) {
      if (!plain->there) continue;
      MemoryAmount with = model.pinned();
      if (!plain->pinned) with = {with.bytes + plain->bytes, with.adapters + 1};
      const bool allowed = plain->pinned || with.within(model.most_pinned());
      RC_ASSERT(memory.pin(id) == allowed);
      plain->pinned = allowed;
    } else if (kind == 9) {
      memory.unpin(id);
      plain->pinned = false;
    } else if (*rc::gen::arbitrary<bool>()) {
      const auto oldest = std::find_if(model.list.begin(), model.list.end(), [](const Plain& p) { return p.may_leave(); });
      RC_ASSERT(memory.evict_to_cpu() == (oldest == model.list.end() ? std::nullopt : std::optional(oldest->id)));
      if (oldest != model.list.end()) oldest->there = false;
    } else {
      if (plain->uses[0] + plain->uses[1] + plain->uses[2] > 0) continue;
      memory.remove_adapter(id);
      model.list.erase(model.list.begin() + (plain - model.list.data()));
    }
    check_same(memory, model);
  }
  RC_CLASSIFY(evictions > 0, "evictions");
  RC_CLASSIFY(refusals > 0, "refusals");
}

}  // namespace
}  // namespace choral::lora
