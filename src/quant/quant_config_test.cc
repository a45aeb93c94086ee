#include "quant/quant_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace choral::quant {
namespace {

TEST(QuantConfig, EveryKnownNameMakesItsScheme) {
  const auto names = quant_config_names();
  EXPECT_THAT(names, ::testing::Contains("none"));
  for (const auto& name : names) {
    auto config = make_quant_config(name);
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ((*config)->name(), name);
  }
}

TEST(QuantConfig, AnUnknownNameListsTheKnownOnes) {
  const auto config = make_quant_config("awq");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), Code::kUnsupported);
  EXPECT_THAT(config.status().message(), ::testing::HasSubstr("'awq'"));
  for (const auto& name : quant_config_names()) EXPECT_THAT(config.status().message(), ::testing::HasSubstr(name));
}

TEST(QuantConfig, EachLayerGetsAMethodOfItsOwn) {
  const auto config = *make_quant_config("none");
  const auto q = config->get_quant_method(LayerKind::kLinear, "q_proj"),
             k = config->get_quant_method(LayerKind::kLinear, "k_proj");
  ASSERT_TRUE(q.ok() && k.ok());
  EXPECT_NE(q->get(), k->get());
}

}  // namespace
}  // namespace choral::quant
