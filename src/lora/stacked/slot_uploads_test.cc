// Slots that are written beside the steps: who waits, who does not, and what lies in a slot in the end.
#include "lora/stacked/slot_uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lora/stacked/gated_copies_test.h"
#include "lora/stacked/stacked_adapters.h"
#include "lora/store/built_adapter_test.h"

namespace choral::lora {
namespace {

using choral::lora::testing::accepted;
using choral::lora::testing::AdapterBuilder;
using choral::lora::testing::config_json;
using choral::lora::testing::CopyGate;
using choral::lora::testing::GatedSession;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Ne;

// The rows of every base are 1, 1, ….
std::vector<LoRATarget> targets_with_rows() {
  auto targets = choral::lora::testing::small_targets();
  for (auto& target : targets) {
    target.base_row = [](int64_t, std::span<float> row) { return std::fill(row.begin(), row.end(), 1.0F), Status(); };
  }
  return targets;
}

std::shared_ptr<const PackedAdapter> pack(const LoRAModel& model) {
  static platform::testing::CpuContext cpu(1);
  static const auto targets = targets_with_rows();
  auto made = PackedAdapter::pack(*cpu, model, targets, {});
  CHORAL_CHECK(made.ok(), made.status().message());
  return std::move(*made);
}

// Of q and v in both layers; each time one more of the same content.
std::shared_ptr<const PackedAdapter> of_rank(int64_t rank) {
  static std::map<int64_t, LoRAModel> models;
  auto model = models.find(rank);
  if (model == models.end()) {
    const auto ranks = fmt::format(R"(,"rank_pattern":{{"q_proj":{0},"v_proj":{0}}})", rank);
    model = models.emplace(rank, accepted(AdapterBuilder().query_and_value(rank), config_json(ranks))).first;
  }
  return pack(model->second);
}

std::shared_ptr<const PackedAdapter> with_dora() {
  const std::string query = "model.layers.0.self_attn.q_proj";
  return pack(
      accepted(AdapterBuilder()
                   .pair(query, 2, choral::lora::testing::kHidden, choral::lora::testing::kHidden)
                   .add("base_model.model." + query + ".lora_magnitude_vector", {choral::lora::testing::kHidden}, "F32", 50),
               config_json(R"(,"use_dora":true,"layers_to_transform":[0])", R"(["q_proj"])")));
}

// A device of its own for each StackedAdapters, with a gate before its slots.
struct Device {
  explicit Device(const LoRAMemoryPoolSize& size, bool open = false) {
    auto made = StackedAdapters::make(ctx, targets(), size, size.max_slots, 16);
    CHORAL_CHECK(made.ok(), made.status().message());
    adapters = std::move(*made);
    adapters->set_wake([this] { gate.note_end(); });
    if (open) gate.open();
  }
  ~Device() { gate.open(); }

  Readiness add(int key, const PackedVoice& voice) {
    const auto added = adapters->activate_adapter(AdapterKey(key), voice);
    CHORAL_CHECK(added.ok(), added.status().message());
    return *added;
  }
  // So many slots that are coming have come.
  void bring(int slots) {
    gate.allow(slots);
    gate.wait_for_ended(taken += slots);
    adapters->take_uploaded();
  }
  Readiness add_and_bring(int key, const PackedVoice& voice) {
    while (add(key, voice) == Readiness::kComing) bring(1);
    return Readiness::kReady;
  }
  // All that lies in the voice's slot, padding apart: A, B, rank and vectors of every target.
  std::vector<float> contents(const PackedVoice& voice) const {
    std::vector<float> all;
    const int32_t slot = adapters->pool().find(voice);
    CHORAL_CHECK(slot != LoRAMemoryPool::kNoSlot, "it has no slot");
    for (size_t target = 0; target < targets().size(); ++target) {
      const auto& stacks = adapters->pool().stacks(static_cast<int>(target));
      for (const auto& pair : stacks.pairs) {
        if (pair.rank == 0) continue;
        const int32_t rank = pair.ranks[slot];
        CHORAL_CHECK(pair.ranks_on_device.as<int32_t>()[slot] == rank, "a slot's rank is the same on both sides");
        if (rank == 0) continue;
        all.push_back(static_cast<float>(rank));
        rows_of(pair.a, slot, rank, pair.a.shape()[2], all);
        rows_of(pair.b, slot, pair.b.shape()[1], rank, all);
      }
      if (!stacks.factors.empty()) rows_of(stacks.factors, slot, 1, stacks.out, all);
      if (!stacks.offsets.empty()) rows_of(stacks.offsets, slot, stacks.out, 1, all);
    }
    return all;
  }

  static const std::vector<LoRATarget>& targets() {
    static const auto all = choral::lora::testing::small_targets();
    return all;
  }

  // The leading rows and columns of a slot; all else of it is zeros.
  static void rows_of(const Tensor& stack, int32_t slot, int64_t rows, int64_t cols, std::vector<float>& to) {
    const auto all = stack.as<float>();
    const int64_t height = stack.shape()[1], width = stack.shape()[2];
    for (int64_t row = 0; row < height; ++row) {
      for (int64_t col = 0; col < width; ++col) {
        const float value = all[static_cast<size_t>((slot * height + row) * width + col)];
        if (row < rows && col < cols) {
          to.push_back(value);
        } else {
          CHORAL_CHECK(value == 0.0F, "zeros pad");
        }
      }
    }
  }

  CopyGate gate;
  platform::testing::CpuContext cpu{1};
  GatedSession session{cpu.session(), gate};
  ThreadPool pool{1};
  platform::Context ctx{session, pool, cpu_level()};
  std::unique_ptr<StackedAdapters> adapters;
  int taken = 0;  // slots
};

TEST(SlotUploads, AVoiceWaitsForItsSlotAndNobodyElseDoes) {
  Device device({.max_slots = 4});
  const PackedVoice runs{{of_rank(2), 1.0F}}, comes{{of_rank(2), 2.0F}};
  ASSERT_EQ(device.add_and_bring(1, runs), Readiness::kReady);
  const auto before = device.contents(runs);
  EXPECT_EQ(device.add(2, comes), Readiness::kComing);
  const std::vector<LoRASegment> segments{{0, 2, AdapterKey(1)}};
  const std::vector<const PackedVoice*> voices{&runs};
  device.adapters->begin_step(segments, voices, {2, false});  // a step while the other one's slot is written
  EXPECT_TRUE(device.adapters->serves(&runs));
  EXPECT_EQ(device.add(2, comes), Readiness::kComing) << "asked again it is not begun again";
  EXPECT_EQ(device.contents(runs), before);
  device.gate.allow(1);
  device.gate.wait_for_ended(2);
  EXPECT_EQ(device.add(2, comes), Readiness::kComing) << "until the engine's thread has taken the end";
  device.adapters->take_uploaded();
  EXPECT_EQ(device.add(2, comes), Readiness::kReady);
  EXPECT_EQ(device.contents(runs), before);
  EXPECT_EQ(device.gate.ended(), 2);
}

TEST(SlotUploads, StacksGrowWhenNothingIsOnItsWay) {
  Device device({.max_slots = 4});
  const PackedVoice runs{{of_rank(2), 1.0F}}, first{{of_rank(2), 2.0F}}, second{{of_rank(2), 3.0F}}, higher{{of_rank(9), 1.0F}};
  ASSERT_EQ(device.add_and_bring(1, runs), Readiness::kReady);
  const auto before = device.contents(runs);
  EXPECT_EQ(device.add(2, first), Readiness::kComing);
  EXPECT_EQ(device.add(3, higher), Readiness::kComing);
  EXPECT_EQ(device.adapters->pool().find(higher), LoRAMemoryPool::kNoSlot) << "its stacks are larger, and one is being written";
  EXPECT_EQ(device.add(4, second), Readiness::kComing);
  EXPECT_EQ(device.adapters->pool().find(second), LoRAMemoryPool::kNoSlot) << "or those who come would keep the larger one out";
  device.bring(1);
  EXPECT_EQ(device.add(2, first), Readiness::kReady);
  EXPECT_EQ(device.add(3, higher), Readiness::kComing);
  EXPECT_NE(device.adapters->pool().find(higher), LoRAMemoryPool::kNoSlot);
  EXPECT_EQ(device.contents(runs), before) << "moved to larger stacks, beyond a step of its own";
  EXPECT_EQ(device.add(4, second), Readiness::kComing) << "beside it: the stacks are large enough";
  device.bring(2);
  EXPECT_EQ(device.add(3, higher), Readiness::kReady);
  EXPECT_EQ(device.add(4, second), Readiness::kReady);
  EXPECT_EQ(device.contents(runs), before);
}

TEST(SlotUploads, WhatComesKeepsItsSlotUntilItHasCome) {
  Device device({.max_slots = 1});
  const PackedVoice comes{{of_rank(2), 1.0F}}, another{{of_rank(2), 2.0F}};
  EXPECT_EQ(device.add(1, comes), Readiness::kComing);
  EXPECT_EQ(device.adapters->activate_adapter(AdapterKey(2), another).status().code(), Code::kUnavailable);
  device.bring(1);
  // Nobody asked for it any more: it is one that ended.
  EXPECT_EQ(device.add(2, another), Readiness::kComing);
  EXPECT_EQ(device.adapters->pool().find(comes), LoRAMemoryPool::kNoSlot);
  EXPECT_EQ(device.adapters->memory().evictions(), 1);
  device.bring(1);
  EXPECT_EQ(device.add(2, another), Readiness::kReady);
  EXPECT_EQ(device.adapters->activate_adapter(AdapterKey(1), comes).status().code(), Code::kUnavailable);
}

TEST(SlotUploads, ASlotIsWrittenFromTheHostsPanelsWhoeverDropsThem) {
  Device device({.max_slots = 1});
  auto dropped = of_rank(2);
  const std::weak_ptr<const PackedAdapter> watched = dropped;
  EXPECT_EQ(device.add(1, {{dropped, 1.0F}}), Readiness::kComing);
  dropped = nullptr;
  EXPECT_FALSE(watched.expired());
  device.bring(1);
  EXPECT_TRUE(watched.expired()) << "a slot keeps no panels of the host";
  const PackedVoice next{{of_rank(2), 1.0F}};
  EXPECT_EQ(device.add(2, next), Readiness::kComing) << "in the slot of the one that nobody can ask for";
  EXPECT_EQ(device.adapters->memory().evictions(), 0);
}

// What a slot was given before is gone, of whatever rank it was.
TEST(SlotUploads, ASlotHoldsItsVoiceAndZeros) {
  const PackedVoice high{{of_rank(9), 1.0F}}, low{{of_rank(2), 1.0F}}, again{{of_rank(9), 1.0F}};
  Device fresh({.max_slots = 1}, true), used({.max_slots = 1}, true);
  fresh.add_and_bring(1, low);
  int key = 0;
  for (const PackedVoice* voice : {&high, &low, &again, &low}) {
    used.add_and_bring(++key, *voice);
    if (voice == &low) {
      EXPECT_EQ(used.contents(low), fresh.contents(low));
    }
    used.adapters->deactivate_adapter(AdapterKey(key));
  }
}

TEST(SlotUploads, WhoHasNoFactorsIsScaledByOne) {
  const PackedVoice plain{{of_rank(2), 1.0F}}, dora{{with_dora(), 1.0F}}, late{{of_rank(2), 2.0F}};
  Device device({.max_slots = 2}, true);
  const auto factors = [&](const PackedVoice& voice) {
    const Tensor& stack = device.adapters->pool().stacks(2).factors;
    std::vector<float> own;
    device.rows_of(stack, device.adapters->pool().find(voice), 1, stack.shape()[2], own);
    return own;
  };
  device.add_and_bring(1, plain);
  device.add_and_bring(2, dora);
  EXPECT_THAT(factors(dora), Contains(Ne(1.0F)));
  EXPECT_THAT(factors(plain), Each(1.0F)) << "who was there before";
  device.adapters->deactivate_adapter(AdapterKey(2));
  device.add_and_bring(3, late);
  EXPECT_THAT(factors(late), Each(1.0F)) << "who comes where one was that has some";
}

TEST(SlotUploads, WhatCannotBeMadeIsTheHosts) {
  AdapterBuilder large = AdapterBuilder().query_and_value(2);
  large.tensors.front().values.front() = 1e6F;
  Device device({.max_slots = 1, .dtype = DType::kF16}, true);
  const PackedVoice voice{{pack(accepted(large, config_json())), 1.0F}}, fine{{of_rank(2), 1.0F}};
  EXPECT_EQ(device.add(1, voice), Readiness::kComing);
  device.bring(1);
  EXPECT_EQ(device.add(1, voice), Readiness::kReady);
  EXPECT_THAT(device.adapters->take_notes(),
              ElementsAre(AllOf(HasSubstr("is computed on the host"), HasSubstr("does not fit into float16"))));
  EXPECT_EQ(device.adapters->memory().used().adapters, 0) << "its slot is free";
  EXPECT_EQ(device.add(2, fine), Readiness::kComing);
}

TEST(SlotUploads, ADeviceThatFailsSaysSoAtItsNextStep) {
  Device device({.max_slots = 2}, true);
  const PackedVoice voice{{of_rank(2), 1.0F}};
  device.gate.fail_with(unavailable("the device does not answer any more"));
  EXPECT_EQ(device.add(1, voice), Readiness::kComing);
  EXPECT_TRUE(device.session.failure.ok()) << "told by the engine's thread alone";
  device.bring(1);
  EXPECT_EQ(device.session.failure.message(), "the device does not answer any more");
  EXPECT_EQ(device.add(1, voice), Readiness::kReady) << "so that its request ends with the device's reason";
  EXPECT_THAT(device.adapters->take_notes(), IsEmpty());
}

TEST(SlotUploads, TheEndWaitsForNoFurtherSlot) {
  std::vector<PackedVoice> voices;
  for (int i = 0; i < 4; ++i) voices.push_back({{of_rank(2), 1.0F + static_cast<float>(i)}});
  auto device = std::make_unique<Device>(LoRAMemoryPoolSize{.max_slots = 4});
  for (int i = 0; i < 4; ++i) EXPECT_EQ(device->add(i + 1, voices[static_cast<size_t>(i)]), Readiness::kComing);
  device->gate.open();
  device = nullptr;
  for (const auto& voice : voices) EXPECT_EQ(voice.front().adapter.use_count(), 1);
}

// Voices that begin, are given up while they come, end, and are dropped by the host, against a list of who has what.
RC_GTEST_PROP(SlotUploads, EveryReadyVoiceIsInItsSlotAsIfAlone, ()) {
  struct Listed {
    PackedVoice voice = {};
    bool runs = false;
  };
  constexpr size_t kVoices = 6;
  const auto renew = [](size_t i) {
    constexpr int64_t kRanks[] = {1, 2, 8, 9};
    return PackedVoice{{of_rank(kRanks[i % std::size(kRanks)]), 1.0F + static_cast<float>(i)}};
  };
  static const auto wanted = [&] {
    std::vector<std::vector<float>> contents;
    for (size_t i = 0; i < kVoices; ++i) {
      const auto voice = renew(i);
      Device alone({.max_slots = 1}, true);
      alone.add_and_bring(1, voice);
      contents.push_back(alone.contents(voice));
    }
    return contents;
  }();
  const auto slots = *rc::gen::inRange<int64_t>(1, 5);
  Device device({.max_slots = slots});
  std::array<Listed, kVoices> list;
  for (size_t i = 0; i < kVoices; ++i) list[i].voice = renew(i);
  const auto running = [&] { return std::count_if(list.begin(), list.end(), [](const Listed& l) { return l.runs; }); };
  int begun = 0, ended = 0;  // uploads
  const auto in_flight = [&] {
    int coming = 0;
    for (int32_t slot = 0; slot < device.adapters->pool().slot_count(); ++slot) coming += device.adapters->pool().coming(slot);
    return coming;
  };
  const int operations = *rc::gen::inRange(0, 60);
  for (int now = 0; now < operations; ++now) {
    const auto i = *rc::gen::inRange<size_t>(0, list.size());
    auto& one = list[i];
    const int key = static_cast<int>(i) + 1;
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        if (in_flight() > 0) device.bring(1), ++ended;
        break;
      case 1:
        if (one.runs) device.adapters->deactivate_adapter(AdapterKey(key));
        one.runs = false;
        break;
      case 2:
        if (!one.runs) one.voice = renew(i);
        break;
      default: {
        if (one.runs) break;
        const int32_t slot = device.adapters->pool().find(one.voice);
        const bool there = slot != LoRAMemoryPool::kNoSlot && !device.adapters->pool().coming(slot);
        const int before = in_flight();
        const auto added = device.adapters->activate_adapter(AdapterKey(key), one.voice);
        begun += in_flight() - before;
        if (!added.ok()) {
          RC_ASSERT(added.status().code() == Code::kUnavailable);
          RC_ASSERT(running() + before == slots);  // nothing else is in the way
          break;
        }
        RC_ASSERT((*added == Readiness::kReady) == there);
        one.runs = there;
      }
    }
    RC_ASSERT(begun - ended == in_flight());
    for (size_t k = 0; k < list.size(); ++k) {
      if (list[k].runs) RC_ASSERT(device.contents(list[k].voice) == wanted[k]);
    }
  }
  // Whoever waits gets in when the others have ended.
  for (size_t k = 0; k < list.size(); ++k) {
    if (list[k].runs) device.adapters->deactivate_adapter(AdapterKey(static_cast<int>(k) + 1));
  }
  while (in_flight() > 0) device.bring(1);
  for (size_t k = 0; k < list.size(); ++k) {
    device.add_and_bring(static_cast<int>(k) + 1, list[k].voice);
    RC_ASSERT(device.contents(list[k].voice) == wanted[k]);
    device.adapters->deactivate_adapter(AdapterKey(static_cast<int>(k) + 1));
  }
  RC_ASSERT(device.adapters->take_notes().empty());
}

}  // namespace
}  // namespace choral::lora
