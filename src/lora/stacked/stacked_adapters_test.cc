// The stacked path against the engine's own on the CPU: random steps of voices of every kind, the same rows through both. On the
// CPU's session the stacked operators are kernels/lora/lora.h.
#include "lora/stacked/stacked_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <random>

#include "kernels/gemm/gemm_float.h"
#include "lora/plan/punica_wrapper.h"
#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"
#include "support/allocation_counter.h"

namespace choral::lora {
namespace {

using choral::lora::testing::AdapterBuilder;
using choral::lora::testing::config_json;
using choral::lora::testing::kHidden;
using choral::lora::testing::kInner;
using choral::lora::testing::kKeys;
using choral::lora::testing::kVocabulary;
using ::testing::HasSubstr;

constexpr int64_t kMaxTokens = 64, kMaxVoices = 16;

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> out(count);
  for (float& v : out) v = values(random);
  return out;
}

// The small model's targets with weights and biases to compute with.
class Base {
 public:
  explicit Base(const platform::Context& ctx) : targets_(testing::small_targets()) {
    weights_.resize(targets_.size());
    biases_.resize(targets_.size());
    for (size_t i = 0; i < targets_.size(); ++i) {
      auto& target = targets_[i];
      const bool embedding = target.kind == TargetKind::kEmbedding;
      if (target.kind == TargetKind::kNorm) {
        matrices_.emplace_back();
        continue;
      }
      const int64_t rows = embedding ? kVocabulary : target.out(), cols = target.in;
      weights_[i] = random_values(rows * cols, static_cast<unsigned>(i) + 1);
      if (target.base_bias) biases_[i] = random_values(rows, static_cast<unsigned>(i) + 100);
      const kernels::WeightRows source{{std::as_bytes(std::span(weights_[i])).data(), DType::kF32, {rows, cols}, kCpuDevice}, {}};
      matrices_.push_back(std::move(*ctx.session.prepack(ctx, {.rows = {&source, 1}, .format = DType::kF32})));
      target.base_row = [matrix = matrices_.back().get()](int64_t row, std::span<float> out) {
        return matrix->read_row(row, out);
      };
      target.base_bias = [this, i] { return std::span<const float>(biases_[i]); };
    }
  }
  std::span<const LoRATarget> targets() const { return targets_; }
  int target(std::string_view name) const {
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (targets_[i].name == name) return static_cast<int>(i);
    }
    CHORAL_CHECK(false, "no such target");
    return -1;
  }
  void multiply(const platform::Context& ctx, int target, MatrixView<const float> x, kernels::Epilogue epilogue,
                MatrixView<float> y) const {
    const auto i = static_cast<size_t>(target);
    if (!biases_[i].empty()) epilogue.bias = biases_[i].data();
    matrices_[i]->multiply(ctx.kernel, x, epilogue, y);
  }
  void look_up(int target, std::span<const int32_t> ids, MatrixView<float> out) const {
    for (int64_t i = 0; i < out.rows; ++i) {
      CHORAL_CHECK(matrices_[target]->read_row(ids[i], out.row_span(i)).ok(), "host");
    }
  }

 private:
  std::vector<LoRATarget> targets_;
  std::vector<std::vector<float>> weights_, biases_;
  std::vector<std::unique_ptr<kernels::PackedMatrix>> matrices_;
};

struct Row {
  int voice = 0;  // 0 = base
  int32_t token = 0;
};

// Base and adapters, made once.
struct World {
  World() {
    const std::string layer = "model.layers.0.", query = layer + "self_attn.q_proj", value = layer + "self_attn.v_proj",
                      down = layer + "mlp.down_proj", head = "lm_head", table = "model.embed_tokens";
    const std::string prefix = "base_model.model.";
    // 1: q and v of both layers, rank 2.
    add(AdapterBuilder().query_and_value(), config_json());
    // 2: many projections of another rank, 16-bit.
    add(AdapterBuilder()
            .pair(query, 5, kHidden, kHidden, "BF16")
            .pair(layer + "self_attn.k_proj", 5, kHidden, kKeys, "BF16")
            .pair(layer + "self_attn.o_proj", 5, kHidden, kHidden, "BF16")
            .pair(layer + "mlp.up_proj", 5, kHidden, kInner, "BF16")
            .pair(down, 5, kInner, kHidden, "BF16"),
        R"({"peft_type":"LORA","r":5,"lora_alpha":3,"target_modules":["q_proj","k_proj","o_proj","up_proj","down_proj"],)"
        R"("layers_to_transform":[0]})");
    // 3: DoRA, also where the product is added to what is there.
    add(AdapterBuilder()
            .pair(query, 2, kHidden, kHidden)
            .add(prefix + query + ".lora_magnitude_vector", {kHidden}, "F32", 50)
            .pair(down, 2, kInner, kHidden)
            .add(prefix + down + ".lora_magnitude_vector", {kHidden}, "F32", 70),
        config_json(R"(,"use_dora":true,"layers_to_transform":[0])", R"(["q_proj","down_proj"])"));
    // 4: a bias of its own.
    add(AdapterBuilder().pair(query, 2, kHidden, kHidden).add(prefix + query + ".lora_B.bias", {kHidden}, "F32", 30),
        config_json(R"(,"lora_bias":true,"layers_to_transform":[0])", R"(["q_proj"])"));
    // 5: an embedding and a head.
    add(AdapterBuilder()
            .add(prefix + table + ".lora_embedding_A", {2, kVocabulary})
            .add(prefix + table + ".lora_embedding_B", {kHidden, 2})
            .pair(head, 2, kHidden, kVocabulary),
        config_json("", R"(["embed_tokens","lm_head"])"));
    mixable = adapters.size();
    // 6: replaced projections, and a pair beside them.
    add(AdapterBuilder()
            .pair(query, 2, kHidden, kHidden)
            .add(prefix + value + ".weight", {kKeys, kHidden}, "F32", 5)
            .add(prefix + down + ".weight", {kHidden, kInner}, "F32", 9),
        config_json(R"(,"layers_to_transform":[0],"modules_to_save":["layers.0.self_attn.v_proj","layers.0.mlp.down_proj"])",
                    R"(["q_proj"])"));
    // 7: rows of the vocabulary, neighbours and single ones.
    add(AdapterBuilder()
            .query_and_value()
            .add(prefix + table + ".token_adapter.trainable_tokens_delta", {3, kHidden}, "F32", 11)
            .add(prefix + head + ".token_adapter.trainable_tokens_delta", {3, kHidden}, "F32", 21),
        config_json(R"(,"trainable_token_indices":{"embed_tokens":[7,2,3],"lm_head":[9,4,5]})"));
    // 8: the whole embedding.
    add(AdapterBuilder().query_and_value().add(prefix + table + ".weight", {kVocabulary, kHidden}, "F32", 40),
        config_json(R"(,"modules_to_save":["embed_tokens"])"));
  }

  void add(const AdapterBuilder& builder, const std::string& config) {
    AdapterBuilder random = builder;
    unsigned seed = 1000 + static_cast<unsigned>(adapters.size());
    for (auto& tensor : random.tensors) {
      tensor.values = random_values(std::ssize(tensor.values), seed += 10);
      if (tensor.name.ends_with("magnitude_vector")) {
        for (float& m : tensor.values) m = 1.5F + m;
      }
    }
    const choral::testing::TempDir folder;
    choral::lora::testing::write_file(folder.path() / "adapter_config.json", config);
    choral::lora::testing::write_file(folder.path() / "adapter_model.safetensors", random.safetensors());
    const auto peft = PEFTHelper::from_local_dir(folder.path());
    CHORAL_CHECK(peft.ok(), peft.status().message());
    const auto model = LoRAModel::from_local_checkpoint(folder.path(), *peft, base.targets());
    CHORAL_CHECK(model.ok(), model.status().message());
    auto packed = PackedAdapter::pack(*cpu, *model, base.targets(), {});
    CHORAL_CHECK(packed.ok(), packed.status().message());
    adapters.push_back(std::move(*packed));
  }

  platform::testing::CpuContext cpu{2};
  Base base{*cpu};
  std::vector<std::shared_ptr<const PackedAdapter>> adapters;
  size_t mixable = 0;  // the first so many may be mixed and scaled
};

class StackedAdaptersTest : public ::testing::Test {
 protected:
  static World& world() {
    static World made;
    return made;
  }

  std::unique_ptr<StackedAdapters> stacked(LoRAMemoryPoolSize size = {.max_slots = kMaxVoices}) {
    auto made = StackedAdapters::make(*cpu_, base_.targets(), size, kMaxVoices, kMaxTokens);
    CHORAL_CHECK(made.ok(), made.status().message());
    return std::move(*made);
  }

  // PackedVoice i (from 1) has id i + 1.
  void start(const std::vector<PackedVoice>& voices, const std::vector<Row>& rows, bool has_prefill) {
    (*cpu_).memory.reset();
    segments_.clear();
    voices_.clear();
    ids_.clear();
    for (const auto& row : rows) {
      const auto at = std::ssize(ids_);
      ids_.push_back(row.token);
      if (row.voice == 0) continue;
      const bool goes_on = at > 0 && rows[static_cast<size_t>(at) - 1].voice == row.voice;
      if (goes_on) {
        ++segments_.back().length;
      } else {
        segments_.push_back({at, 1, AdapterKey(row.voice + 1)});
        voices_.push_back(&voices[static_cast<size_t>(row.voice) - 1]);
      }
    }
    rows_ = {std::ssize(rows), has_prefill};
    engine_.update_metadata(segments_, voices_);
  }
  // Those from voice `first` on.
  static void add(StackedAdapters& adapters, std::span<const PackedVoice> voices, int first = 1) {
    for (const auto& voice : voices) {
      const Status added = adapters.activate_adapter(AdapterKey(++first), voice).status();
      CHORAL_CHECK(added.ok(), added.message());
    }
  }
  void begin_step(StackedAdapters& adapters) { adapters.begin_step(segments_, voices_, rows_); }

  struct Results {
    std::vector<float> engine, stacked;
  };
  // One target by both paths, from the same x and the same y.
  Results run(StackedAdapters& stacked, std::string_view name, bool accumulate) {
    const int target = base_.target(name);
    const auto& t = base_.targets()[target];
    const auto rows = std::ssize(ids_);
    const bool embedding = t.kind == TargetKind::kEmbedding, head = t.kind == TargetKind::kHead;
    auto x = random_values(rows * t.in, 77);
    const int64_t out = embedding ? t.in : t.out();
    Results results{random_values(rows * out, 78), {}};
    results.stacked = results.engine;
    const MatrixView<float> a(results.engine.data(), rows, out), b(results.stacked.data(), rows, out), in(x.data(), rows, t.in);
    const platform::Context& ctx = *cpu_;
    if (embedding) {
      base_.look_up(target, ids_, a);
      base_.look_up(target, ids_, b);
      const platform::IndexArray<int32_t> ids(ids_, ids_.data());
      engine_.add_lora_embedding(ctx, target, ids, a);
      stacked.add_lora_embedding(ctx, target, ids, b);
      return results;
    }
    const auto base = [&](const kernels::Epilogue& wanted, MatrixView<float> y) { base_.multiply(ctx, target, in, wanted, y); };
    kernels::Epilogue epilogue;
    epilogue.accumulate = accumulate;
    engine_.add_lora_linear(ctx, target, in, accumulate, a, base);
    if (head) {
      stacked.add_lora_linear(ctx, target, engine_.token_groups(), in, epilogue, b, base);
    } else {
      stacked.add_lora_linear(ctx, target, in, epilogue, b, base);
    }
    return results;
  }

  static constexpr std::string_view kNames[] = {"model.embed_tokens",
                                                "model.layers.0.self_attn.qkv_proj",
                                                "model.layers.0.self_attn.o_proj",
                                                "model.layers.0.mlp.gate_up_proj",
                                                "model.layers.0.mlp.down_proj",
                                                "model.layers.1.self_attn.qkv_proj",
                                                "lm_head"};
  static bool accumulates(std::string_view name) { return name.ends_with("o_proj") || name.ends_with("down_proj"); }

  platform::testing::CpuContext& cpu_ = world().cpu;
  const Base& base_ = world().base;
  const std::vector<std::shared_ptr<const PackedAdapter>>& adapters_ = world().adapters;
  const size_t mixable_ = world().mixable;
  std::vector<LoRASegment> segments_;
  std::vector<const PackedVoice*> voices_;
  StepRows rows_;
  std::vector<int32_t> ids_;
  PunicaWrapper engine_{kMaxTokens};
};

RC_GTEST_FIXTURE_PROP(StackedAdaptersTest, GivesWhatTheEnginesOwnPathGives, ()) {
  std::vector<PackedVoice> voices;
  const auto count = *rc::gen::inRange(1, 6);
  for (int i = 0; i < count; ++i) {
    const auto first = *rc::gen::inRange<size_t>(0, adapters_.size());
    PackedVoice voice{{adapters_[first], 1.0F}};
    if (first < mixable_) {
      voice.front().factor = *rc::gen::element(1.0F, 0.5F, -2.0F);
      const auto others = *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, mixable_));
      for (const auto more : others) {
        if (voice.size() < 4) voice.push_back({adapters_[more], 0.25F});
      }
    }
    voices.push_back(std::move(voice));
  }
  const auto adapters = stacked({.max_slots = *rc::gen::inRange<int64_t>(count, kMaxVoices)});
  add(*adapters, voices);
  for (int step = 0; step < 3; ++step) {
    std::vector<Row> rows;
    const auto chosen = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, count + 1));
    for (const int voice : chosen) {
      const int length = *rc::gen::inRange(1, 4);
      for (int i = 0; i < length && rows.size() < kMaxTokens; ++i)
        rows.push_back({voice, *rc::gen::inRange<int32_t>(0, kVocabulary)});
    }
    if (rows.empty()) continue;
    start(voices, rows, *rc::gen::arbitrary<bool>());
    begin_step(*adapters);
    RC_ASSERT(adapters->take_notes().empty());
    for (const auto name : kNames) {
      const auto results = run(*adapters, name, accumulates(name));
      for (size_t i = 0; i < results.engine.size(); ++i) {
        const float wanted = results.engine[i], got = results.stacked[i];
        if (std::abs(got - wanted) > 1e-4F * std::max(1.0F, std::abs(wanted))) {
          const size_t cols = results.engine.size() / rows.size();
          RC_FAIL(fmt::format("{} row {} (voice {}) column {}: {} instead of {}", name, i / cols, rows[i / cols].voice, i % cols,
                              got, wanted));
        }
      }
    }
  }
}

TEST_F(StackedAdaptersTest, ARowHasTheSameBitsInEveryCompany) {
  std::vector<PackedVoice> voices;
  for (const auto& adapter : adapters_) voices.push_back({{adapter, 1.0F}});
  std::vector<Row> rows;
  for (int voice = 0; voice <= static_cast<int>(voices.size()); ++voice) rows.push_back({voice, 7}), rows.push_back({voice, 3});
  const auto all = stacked();
  add(*all, voices);
  start(voices, rows, true);
  begin_step(*all);
  for (const auto name : kNames) {
    SCOPED_TRACE(name);
    start(voices, rows, true);
    begin_step(*all);
    const auto together = run(*all, name, accumulates(name)).stacked;
    const size_t cols = together.size() / rows.size();
    for (const int voice : {0, 1, 2, 3, 6}) {
      // The same rows of x and y at the same places, the others the base's: sgmv and bgmv, another pool, another rank of it.
      std::vector<Row> others = rows;
      for (auto& row : others) row.voice = row.voice == voice ? voice : 0;
      const auto alone = stacked();
      add(*alone, voice == 0 ? std::span<const PackedVoice>() : std::span(voices).subspan(static_cast<size_t>(voice) - 1, 1),
          voice);
      start(voices, others, false);
      begin_step(*alone);
      const auto results = run(*alone, name, accumulates(name)).stacked;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i].voice != voice) continue;
        for (size_t c = 0; c < cols; ++c) ASSERT_EQ(results[i * cols + c], together[i * cols + c]) << "voice " << voice;
      }
    }
  }
}

TEST_F(StackedAdaptersTest, WhatDoesNotFitAloneIsTheHostsAndSaysWhy) {
  std::vector<PackedVoice> voices{{{adapters_[0], 1.0F}}};
  const auto small = stacked({.max_slots = 4, .budget_bytes = 100});
  add(*small, voices);
  start(voices, {{1, 0}}, false);
  begin_step(*small);
  EXPECT_FALSE(small->serves(&voices[0]));
  EXPECT_THAT(small->take_notes(), ::testing::ElementsAre(::testing::AllOf(
                                       HasSubstr(to_hex(adapters_[0]->digest()).substr(0, 12) + " is computed on the host"),
                                       HasSubstr("raise --adapter-memory"))));
  EXPECT_LE(small->pool().size_bytes(), 100);
}

// Else where a voice runs would depend on who was there before.
TEST_F(StackedAdaptersTest, StacksThatOthersLeftAreInNobodysWay) {
  const std::vector<PackedVoice> voices{{{adapters_[0], 1.0F}}, {{adapters_[1], 1.0F}}};
  int64_t larger = 0;
  for (const auto& voice : voices) {
    const auto alone = stacked();
    add(*alone, {&voice, 1});
    larger = std::max(larger, alone->pool().size_bytes());
  }
  const auto adapters = stacked({.max_slots = kMaxVoices, .budget_bytes = larger});
  for (const int32_t voice : {1, 2, 1}) {
    ASSERT_TRUE(adapters->activate_adapter(AdapterKey(voice + 1), voices[static_cast<size_t>(voice) - 1]).ok());
    EXPECT_EQ(adapters->activate_adapter(AdapterKey(4 - voice), voices[2 - voice]).status().code(), Code::kUnavailable);
    EXPECT_TRUE(adapters->take_notes().empty());
    adapters->deactivate_adapter(AdapterKey(voice + 1));
  }
}

TEST_F(StackedAdaptersTest, ASteadyStepAllocatesNothing) {
  std::vector<PackedVoice> voices{{{adapters_[0], 1.0F}}, {{adapters_[2], 1.0F}}};
  const auto adapters = stacked();
  EXPECT_GT(choral::testing::count_allocations([&] { add(*adapters, voices); }).allocations, 0);
  const std::vector<Row> rows{{0, 1}, {1, 2}, {1, 3}, {2, 4}};
  for (int step = 0; step < 2; ++step) {
    start(voices, rows, true);
    EXPECT_EQ(choral::testing::count_allocations([&] { begin_step(*adapters); }).allocations, 0);
  }
}

}  // namespace
}  // namespace choral::lora
