// A platform that a program brings: it wishes for a quantisation and has schemes of its own, for which nothing here is changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/tiny_model_test.h"
#include "platform/platform.h"
#include "quant/scheme.h"

namespace choral::engine {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Multiplies as the scheme it stands in for, and says so by another name.
class OwnScheme : public quant::Scheme {
 public:
  explicit OwnScheme(quant::SchemePtr inner) : inner_(std::move(inner)) {}
  std::string name() const override { return "TEST_SCHEME"; }
  bool holds_bias() const override { return inner_->holds_bias(); }
  void create_weights(const quant::LinearShape& shape, quant::ParameterSet& parameters) const override {
    inner_->create_weights(shape, parameters);
  }
  Result<quant::PackedLayer> pack(const platform::Context& ctx, const quant::WeightRequest& request,
                                  const quant::LinearShape& shape, quant::ParameterSet& parameters) const override {
    return inner_->pack(ctx, request, shape, parameters);
  }

 private:
  quant::SchemePtr inner_;
};

// The CPU by another name, with a wish and schemes.
class TestPlatform : public platform::Platform {
 public:
  TestPlatform(std::string wish, platform::SchemeOverrides schemes) : wish_(std::move(wish)), schemes_(std::move(schemes)) {}
  std::string_view name() const override { return "test"; }
  Device device() const override { return kCpuDevice; }
  std::string description() const override { return "a platform of a test"; }
  Status check_and_update_config(platform::PlatformConfig& config) const override {
    if (config.quantization == "auto") config.quantization = wish_;
    return {};
  }
  platform::SchemeOverrides scheme_overrides() const override { return schemes_; }
  Result<std::unique_ptr<platform::Session>> open(ThreadPool& pool, const platform::PlatformConfig& config) const override {
    return platform::cpu_platform().open(pool, config);
  }

 private:
  std::string wish_;
  platform::SchemeOverrides schemes_;
};

EngineOptions with_platform(const std::string& wish, platform::SchemeOverrides schemes = {}) {
  auto options = tiny_options("tiny-qwen2");
  options.platform = std::make_shared<TestPlatform>(wish, std::move(schemes));
  return options;
}

RequestOutput answer(const EngineOptions& options, std::vector<std::string>* notes = nullptr,
                     std::vector<LayerForms>* layers = nullptr) {
  const auto llm = load_or_die(options);
  if (llm == nullptr) return {};
  if (notes != nullptr) *notes = llm->info().notes;
  if (layers != nullptr) *layers = llm->info().layers;
  return llm->generate({greedy_request(random_prompt(40, 3), 8)}).front();
}

RequestOutput usual_answer(const std::string& quantization) {
  auto options = tiny_options("tiny-qwen2");
  options.quantization = quantization;
  return answer(options);
}

TEST(PlatformSchemes, APlatformMayWishForAQuantisation) {
  std::vector<std::string> notes;
  expect_same_bits(answer(with_platform("w8a8_dynamic"), &notes), usual_answer("w8a8_dynamic"));
  EXPECT_THAT(notes, Contains(HasSubstr("device: test (brought by the program)")));
  EXPECT_THAT(notes, Contains("config: quantization = w8a8_dynamic (was auto)"));
  auto own = with_platform("w8a8_dynamic");
  own.quantization = "w8a16";
  expect_same_bits(answer(own), usual_answer("w8a16"));  // the user's wish stands
  EXPECT_THAT(LLM::load(with_platform("w1a1")).status().message(), HasSubstr("--quantization w1a1: choose auto"));
}

TEST(PlatformSchemes, APlatformBringsASchemeOfItsOwn) {
  platform::SchemeOverrides schemes;
  schemes.add<quant::Scheme>("test_scheme", "linear", [](const quant::SchemePtr&) {
    return std::make_shared<OwnScheme>(quant::dynamic_scheme(quant::rounded_floats(8)));
  });
  std::vector<std::string> notes;
  std::vector<LayerForms> layers;
  expect_same_bits(answer(with_platform("test_scheme", schemes), &notes, &layers), usual_answer("w8a8_dynamic"));
  EXPECT_THAT(notes, Contains("scheme test_scheme of linear layers: the platform's own"));
  int own = 0;
  for (const auto& layer : layers)
    own += layer.scheme == "TEST_SCHEME" && layer.why == "--quantization test_scheme" ? layer.count : 0;
  EXPECT_EQ(own, 4 * 4);                        // qkv, o, gate_up, down of each layer
  auto asked = with_platform("auto", schemes);  // the user may wish for it too
  asked.quantization = "test_scheme";
  expect_same_bits(answer(asked), usual_answer("w8a8_dynamic"));
}

TEST(PlatformSchemes, APlatformsSchemeStandsInForOneOfTheEngines) {
  platform::SchemeOverrides schemes;
  schemes.add<quant::Scheme>("W8A16", "linear", [](const quant::SchemePtr& usual) { return std::make_shared<OwnScheme>(usual); });
  std::vector<LayerForms> layers;
  auto options = with_platform("auto", schemes);
  options.quantization = "w8a16";
  expect_same_bits(answer(options, nullptr, &layers), usual_answer("w8a16"));
  int own = 0;
  for (const auto& layer : layers) own += layer.scheme == "TEST_SCHEME" ? layer.count : 0;
  EXPECT_EQ(own, 4 * 4);
}

}  // namespace
}  // namespace choral::engine
