#include "engine/layer_forms.h"

#include <gmock/gmock.h>

#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

TEST(LayerForms, NumbersOfLayersAreLeftOut) {
  EXPECT_EQ(without_numbers("model.layers.12.mlp.down_proj"), "model.layers.*.mlp.down_proj");
  EXPECT_EQ(without_numbers("model.h2o.3"), "model.h2o.*");
  EXPECT_EQ(without_numbers("config.json: model.layers.0.q.weight is W8A8"), "config.json: model.layers.*.q.weight is W8A8");
  EXPECT_EQ(without_numbers("4bit.7b"), "4bit.7b");
  EXPECT_EQ(without_numbers(""), "");
}

TEST(LayerForms, SayHowEachLayerIsMultipliedAndWhy) {
  auto options = tiny_options();
  options.quantization = "w4a16";
  const auto llm = load_or_die(options);
  const auto& rows = llm->info().layers;
  EXPECT_THAT(rows,
              Contains(AllOf(Field(&LayerForms::layers, "model.layers.*.mlp.down_proj"), Field(&LayerForms::scheme, "W4A16"),
                             Field(&LayerForms::kernel, HasSubstr("2 int8")), Field(&LayerForms::why, "--quantization w4a16"))));
  EXPECT_THAT(rows, Contains(AllOf(Field(&LayerForms::layers, HasSubstr("embed_tokens")), Field(&LayerForms::scheme, "bf16"))));
  for (const auto& row : rows) EXPECT_GT(row.count, 0);
}

}  // namespace
}  // namespace choral::engine
