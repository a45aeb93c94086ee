// What packing checks against the base's own values. What packed adapters compute is held by the engine's tests and the goldens.
#include "lora/store/packed_adapter.h"

#include <numeric>

#include "lora/peft/loading_test.h"
#include "platform/cpu_context_test.h"

namespace choral::lora {
namespace {

// The head and the embedding have these weights: a row of zeros, the others of one length or so.
float base_value(int64_t row, int64_t col) {
  return row == 3 ? 0.0F : 0.3F + 0.01F * static_cast<float>((row * 7 + col * 3) % 11);
}

std::vector<LoRATarget> targets_with_weights() {
  auto targets = testing::small_targets();
  for (auto& target : targets) {
    if (target.kind != TargetKind::kEmbedding && target.kind != TargetKind::kHead) continue;
    target.base_row = [](int64_t row, std::span<float> out) {
      for (size_t c = 0; c < out.size(); ++c) out[c] = base_value(row, static_cast<int64_t>(c));
      return Status();
    };
  }
  return targets;
}

// An adapter of the head that brings a copy of its weight, as PEFT saves it.
AdapterBuilder with_copy(const std::string& dtype) {
  AdapterBuilder builder;
  builder.pair("lm_head", 2, kHidden, kVocabulary)
      .add("base_model.model.lm_head.base_layer.weight", {kVocabulary, kHidden}, dtype);
  auto& copy = builder.tensors.back().values;
  for (size_t i = 0; i < copy.size(); ++i)
    copy[i] = base_value(static_cast<int64_t>(i) / kHidden, static_cast<int64_t>(i) % kHidden);
  return builder;
}

Status packed(const AdapterBuilder& builder, const std::vector<LoRATarget>& targets = targets_with_weights()) {
  const LoRAModel model = accepted(builder, config_json("", R"(["lm_head"])"));
  platform::testing::CpuContext cpu;
  return PackedAdapter::pack(*cpu, model, targets, {}).status();
}

TEST(FrozenCopy, OfTheSameWeightIsNotMinded) {
  for (const char* dtype : {"F32", "F16", "BF16"}) EXPECT_TRUE(packed(with_copy(dtype)).ok()) << dtype;
  auto rounded = with_copy("F32");  // as from a base in four bits
  auto& values = rounded.at("lm_head.base_layer.weight").values;
  for (size_t i = 0; i < values.size(); ++i) values[i] *= i % 2 == 0 ? 1.1F : 0.9F;
  EXPECT_TRUE(packed(rounded).ok()) << packed(rounded).message();
  values[3 * kHidden] = 0.001F;  // beside a row of zeros
  EXPECT_TRUE(packed(rounded).ok()) << packed(rounded).message();
}

// A head that was saved for the rows of new tokens: save_embedding_layers.
TEST(SavedLayer, OfTheBasesOwnWeightTakesNoMemory) {
  const auto pack = [](const std::vector<float>& values) {
    AdapterBuilder builder;
    builder.query_and_value().add("base_model.model.model.embed_tokens.weight", {kVocabulary + 2, kHidden});
    builder.add("base_model.model.lm_head.weight", {kVocabulary + 2, kHidden});
    for (auto* tensor : {&builder.tensors[builder.tensors.size() - 2], &builder.tensors.back()}) {
      std::copy(values.begin(), values.end(), tensor->values.begin());
    }
    platform::testing::CpuContext cpu;
    return *PackedAdapter::pack(*cpu, accepted(builder, config_json()), targets_with_weights(), {});
  };
  std::vector<float> values;
  for (int64_t i = 0; i < kVocabulary * kHidden; ++i) values.push_back(base_value(i / kHidden, i % kHidden));
  const auto targets = targets_with_weights();
  const auto head = static_cast<int>(targets.size()) - 1;
  const auto same = pack(values);
  EXPECT_EQ(same->own_tokens(), 2);
  EXPECT_TRUE(same->module(head)->replaced.empty());
  EXPECT_EQ(same->module(0)->table, nullptr);
  EXPECT_EQ(same->module(head)->own_rows->n(), 2);
  EXPECT_EQ(same->module(head)->own_begin, kVocabulary);
  values.back() += 1;
  const auto trained = pack(values);
  EXPECT_EQ(trained->module(head)->replaced.size(), 1u);
  EXPECT_NE(trained->module(0)->table, nullptr);
  EXPECT_GT(trained->size_bytes(), same->size_bytes());
}

TEST(FrozenCopy, OfAnotherWeightIsRefused) {
  auto other = with_copy("F32");
  auto& values = other.at("lm_head.base_layer.weight").values;
  for (const size_t row : {4u, 7u}) std::fill_n(values.begin() + static_cast<ptrdiff_t>(row) * kHidden, kHidden, 0.9F);
  const Status refused = packed(other);
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("'lm_head'"), HasSubstr("2 of its 10 rows"), HasSubstr("the first is row 4")));
  EXPECT_THAT(refused.message(), HasSubstr("modules_to_save"));
  values[4 * kHidden] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(packed(other).ok());

  auto lost = with_copy("F32");  // the base's row 3 is zero, the copy's is not
  lost.at("lm_head.base_layer.weight").values[3 * kHidden + 1] = 0.5F;
  EXPECT_THAT(packed(lost).message(), HasSubstr("the first is row 3"));
  EXPECT_TRUE(packed(lost, testing::small_targets()).ok()) << "without weights there is nothing to compare with";
}

std::shared_ptr<const PackedAdapter> packed_adapter(const AdapterBuilder& builder, const std::string& projections) {
  static const auto targets = testing::small_targets();
  const LoRAModel model = accepted(builder, config_json("", projections));
  platform::testing::CpuContext cpu;
  auto adapter = PackedAdapter::pack(*cpu, model, targets, {});
  CHORAL_CHECK(adapter.ok(), adapter.status().message());
  return std::move(*adapter);
}

// y of the delta of a target, for a row of 1, 2, 3, …
std::vector<float> delta_of(const kernels::LoRAMatrix& matrix) {
  std::vector<float> x(matrix.in()), middle(matrix.rank());
  std::vector<float> y(matrix.out());
  std::iota(x.begin(), x.end(), 1.0F);
  matrix.shrink(cpu_level(), {x.data(), 1, matrix.in()}, 1.0F, 0, matrix.rank(), {middle.data(), 1, matrix.rank()});
  const kernels::LoRATerm term{&matrix, middle.data(), 1.0F};
  kernels::lora_expand(cpu_level(), {&term, 1}, 0, {y.data(), 1, matrix.out()});
  return y;
}

TEST(FusedProjections, HaveOneAHoweverManyTheyAre) {
  constexpr int kTarget = 2;  // the first layer's q, k, v
  constexpr int64_t kAll = kHidden + 2 * kKeys;
  const std::string layer = "model.layers.0.self_attn.";
  AdapterBuilder fused = AdapterBuilder().pair(layer + "qkv_proj", 2, kHidden, kAll, "BF16");
  const auto& b = fused.at(layer + "qkv_proj.lora_B.weight").values;
  AdapterBuilder apart;
  int64_t begin = 0;
  for (const auto& [name, out] : {std::pair{"q_proj", kHidden}, std::pair{"k_proj", kKeys}, std::pair{"v_proj", kKeys}}) {
    apart.pair(layer + name, 2, kHidden, out, "BF16");
    auto& rows = apart.at(layer + name + ".lora_B.weight").values;
    std::copy_n(b.begin() + begin * 2, rows.size(), rows.begin());
    begin += out;
  }
  const auto one = packed_adapter(fused, R"(["layers.0.self_attn.qkv_proj"])");
  const auto three =
      packed_adapter(apart, R"(["layers.0.self_attn.q_proj","layers.0.self_attn.k_proj","layers.0.self_attn.v_proj"])");
  const auto& delta = *one->module(kTarget)->delta;
  EXPECT_EQ(delta.rank(), 2);
  EXPECT_EQ(delta.slice_count(), 1u);
  EXPECT_EQ(three->module(kTarget)->delta->rank(), 6);
  EXPECT_EQ(delta_of(delta), delta_of(*three->module(kTarget)->delta)) << "bit for bit";
}

// The base's rows may be a device's, which may fail to give them back.
TEST(BaseRows, AnErrorEndsThePacking) {
  auto targets = targets_with_weights();
  for (auto& target : targets) {
    if (target.kind != TargetKind::kHead && target.kind != TargetKind::kLinear) continue;
    target.base_row = [](int64_t row, std::span<float> out) {
      std::fill(out.begin(), out.end(), 1.0F);
      return row == 2 ? unavailable("no answer for row {}", row) : Status();
    };
  }
  const Status compared = packed(with_copy("F32"), targets);
  EXPECT_EQ(compared.code(), Code::kUnavailable);
  EXPECT_THAT(compared.message(), AllOf(HasSubstr("lm_head"), HasSubstr("no answer for row 2")));

  AdapterBuilder builder;
  builder.pair(kQuery, 2, kHidden, kHidden).add(std::string("base_model.model.") + kQuery + ".lora_magnitude_vector", {kHidden});
  const LoRAModel dora = accepted(builder, config_json(R"(,"use_dora":true)", R"(["layers.0.self_attn.q_proj"])"));
  platform::testing::CpuContext cpu;
  const Status measured = PackedAdapter::pack(*cpu, dora, targets, {}).status();
  EXPECT_EQ(measured.code(), Code::kUnavailable);
  EXPECT_THAT(measured.message(), AllOf(HasSubstr(kQuery), HasSubstr("no answer for row 2")));
}

}  // namespace
}  // namespace choral::lora
