// A program's own class of a layer, handed to LLM::load: the model is built with it, and the notes say so.
#include "platform/layer_overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "engine/tiny_model_test.h"
#include "layers/rms_norm.h"

namespace choral::engine {
namespace {

using layers::Builder;
using layers::RMSNorm;
using ::testing::Contains;
using ::testing::HasSubstr;

// An RMSNorm that counts what it is asked for.
class CountedNorm : public RMSNorm {
 public:
  CountedNorm(Builder& builder, const Spec& spec, std::shared_ptr<std::atomic<int>> calls)
      : RMSNorm(builder, spec), calls_(std::move(calls)) {}
  void forward(const platform::Context& ctx, MatrixView<const float> x, MatrixView<float> y,
               const lora::PunicaWrapper* lora) const override {
    ++*calls_;
    RMSNorm::forward(ctx, x, y, lora);
  }
  bool may_fuse(std::string_view) const override { return false; }

 private:
  std::shared_ptr<std::atomic<int>> calls_;
};

TEST(LayerOverrides, AModelIsBuiltWithTheProgramsClass) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const auto overrides = std::make_shared<platform::LayerOverrides>();
  ASSERT_TRUE((overrides->replace<RMSNorm, Builder>("rms_norm", [calls](Builder& builder, const RMSNorm::Spec& spec) {
                return std::make_unique<CountedNorm>(builder, spec, calls);
              })).ok());
  auto options = tiny_options("tiny-qwen3");
  const auto usual = load_or_die(options);
  options.layer_overrides = overrides;
  const auto llm = load_or_die(options);
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("layer rms_norm: its class is replaced")));
  EXPECT_THAT(usual->info().notes, ::testing::Not(Contains(HasSubstr("its class is replaced"))));

  const auto request = greedy_request(random_prompt(9, 1), 8);
  const auto answer = llm->generate({request}).front(), wanted = usual->generate({request}).front();
  expect_same_bits(answer, wanted);
  EXPECT_GT(*calls, 8);
}

}  // namespace
}  // namespace choral::engine
