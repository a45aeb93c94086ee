// Layers that multiply together give the bits that each gives alone: in every scheme and at every level, for any number of
// threads, with and without adapters of every kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "layers/every_scheme_test.h"
#include "layers/linear.h"
#include "lora/store/built_adapter_test.h"

namespace choral::layers {
namespace {

constexpr int64_t kIn = 96, kOut = 40, kRank = 4;
constexpr int64_t kHeights[] = {1, 3, 30, 2, 7};  // rows of a layer
constexpr int64_t kLayers = std::size(kHeights);

std::string layer_name(int64_t i) { return fmt::format("model.layers.{}.mlp.down_proj", i); }

// An adapter of all layers, or of every other one.
class Adapter {
 public:
  Adapter(int64_t every, bool dora) {
    lora::testing::AdapterBuilder files;
    std::string names;
    for (int64_t i = 0; i < kLayers; i += every) {
      files.pair(layer_name(i), kRank, kIn, kOut);
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ",", layer_name(i));
      const auto seed = static_cast<float>(i + every);
      files.at(layer_name(i) + ".lora_A.weight").values = waves(kRank * kIn, 0.2f, 1.3f + 0.1f * seed);
      files.at(layer_name(i) + ".lora_B.weight").values = waves(kOut * kRank, 0.5f, 2.1f + 0.1f * seed);
      if (dora) files.add("base_model.model." + layer_name(i) + ".lora_magnitude_vector", {kOut}, "F32", 90);
    }
    lora::testing::write_file(
        folder_.path() / "adapter_config.json",
        fmt::format(R"({{"peft_type":"LORA","r":4,"lora_alpha":8,"use_dora":{},"target_modules":[{}]}})", dora, names));
    lora::testing::write_file(folder_.path() / "adapter_model.safetensors", files.safetensors());
  }
  std::shared_ptr<const lora::PackedAdapter> pack(const platform::Context& ctx, std::span<const lora::LoRATarget> targets) const {
    const auto peft = lora::PEFTHelper::from_local_dir(folder_.path());
    CHORAL_CHECK(peft.ok(), peft.status().message());
    const auto model = lora::LoRAModel::from_local_checkpoint(folder_.path(), *peft, targets, {});
    CHORAL_CHECK(model.ok(), model.status().message());
    auto packed = lora::PackedAdapter::pack(ctx, *model, targets, {});
    CHORAL_CHECK(packed.ok(), packed.status().message());
    return *packed;
  }

 private:
  choral::testing::TempDir folder_;
};

TEST(GroupedLinear, HasTheBitsOfEachLayerAlone) {
  const Adapter plain(1, false), dora(2, true);
  const platform::CustomOpConfig ops;
  const platform::LayerOverrides overrides;
  int64_t rows = 0;
  for (const int64_t height : kHeights) rows += height;
  const auto x = waves(rows * kIn, 2, 0.37f);
  for (const auto& [name, config, stored_integers] : every_scheme()) {
    for (const CpuLevel level : usable_cpu_levels()) {
      for (const int threads : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} threads", name, cpu_level_name(level), threads));
        ThreadPool pool(threads);
        const auto session = *platform::cpu_platform().open(pool, {});
        const platform::Context ctx(*session, pool, level);
        Builder builder{*session, *config, ops, overrides};
        std::vector<std::unique_ptr<RowParallelLinear>> layers;
        for (int64_t i = 0; i < kLayers; ++i) {
          layers.push_back(
              std::make_unique<RowParallelLinear>(builder, RowParallelLinear::Spec{layer_name(i), kIn, kOut, /*bias=*/false}));
          SchemeWeights weights(layer_name(i), kOut, kIn, stored_integers, 0.7f + 0.01f * static_cast<float>(i));
          ASSERT_TRUE(layers.back()->load_weights(weights.source).ok());
          ASSERT_TRUE(layers.back()->process_weights_after_loading(ctx, weights.source).ok());
        }
        const auto packed_plain = plain.pack(ctx, builder.lora_targets), packed_dora = dora.pack(ctx, builder.lora_targets);
        const lora::PackedVoice one{{packed_plain, 1.0f}}, other{{packed_dora, 1.0f}},
            both{{packed_plain, 0.5f}, {packed_dora, 1.0f}};

        // Rows by voice: few and many of each, in an order that differs from layer to layer, and the base's between them.
        const lora::LoRASegment segments[] = {{0, 8, lora::AdapterKey{1}},
                                              {10, 6, lora::AdapterKey{2}},
                                              {16, 12, lora::AdapterKey{3}},
                                              {30, 1, lora::AdapterKey{2}}};
        const lora::PackedVoice* const voices[] = {&one, &other, &both, &other};
        lora::PunicaWrapper punica(rows);
        punica.update_metadata(segments, voices);
        for (const auto* lora :
             {static_cast<const lora::PunicaWrapper*>(nullptr), static_cast<const lora::PunicaWrapper*>(&punica)}) {
          std::vector<float> together(rows * kOut, -7), alone(rows * kOut, -7);
          std::vector<LinearBase::Rows> parts;
          std::vector<int32_t> tokens(rows);
          for (int64_t r = 0; r < rows; ++r) tokens[r] = static_cast<int32_t>(r * 17 % 34);
          int64_t begin = 0;
          for (int64_t i = 0; i < kLayers; begin += kHeights[i++]) {
            auto& part = parts.emplace_back(LinearBase::Rows{layers[i].get(), begin, kHeights[i], {}});
            if (lora != nullptr) {
              part.groups = lora->row_groups(std::span(tokens).subspan(begin, kHeights[i]), ctx.kernel.scratch);
            }
            layers[i]->forward_rows(ctx, {x.data() + begin * kIn, kHeights[i], kIn},
                                    {alone.data() + begin * kOut, kHeights[i], kOut}, lora, part.groups);
          }
          LinearBase::forward_grouped(ctx, ctx.ops.grouped_matmul, parts, {x.data(), rows, kIn}, {together.data(), rows, kOut},
                                      lora);
          ASSERT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0) << (lora != nullptr);
        }
      }
    }
  }
}

}  // namespace
}  // namespace choral::layers
