#include "quant/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::quant {
namespace {

using ::testing::HasSubstr;

TEST(QuantConfig, EveryWishMakesItsConfig) {
  auto names = in_flight_names();
  EXPECT_THAT(names, ::testing::IsSupersetOf({"w8a8_dynamic", "fp8"}));
  names.push_back("auto");
  for (const auto& name : names) {
    auto config = make_quant_config({}, name);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ((*config)->name(), name);
  }
}

TEST(QuantConfig, AnUnknownWishListsTheKnownOnes) {
  const auto config = make_quant_config({}, "awq");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(config.status().message(), HasSubstr("--quantization awq"));
  for (const auto& name : in_flight_names()) EXPECT_THAT(config.status().message(), HasSubstr(name));
}

TEST(QuantConfig, ACheckpointThatIsQuantisedInAnUnknownWayIsRefusedByName) {
  const auto model = io::ConfigMap::parse_json(R"({"quantization_config": {"quant_method": "bitsandbytes"}})", "config.json");
  const auto config = make_quant_config(*model, "auto");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kUnsupported);
  EXPECT_THAT(
      config.status().message(),
      HasSubstr(
          "config.json: quantization_config: checkpoints quantised by bitsandbytes are not read; those by compressed-tensors"));
}

TEST(QuantConfig, EachLayerGetsAMethodOfItsOwn) {
  const auto config = *make_quant_config({}, "auto");
  const LinearShape shape{.in = 1, .out = {1}, .shard_names = {"q_proj"}};
  const auto q = config->get_quant_method(LayerKind::kLinear, shape), k = config->get_quant_method(LayerKind::kLinear, shape);
  ASSERT_TRUE(q.ok() && k.ok());
  EXPECT_NE(q->get(), k->get());
}

}  // namespace
}  // namespace choral::quant
