// The loaders alone, without an engine: who waits for whom.
#include "engine/adapter_registry.h"

#include <gtest/gtest.h>

#include <future>

#include "lora/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::engine {
namespace {

using lora::testing::AdapterBuilder;
using lora::testing::config_json;

TEST(AdapterRegistry, APlainAdapterDoesNotWaitForDora) {
  const testing::TempDir folder;
  AdapterBuilder builder;
  builder.query_and_value();
  const auto write = [&](const std::string& name, std::string_view config) {
    std::filesystem::create_directories(folder.path() / name);
    lora::testing::write_file(folder.path() / name / "adapter_config.json", config);
    lora::testing::write_file(folder.path() / name / "adapter_model.safetensors", builder.safetensors());
    return AdapterSpec{name, folder.path() / name};
  };
  const auto plain = write("plain", config_json());
  for (int64_t i = 0; i < lora::testing::kLayers; ++i) {
    builder.add(fmt::format("model.layers.{}.self_attn.q_proj.lora_magnitude_vector", i), {lora::testing::kHidden})
        .add(fmt::format("model.layers.{}.self_attn.v_proj.lora_magnitude_vector", i), {lora::testing::kKeys});
  }
  const auto dora = write("dora", config_json(R"(,"use_dora":true)"));

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
    };
  }
  AdapterRegistry registry(cpu_level(), targets, {});
  auto dora_loaded = std::async(std::launch::async, [&] { return registry.load(dora, false); });
  begun.get_future().wait();
  const Status loaded = registry.load(plain, false);
  plain_loaded.set_value();
  EXPECT_TRUE(loaded.ok()) << loaded.message();
  const Status slow = dora_loaded.get();
  EXPECT_TRUE(slow.ok()) << slow.message();
  EXPECT_FALSE(in_vain) << "the plain adapter came only after DoRA";
  ASSERT_EQ(registry.list().size(), 2u);
  EXPECT_EQ(registry.list()[0].kind, "DoRA");
  EXPECT_EQ(registry.list()[1].kind, "LoRA");
}

}  // namespace
}  // namespace choral::engine
