#include "lora/plan/lora_model_manager.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"
#include "support/temp_dir.h"

namespace choral::lora {
namespace {

using choral::lora::testing::AdapterBuilder;
using choral::lora::testing::config_json;
using choral::lora::testing::small_targets;

std::shared_ptr<const PackedAdapter> packed_adapter(std::span<const LoRATarget> targets, const AdapterBuilder& builder,
                                                    std::string_view config) {
  const choral::testing::TempDir folder;
  const auto model = choral::lora::testing::load(folder.path(), builder, config);
  CHORAL_CHECK(model.ok(), model.status().message());
  platform::testing::CpuContext cpu(1);
  auto packed = PackedAdapter::pack(*cpu, *model, targets, {});
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return std::move(*packed);
}

class ManagerTest : public ::testing::Test {
 protected:
  // Made once; rapidcheck's fixtures know no SetUpTestSuite.
  static const std::vector<LoRATarget>& targets() {
    static const std::vector<LoRATarget> all = small_targets();
    return all;
  }
  static std::shared_ptr<const PackedAdapter> plain() {
    static const auto packed = packed_adapter(targets(), AdapterBuilder().query_and_value(), config_json());
    return packed;
  }
  static PackedVoice one(float factor = 1.0F) { return {{plain(), factor}}; }
};

TEST_F(ManagerTest, RefusesWhatCannotBe) {
  LoRAModelManager m(16);
  EXPECT_EQ(m.add_adapter(AdapterKey{0}, one()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(m.add_adapter(AdapterKey{1}, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(m.add_adapter(AdapterKey{1}, PackedVoice(kMaxVoiceTerms + 1, PackedVoiceTerm{plain(), 1.0F})).status().code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(m.add_adapter(AdapterKey{1}, one()).ok());
  EXPECT_EQ(m.add_adapter(AdapterKey{1}, one()).status().code(), Code::kAlreadyExists);
  EXPECT_FALSE(m.remove_adapter(AdapterKey{9}));
  EXPECT_EQ(m.get_adapter(AdapterKey{9}), nullptr);
  EXPECT_TRUE(m.remove_adapter(AdapterKey{1}));
  EXPECT_TRUE(m.add_adapter(AdapterKey{1}, one(0.5F)).ok());
  EXPECT_EQ(m.get_adapter(AdapterKey{1})->front().factor, 0.5F);
}

TEST_F(ManagerTest, ReplacingAdaptersAreUsedAloneAtFactorOne) {
  AdapterBuilder builder;
  builder.query_and_value().add("base_model.model.model.norm.weight", {choral::lora::testing::kHidden});
  const auto replacing = packed_adapter(targets(), builder, config_json(R"(,"modules_to_save":["model.norm"])"));
  ASSERT_TRUE(replacing->replaces());
  LoRAModelManager m(16);
  EXPECT_TRUE(m.add_adapter(AdapterKey{1}, {{replacing, 1.0F}}).ok());
  EXPECT_EQ(m.add_adapter(AdapterKey{2}, {{replacing, 0.5F}}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(m.add_adapter(AdapterKey{3}, {{replacing, 1.0F}, {plain(), 1.0F}}).status().code(), Code::kInvalidArgument);
}

TEST_F(ManagerTest, AStepOfAnUnknownAdapterHasNoPlan) {
  LoRAModelManager m(16);
  for (const int32_t id : {1, 2}) ASSERT_TRUE(m.add_adapter(AdapterKey{id}, one()).ok());
  const LoRASegment two[] = {{0, 2, AdapterKey{1}}, {4, 1, AdapterKey{2}}},
                    unknown[] = {{0, 1, AdapterKey{1}}, {1, 1, AdapterKey{9}}};
  ASSERT_TRUE(m.set_adapter_mapping(two).ok());
  ASSERT_EQ(m.punica_wrapper().token_groups().size(), 2u);
  EXPECT_EQ(m.punica_wrapper().token_groups()[1].row_begin, 4);
  EXPECT_EQ(m.punica_wrapper().token_groups()[1].voice, m.get_adapter(AdapterKey{2}));
  EXPECT_EQ(m.set_adapter_mapping(unknown).code(), Code::kNotFound);
  EXPECT_TRUE(m.punica_wrapper().no_lora());
  EXPECT_TRUE(m.set_adapter_mapping({}).ok());
  EXPECT_TRUE(m.punica_wrapper().no_lora());
}

// Any mix equals each alone: groups of random voices over random rows against one row at a time, bit for bit, at every cut.
RC_GTEST_FIXTURE_PROP(ManagerTest, AnyMixEqualsEachAlone, ()) {
  constexpr int64_t kIn = choral::lora::testing::kHidden, kOut = 16;
  constexpr int kTarget = 2;  // the first layer's q, k, v
  platform::testing::CpuContext cpu;
  const platform::Context& ctx = *cpu;
  LoRAModelManager m(16);
  for (int32_t id = 1; id <= 6; ++id) {
    PackedVoice voice = one(*rc::gen::element(1.0F, 0.5F, -2.0F));
    if (id % 2 == 0) voice.push_back({plain(), 0.25F});
    RC_ASSERT(m.add_adapter(AdapterKey{id}, std::move(voice)).ok());
  }
  const auto rows = *rc::gen::inRange<int64_t>(1, 20);
  std::vector<float> x(rows * kIn), base(rows * kOut);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i % 23) - 1.0F;
  for (size_t i = 0; i < base.size(); ++i) base[i] = 0.3F * static_cast<float>(i % 7) - 1.0F;
  const auto ids = *rc::gen::container<std::vector<int32_t>>(rows, rc::gen::inRange(0, 7));

  const auto run = [&](std::span<const int32_t> row_ids, int64_t first, std::vector<float>& y) {
    std::vector<LoRASegment> segments;
    for (size_t i = 0; i < row_ids.size(); ++i) {
      if (row_ids[i] != 0) segments.push_back({static_cast<int64_t>(i), 1, AdapterKey{row_ids[i]}});
    }
    RC_ASSERT(m.set_adapter_mapping(segments).ok());
    const auto count = std::ssize(row_ids);
    y.assign(base.begin() + first * kOut, base.begin() + (first + count) * kOut);
    const MatrixView<float> out(y.data(), count, kOut);
    m.punica_wrapper().add_lora_linear(ctx, kTarget, MatrixView<const float>(x.data() + first * kIn, count, kIn), false, out,
                                       [&](const kernels::Epilogue& wanted, MatrixView<float>) {
                                         // The base product in tiles of three rows and one panel.
                                         for (int64_t row = 0; row < count; row += 3) {
                                           const auto tile = out.sub_rows(row, std::min<int64_t>(3, count - row));
                                           if (wanted.product_hook != nullptr) (*wanted.product_hook)(row, 0, tile);
                                           if (wanted.result_hook != nullptr) (*wanted.result_hook)(row, 0, tile);
                                         }
                                       });
  };
  std::vector<float> together, alone;
  run(ids, 0, together);
  for (int64_t row = 0; row < rows; ++row) {
    run(std::span(ids).subspan(row, 1), row, alone);
    RC_ASSERT(std::equal(alone.begin(), alone.end(), together.begin() + row * kOut));
    if (ids[row] == 0) RC_ASSERT(std::equal(alone.begin(), alone.end(), base.begin() + row * kOut));
  }
}

}  // namespace
}  // namespace choral::lora
