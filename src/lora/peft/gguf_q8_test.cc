// A GGUF adapter in Q8_0 stays in its blocks from the file to memory.
#include <random>

#include "kernels/quant/dequantise.h"
#include "lora/peft/loading_test.h"
#include "lora/store/packed_adapter.h"
#include "platform/cpu_context_test.h"

namespace choral::lora {
namespace {

using io::testing::GgufSpec;

constexpr int64_t kIn = 64, kOut = 96, kRank = 32;
constexpr int kQ8Type = 8;
const char* const kModule = "model.layers.0.mlp.down_proj";

std::string q8_bytes(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::string out;
  for (int64_t block = 0; block < rows * cols / 32; ++block) {
    out += io::testing::le(to_float16(0.001F * static_cast<float>(1 + random() % 9)).bits);
    for (int i = 0; i < 32; ++i) out += static_cast<char>(random());
  }
  return out;
}

GgufSpec spec() {
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", "qwen2"), GgufSpec::kv_string("general.type", "adapter"),
                   GgufSpec::kv_string("adapter.type", "lora"), GgufSpec::kv_f32("adapter.lora.alpha", 16.0F)};
  // GGUF lists the innermost extent first.
  spec.tensors = {{"blk.0.ffn_down.weight.lora_a", {kIn, kRank}, kQ8Type, q8_bytes(kRank, kIn, 1)},
                  {"blk.0.ffn_down.weight.lora_b", {kRank, kOut}, kQ8Type, q8_bytes(kOut, kRank, 2)}};
  return spec;
}

std::vector<LoRATarget> targets() { return {testing::linear("model.layers.0.mlp.down_proj", {{kModule, kOut}}, kIn)}; }

Result<LoRAModel> load(const GgufSpec& spec) {
  const TempDir folder;
  const auto path = folder.write("adapter.gguf", spec.build());
  CHORAL_TRY(const PEFTHelper peft, PEFTHelper::from_local_dir(path));
  return LoRAModel::from_local_checkpoint(path, peft, targets());
}

int64_t packed_bytes(const LoRAModel& model, LoRADType type) {
  platform::testing::CpuContext cpu;
  LoRAConfig config;
  config.lora_dtype = type;
  const auto packed = PackedAdapter::pack(*cpu, model, targets(), config);
  CHORAL_CHECK(packed.ok(), packed.status().message());
  return (*packed)->size_bytes();
}

TEST(GgufQ8, StaysAsItIsStored) {
  const auto model = load(spec());
  ASSERT_TRUE(model.ok()) << model.status().message();
  const LoRALayerWeights* layer = model->get_lora(kModule);
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->lora_a.view.dtype, DType::kQ8_0);
  EXPECT_EQ(layer->lora_b.view.dtype, DType::kQ8_0);
  const int64_t values = kRank * (kIn + kOut), overhead = 4 * kRank + 128;  // row scales and the like
  EXPECT_LE(packed_bytes(*model, LoRADType::kAuto), values * 36 / 32 + overhead);
  EXPECT_GE(packed_bytes(*model, LoRADType::kFloat32), values * 4);
}

TEST(GgufQ8, WhatIsWrongInABlockIsSeen) {
  GgufSpec broken = spec();
  broken.tensors[0].data[2 * 34] = 0;
  broken.tensors[0].data[2 * 34 + 1] = 0x7C;  // the third block's scale is infinite
  const auto refused = load(broken);
  EXPECT_EQ(refused.status().code(), Code::kCorrupt);
  EXPECT_THAT(refused.status().message(), AllOf(HasSubstr("lora_A"), HasSubstr("element 64")));

  auto zero = Tensor::allocate(DType::kQ8_0, {2, 32});
  ASSERT_TRUE(zero.ok());
  std::fill_n(zero->data(), 68, std::byte{0});
  zero->data()[0] = std::byte{1};  // a scale of nothing
  EXPECT_TRUE(is_all_zero(zero->view()));
  zero->data()[33] = std::byte{0x80};  // -128
  EXPECT_FALSE(is_all_zero(zero->view()));
}

}  // namespace
}  // namespace choral::lora
