// Who has the device's slots: voices that run, and those that ended for as long as nobody else needs theirs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "lora/stacked/stacked_adapters.h"
#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"
#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using choral::lora::testing::AdapterBuilder;
using choral::lora::testing::config_json;
using ::testing::HasSubstr;

constexpr int kQueryKeyValue = 2;  // the first layer's

class SlotLifeTest : public ::testing::Test {
 protected:
  // One more of the same content: what the host has after it dropped one and read its files again.
  static std::shared_ptr<const PackedAdapter> packed(int64_t rank = 2) {
    static const LoRAModel low = read(2), high = read(9);
    auto made = PackedAdapter::pack(*cpu(), rank == 2 ? low : high, targets(), {});
    CHORAL_CHECK(made.ok(), made.status().message());
    return std::move(*made);
  }
  static LoRAModel read(int64_t rank) {
    const auto ranks = fmt::format(R"(,"rank_pattern":{{"q_proj":{0},"v_proj":{0}}})", rank);
    return choral::lora::testing::accepted(AdapterBuilder().query_and_value(rank), config_json(ranks));
  }
  static platform::testing::CpuContext& cpu() {
    static platform::testing::CpuContext made(1);
    return made;
  }
  static const std::vector<LoRATarget>& targets() {
    static const std::vector<LoRATarget> all = choral::lora::testing::small_targets();
    return all;
  }
  static std::unique_ptr<StackedAdapters> stacked(const LoRAMemoryPoolSize& size = {.max_slots = 3}) {
    auto made = StackedAdapters::make(*cpu(), targets(), size, size.max_slots, 16);
    CHORAL_CHECK(made.ok(), made.status().message());
    return std::move(*made);
  }
  // Whether a voice that begins was copied into a slot, which allocates more than its place among those that run.
  static bool is_copied(StackedAdapters& adapters, AdapterKey key, const PackedVoice& voice) {
    Status status;
    const auto count = choral::testing::count_allocations([&] { status = adapters.activate_adapter(key, voice).status(); });
    CHORAL_CHECK(status.ok(), status.message());
    return count.allocations > 1;
  }
  static bool has_slot(const StackedAdapters& adapters, const PackedVoice& voice) {
    return adapters.pool().find(voice) != LoRAMemoryPool::kNoSlot;
  }
  // The first `count` values of its A.
  static std::vector<float> values(const StackedAdapters& adapters, const PackedVoice& voice, size_t count) {
    const Tensor& a = adapters.pool().stacks(kQueryKeyValue).pairs.front().a;
    const auto all = a.as<float>();
    const auto slot = static_cast<size_t>(adapters.pool().find(voice));
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(slot * all.size() / static_cast<size_t>(a.shape()[0]));
    return {first, first + static_cast<std::ptrdiff_t>(count)};
  }
};

TEST_F(SlotLifeTest, AVoiceThatBeginsAgainIsNotCopiedAgain) {
  const auto adapters = stacked();
  const auto adapter = packed();
  const PackedVoice voice{{adapter, 1.0F}}, louder{{adapter, 2.0F}}, higher{{packed(9), 1.0F}};
  EXPECT_TRUE(is_copied(*adapters, AdapterKey(1), voice));
  const auto before = values(*adapters, voice, 16);
  adapters->deactivate_adapter(AdapterKey(1));
  EXPECT_TRUE(is_copied(*adapters, AdapterKey(1), louder)) << "another factor is another voice, whatever its key";
  EXPECT_TRUE(is_copied(*adapters, AdapterKey(2), higher)) << "its stacks are larger, and who ended is in them too";
  EXPECT_EQ(values(*adapters, voice, 16), before);
  EXPECT_FALSE(is_copied(*adapters, AdapterKey(3), PackedVoice(voice)));
  EXPECT_EQ(values(*adapters, voice, 16), before);
  const auto& pair = adapters->pool().stacks(kQueryKeyValue).pairs.front();
  const auto on_device = pair.ranks_on_device.as<int32_t>();
  EXPECT_EQ(pair.rank, 16);
  EXPECT_THAT(pair.ranks, ::testing::ElementsAre(2, 2, 9)) << "each slot's own, after stacks grew";
  EXPECT_THAT(std::vector<int32_t>(on_device.begin(), on_device.end()), ::testing::ElementsAreArray(pair.ranks));
  EXPECT_EQ(adapters->memory().evictions(), 0);
  int64_t bytes = 0;
  for (int32_t slot = 0; slot < 3; ++slot) bytes += adapters->pool().slot_bytes(slot);
  EXPECT_GT(adapters->memory().used().bytes, 0);
  EXPECT_LE(adapters->memory().used().bytes, bytes);
}

TEST_F(SlotLifeTest, WhatTheHostDropsFreesItsSlot) {
  const auto adapters = stacked();
  auto dropped = packed();
  const std::weak_ptr<const PackedAdapter> watched = dropped;
  const PackedVoice stays{{packed(), 1.0F}}, comes{{packed(9), 1.0F}}, another{{packed(), 1.0F}};
  ASSERT_TRUE(is_copied(*adapters, AdapterKey(1), stays));
  ASSERT_TRUE(is_copied(*adapters, AdapterKey(2), PackedVoice{{dropped, 1.0F}}));
  ASSERT_TRUE(is_copied(*adapters, AdapterKey(3), another));
  adapters->deactivate_adapter(AdapterKey(1));
  adapters->deactivate_adapter(AdapterKey(2));
  dropped = nullptr;
  EXPECT_TRUE(watched.expired()) << "a slot keeps no panels of the host";
  EXPECT_TRUE(is_copied(*adapters, AdapterKey(2), comes)) << "in larger stacks, which the dropped one is not copied to";
  EXPECT_TRUE(has_slot(*adapters, stays)) << "unused for longer, but nobody's slot was short";
  EXPECT_EQ(adapters->memory().evictions(), 0);
  EXPECT_EQ(adapters->memory().used().adapters, 3);
}

// Voices that begin, end, and are dropped by the host, against a list in the order of their use. Slots are short, or memory is.
RC_GTEST_FIXTURE_PROP(SlotLifeTest, TheLongestUnusedLeavesAndNobodyWhoRuns, ()) {
  struct Listed {
    PackedVoice voice;
    bool runs = false, has_slot = false;
    int last_use = 0;
  };
  std::array<Listed, 6> list;
  for (auto& listed : list) listed.voice = {{packed(), 1.0F}};
  constexpr int64_t kSlots = 4;  // as many as stacks have at first
  const auto by_number = stacked({.max_slots = kSlots});
  RC_ASSERT(by_number->activate_adapter(AdapterKey(1), list.front().voice).ok());
  const auto by_bytes = stacked({.max_slots = 2 * kSlots, .budget_bytes = by_number->pool().size_bytes()});
  by_number->deactivate_adapter(AdapterKey(1));
  const bool few_bytes = *rc::gen::arbitrary<bool>();
  list.front().has_slot = !few_bytes;
  const auto& adapters = few_bytes ? by_bytes : by_number;
  const int operations = *rc::gen::inRange(0, 60);
  for (int now = 1; now <= operations; ++now) {
    const auto i = *rc::gen::inRange<size_t>(0, list.size());
    auto& one = list[i];
    const AdapterKey key(static_cast<int32_t>(i) + 1);
    if (one.runs) {
      adapters->deactivate_adapter(key);
      one.runs = false;
      one.last_use = now;
    } else if (*rc::gen::inRange(0, 5) == 0) {
      one = {};
      one.voice = {{packed(), 1.0F}};
    } else {
      const auto slots = std::count_if(list.begin(), list.end(), [](const Listed& l) { return l.has_slot; });
      Listed* oldest = nullptr;
      for (auto& other : list) {
        if (other.has_slot && !other.runs && (oldest == nullptr || other.last_use < oldest->last_use)) oldest = &other;
      }
      if (!one.has_slot && slots == kSlots) {
        if (oldest == nullptr) {
          const Status waits = adapters->activate_adapter(key, one.voice).status();
          RC_ASSERT(waits.code() == Code::kUnavailable);
          RC_ASSERT(::testing::Matches(HasSubstr("adapters that run have the device's slots"))(waits.message()));
          continue;
        }
        oldest->has_slot = false;
      }
      RC_ASSERT(is_copied(*adapters, key, one.voice) == !one.has_slot);
      one.runs = one.has_slot = true;
    }
    for (const auto& listed : list) RC_ASSERT(has_slot(*adapters, listed.voice) == listed.has_slot);
  }
  RC_ASSERT(adapters->take_notes().empty());
}

}  // namespace
}  // namespace choral::lora
