// The plan of a step's rows and of rows gathered from them, against one row at a time.
#include "lora/plan/punica_wrapper.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"
#include "support/temp_dir.h"

namespace choral::lora {
namespace {

using choral::lora::testing::AdapterBuilder;
using choral::lora::testing::config_json;
using choral::lora::testing::small_targets;

constexpr int64_t kIn = choral::lora::testing::kHidden, kOut = 16;
constexpr int kTarget = 2;  // the first layer's q, k, v

// Three voices of one adapter: they differ by their factors.
class PunicaTest : public ::testing::Test {
 protected:
  static const std::vector<PackedVoice>& voices() {
    static const std::vector<PackedVoice> made = [] {
      static const auto targets = small_targets();
      const choral::testing::TempDir folder;
      const auto model = choral::lora::testing::load(folder.path(), AdapterBuilder().query_and_value(), config_json());
      CHORAL_CHECK(model.ok(), model.status().message());
      platform::testing::CpuContext cpu(1);
      auto packed = PackedAdapter::pack(*cpu, *model, targets, {});
      CHORAL_CHECK(packed.ok(), packed.status().message());
      return std::vector<PackedVoice>{{{*packed, 1.0F}}, {{*packed, -0.5F}}, {{*packed, 2.0F}, {*packed, 0.25F}}};
    }();
    return made;
  }

  // The voice of each row, -1 for the base.
  void plan(std::span<const int> row_voices) {
    std::vector<LoRASegment> segments;
    std::vector<const PackedVoice*> segment_voices;
    for (size_t row = 0; row < row_voices.size(); ++row) {
      const int voice = row_voices[row];
      if (voice < 0) continue;
      const bool goes_on = row > 0 && row_voices[row - 1] == voice;
      if (goes_on) {
        ++segments.back().length;
      } else {
        segments.push_back({static_cast<int64_t>(row), 1, AdapterKey{voice + 1}});
        segment_voices.push_back(&voices()[voice]);
      }
    }
    punica_.update_metadata(segments, segment_voices);
  }

  // What adapters add to a base product of ones.
  template <class Add>
  std::vector<float> outputs(int64_t rows, Add&& add) {
    std::vector<float> y(rows * kOut, 1.0F);
    const MatrixView<float> out(y.data(), rows, kOut);
    add(out, [&](const kernels::Epilogue& wanted, MatrixView<float>) {
      if (wanted.product_hook != nullptr) (*wanted.product_hook)(0, 0, out);
      if (wanted.result_hook != nullptr) (*wanted.result_hook)(0, 0, out);
    });
    return y;
  }
  static std::vector<float> inputs(std::span<const int32_t> rows) {
    std::vector<float> x;
    for (const int32_t row : rows) {
      for (int64_t k = 0; k < kIn; ++k) x.push_back(0.1F * static_cast<float>((row * 7 + k) % 23) - 1.0F);
    }
    return x;
  }
  std::vector<float> alone(int32_t row, int voice) {
    plan(std::span(&voice, 1));
    const auto x = inputs(std::span(&row, 1));
    return outputs(1, [&](MatrixView<float> y, PunicaWrapper::BaseProduct base) {
      punica_.add_lora_linear(*cpu_, kTarget, MatrixView<const float>(x.data(), 1, kIn), false, y, base);
    });
  }

  platform::testing::CpuContext cpu_{1};
  PunicaWrapper punica_{64};
};

using Groups = std::vector<std::tuple<int64_t, int64_t, const PackedVoice*>>;

Groups list(std::span<const RowGroup> groups) {
  Groups out;
  for (const auto& group : groups) out.emplace_back(group.row_begin, group.row_count, group.voice);
  return out;
}

TEST_F(PunicaTest, SegmentsAreItsGroups) {
  const LoRASegment segments[] = {{1, 3, AdapterKey{7}}, {4, 2, AdapterKey{9}}, {9, 1, AdapterKey{7}}};
  const PackedVoice* const of[] = {&voices()[0], &voices()[1], &voices()[0]};
  EXPECT_TRUE(punica_.no_lora());
  punica_.update_metadata(segments, of);
  EXPECT_EQ(list(punica_.token_groups()), (Groups{{1, 3, of[0]}, {4, 2, of[1]}, {9, 1, of[0]}}));
  punica_.update_metadata({}, {});
  EXPECT_TRUE(punica_.no_lora());
}

TEST_F(PunicaTest, RefusesSegmentsThatShareRowsOrHaveNoVoice) {
  const PackedVoice* const of[] = {&voices()[0], &voices()[1]};
  const PackedVoice* const none[] = {nullptr};
  const LoRASegment shared[] = {{0, 3, AdapterKey{1}}, {2, 2, AdapterKey{2}}}, empty[] = {{0, 0, AdapterKey{1}}},
                    backwards[] = {{4, 1, AdapterKey{1}}, {0, 1, AdapterKey{2}}};
  EXPECT_DEATH(punica_.update_metadata(shared, of), "share no row");
  EXPECT_DEATH(punica_.update_metadata(backwards, of), "ascend");
  EXPECT_DEATH(punica_.update_metadata(empty, std::span(of).first(1)), "segments");
  EXPECT_DEATH(punica_.update_metadata(empty, none), "voice");
  EXPECT_DEATH(punica_.update_metadata(shared, none), "one voice");
}

TEST_F(PunicaTest, GatheredRowsKeepTheirVoices) {
  const int rows[] = {-1, 0, 0, 0, 1, -1};
  plan(rows);
  Arena scratch;
  const auto groups = [&](std::vector<int32_t> gathered) { return list(punica_.row_groups(gathered, scratch)); };
  const PackedVoice *a = &voices()[0], *b = &voices()[1];
  EXPECT_EQ(groups({0, 5}), Groups{});
  EXPECT_EQ(groups({1, 3, 4}), (Groups{{0, 2, a}, {2, 1, b}}));
  EXPECT_EQ(groups({4, 0, 2, 2, 1, 5, 4}), (Groups{{0, 1, b}, {2, 3, a}, {6, 1, b}}));
  EXPECT_EQ(groups({}), Groups{});
}

RC_GTEST_FIXTURE_PROP(PunicaTest, AnyGatheredRowsEqualEachAlone, ()) {
  const auto row_voices = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(-1, 3)));
  const auto step_rows = static_cast<int32_t>(row_voices.size());
  RC_PRE(row_voices.size() <= 64);
  const auto rows = *rc::gen::nonEmpty(rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, step_rows)));
  const auto count = std::ssize(rows);
  const auto x = inputs(rows);
  const MatrixView<const float> gathered(x.data(), count, kIn);
  plan(row_voices);
  const auto linear = outputs(count, [&](MatrixView<float> y, PunicaWrapper::BaseProduct base) {
    const platform::StepMark mark(*cpu_);
    punica_.add_lora_linear(*cpu_, kTarget, punica_.row_groups(rows, (*cpu_).kernel.scratch), gathered, false, y, base);
  });
  const auto logits = outputs(count, [&](MatrixView<float> y, PunicaWrapper::BaseProduct base) {
    punica_.add_lora_logits(*cpu_, kTarget, gathered, rows, y, base);
  });
  RC_ASSERT(linear == logits);
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto want = alone(rows[i], row_voices[rows[i]]);
    RC_ASSERT(std::equal(want.begin(), want.end(), linear.begin() + static_cast<ptrdiff_t>(i) * kOut));
    if (row_voices[rows[i]] < 0) RC_ASSERT(want == std::vector<float>(kOut, 1.0F));
  }
}

}  // namespace
}  // namespace choral::lora
