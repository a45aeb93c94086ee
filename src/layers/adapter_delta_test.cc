// What an adapter adds to a layer's output is B(Ax)·scale of the float x, whatever x is rounded to for the layer's own weights:
// in every scheme, within the roundings of the float32 sums that it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/every_scheme_test.h"
#include "layers/linear.h"
#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"

namespace choral::layers {
namespace {

constexpr int64_t kIn = 96, kOut = 40, kRank = 4, kRows = 5;
constexpr float kScale = 2;  // lora_alpha 8, r 4
const std::string kLayer = "model.layers.0.mlp.down_proj";

TEST(AdapterDelta, OfALayerIsThatOfTheFloatX) {
  platform::testing::CpuContext cpu;
  const platform::CustomOpConfig ops;
  const platform::LayerOverrides overrides;
  lora::testing::AdapterBuilder files;
  files.pair(kLayer, kRank, kIn, kOut);
  const auto a = waves(kRank * kIn, 0.2f, 1.3f), b = waves(kOut * kRank, 0.5f, 2.1f), x = waves(kRows * kIn, 2, 0.37f);
  files.at(kLayer + ".lora_A.weight").values = a;
  files.at(kLayer + ".lora_B.weight").values = b;
  const choral::testing::TempDir folder;
  lora::testing::write_file(folder.path() / "adapter_config.json",
                            R"({"peft_type":"LORA","r":4,"lora_alpha":8,"target_modules":["down_proj"]})");
  lora::testing::write_file(folder.path() / "adapter_model.safetensors", files.safetensors());
  const auto peft = *lora::PEFTHelper::from_local_dir(folder.path());

  for (const auto& [name, config, stored_integers] : every_scheme()) {
    SCOPED_TRACE(name);
    Builder builder{cpu.session(), *config, ops, overrides};
    const RowParallelLinear::Spec spec{kLayer, kIn, kOut, false};
    RowParallelLinear layer(builder, spec);
    SchemeWeights weights(kLayer, kOut, kIn, stored_integers);
    ASSERT_TRUE(layer.load_weights(weights.source).ok());
    const Status packed_layer = layer.process_weights_after_loading(*cpu, weights.source);
    ASSERT_TRUE(packed_layer.ok()) << packed_layer.message();
    const auto model = lora::LoRAModel::from_local_checkpoint(folder.path(), peft, builder.lora_targets, {});
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto packed = lora::PackedAdapter::pack(*cpu, *model, builder.lora_targets, {});
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const lora::PackedVoice voice{{*packed, 1.0f}};
    const lora::LoRASegment segment{1, kRows - 1, lora::AdapterKey{1}};  // the first row is the base's
    const lora::PackedVoice* const voices[] = {&voice};
    lora::PunicaWrapper punica(kRows);
    punica.update_metadata({&segment, 1}, voices);

    std::vector<float> with(kRows * kOut), without(kRows * kOut);
    const MatrixView<const float> in(x.data(), kRows, kIn);
    layer.forward(*cpu, in, {with.data(), kRows, kOut}, &punica);
    layer.forward(*cpu, in, {without.data(), kRows, kOut});
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kOut; ++col) {
        const float y = with[row * kOut + col], base = without[row * kOut + col];
        if (row == 0) {
          ASSERT_EQ(y, base) << "a row of the base";
          continue;
        }
        double delta = 0, magnitude = 0;
        for (int64_t r = 0; r < kRank; ++r) {
          double middle = 0, sizes = 0;
          for (int64_t k = 0; k < kIn; ++k) {
            const double term = static_cast<double>(a[r * kIn + k]) * x[row * kIn + k];
            middle += term;
            sizes += std::abs(term);
          }
          delta += kScale * middle * b[col * kRank + r];
          magnitude += kScale * sizes * std::abs(b[col * kRank + r]);
        }
        // A sum of n terms in float32 is off by n half steps of what was added; the result by one more.
        const double bound = (kIn + kRank + 2) * 0x1p-24 * magnitude + 0x1p-23 * (std::abs(y) + std::abs(base));
        ASSERT_NEAR(static_cast<double>(y) - base, delta, bound) << "row " << row << ", column " << col;
        ASSERT_LT(bound, 0.01 * magnitude) << "the bound says nothing";
      }
    }
  }
}

}  // namespace
}  // namespace choral::layers
