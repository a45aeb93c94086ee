// What the loader makes of files, without an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "engine/adapters/registry_test.h"
#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::engine {
namespace {

using lora::testing::AdapterBuilder;
using lora::testing::config_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AdapterSpec write(const testing::TempDir& folder, const std::string& name, const AdapterBuilder& builder,
                  std::string_view config) {
  const auto path = folder.path() / name;
  std::filesystem::create_directories(path);
  lora::testing::write_file(path / "adapter_config.json", config);
  lora::testing::write_file(path / "adapter_model.safetensors", builder.safetensors());
  return {name, path.string()};
}

TEST(AdapterLoader, AnAdapterOfAnotherBaseIsNotedAndByStrictRefused) {
  const testing::TempDir folder;
  const auto targets = lora::testing::small_targets();
  const auto builder = AdapterBuilder().query_and_value();
  const auto other = write(folder, "other", builder, config_json(R"(,"base_model_name_or_path":"org/Other-1B-Instruct")"));
  const auto same = write(folder, "same", builder, config_json(R"(,"base_model_name_or_path":"org/Other-1B")"));
  AdapterRegistry::Config config;
  config.load.base_names = {"other_1b.Q4_K_M", "/models/other_1b.Q4_K_M.gguf"};
  for (const bool strict : {false, true}) {
    config.load.strict = strict;
    const auto registry = make_registry(targets, config);
    const Status of_same = registry->load(same, false), of_other = registry->load(other, false);
    EXPECT_TRUE(of_same.ok()) << of_same.message();
    EXPECT_EQ(of_other.code(), strict ? Code::kInvalidArgument : Code::kOk) << of_other.message();
    const auto all = registry->list();
    EXPECT_THAT(all.back().notes, IsEmpty()) << all.back().name;
    if (strict) {
      EXPECT_THAT(of_other.message(), AllOf(HasSubstr("'other'"), HasSubstr("--strict"), HasSubstr("'org/Other-1B-Instruct'")));
      EXPECT_EQ(all.size(), 1u);
    } else {
      EXPECT_THAT(all.front().notes, ElementsAre(AllOf(HasSubstr("'org/Other-1B-Instruct'"), HasSubstr("'other_1b.Q4_K_M'"))));
    }
  }
}

TEST(AdapterLoader, APlainAdapterDoesNotWaitForDora) {
  const testing::TempDir folder;
  AdapterBuilder builder;
  builder.query_and_value();
  const auto plain = write(folder, "plain", builder, config_json());
  for (int64_t i = 0; i < lora::testing::kLayers; ++i) {
    builder.add(fmt::format("model.layers.{}.self_attn.q_proj.lora_magnitude_vector", i), {lora::testing::kHidden})
        .add(fmt::format("model.layers.{}.self_attn.v_proj.lora_magnitude_vector", i), {lora::testing::kKeys});
  }
  const auto dora = write(folder, "dora", builder, config_json(R"(,"use_dora":true)"));

  // DoRA's first look at a weight of the base lasts until the plain adapter is loaded.
  std::promise<void> begun, plain_loaded;
  const std::shared_future<void> gate = plain_loaded.get_future().share();
  std::once_flag once;
  std::atomic<bool> in_vain = false;
  auto targets = lora::testing::small_targets();
  for (auto& target : targets) {
    target.base_row = [&](int64_t, std::span<float> out) {
      std::fill(out.begin(), out.end(), 1.0F);
      std::call_once(once, [&] {
        begun.set_value();
        in_vain = gate.wait_for(std::chrono::seconds(60)) != std::future_status::ready;
      });
      return Status();
    };
  }
  const auto registry = make_registry(targets);
  auto dora_loaded = std::async(std::launch::async, [&] { return registry->load(dora, false); });
  begun.get_future().wait();
  const Status loaded = registry->load(plain, false);
  plain_loaded.set_value();
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  const Status slow = dora_loaded.get();
  EXPECT_TRUE(slow.ok()) << slow.message();
  EXPECT_FALSE(in_vain) << "the plain adapter came only after DoRA";
  ASSERT_EQ(registry->list().size(), 2u);
  EXPECT_EQ(registry->list()[0].kind, "DoRA");
  EXPECT_EQ(registry->list()[1].kind, "LoRA");
}

}  // namespace
}  // namespace choral::engine
