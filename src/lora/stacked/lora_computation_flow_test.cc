// The whole way, from files to y, against the formula in double.
#include "lora/stacked/lora_computation_flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/gemm/gemm_float.h"
#include "lora/store/built_adapter_test.h"
#include "support/temp_dir.h"

namespace choral::lora {
namespace {

using ::testing::HasSubstr;
using namespace choral::lora::testing;  // kHidden, AdapterBuilder, small_targets()

constexpr const char* kQuery = "model.layers.0.self_attn.q_proj";
constexpr const char* kKey = "model.layers.0.self_attn.k_proj";

std::vector<float> random_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) v = values(random);
  return out;
}

// Adapters on disk: 5 of rank 2 (alpha 4), 9 of rank 3 with another alpha, both on q and v of the small model.
class LoRAComputationFlowTest : public ::testing::Test {
 protected:
  void write(const choral::testing::TempDir& folder, int64_t rank, double alpha, unsigned seed) {
    AdapterBuilder builder;
    builder.query_and_value(rank);
    for (auto& tensor : builder.tensors) tensor.values = random_values(static_cast<int64_t>(tensor.values.size()), seed++);
    folder.write(
        "adapter_config.json",
        fmt::format(R"({{"peft_type":"LORA","r":{},"lora_alpha":{},"target_modules":["q_proj","v_proj"]}})", rank, alpha));
    folder.write("adapter_model.safetensors", builder.safetensors());
    built_.push_back({builder, rank, alpha / static_cast<double>(rank)});
  }

  void SetUp() override {
    write(five_, 2, 4, 1);
    write(nine_, 3, 21, 100);
    requests_ = {{.lora_name = "five", .lora_int_id = 5, .lora_path = five_.path().string(), .long_lora_max_len = {}},
                 {.lora_name = "nine", .lora_int_id = 9, .lora_path = nine_.path().string(), .long_lora_max_len = {}}};
  }

  struct Built {
    AdapterBuilder builder;
    int64_t rank;
    double scaling;
  };

  // y[row] = W·x + b + s·B·(A·x) of the row's adapter, q_proj of layer 0, in double.
  std::vector<double> expected_row(const std::vector<float>& w, const std::vector<float>& bias, const float* x,
                                   const Built* built) {
    std::vector<double> y(kHidden);
    for (int64_t o = 0; o < kHidden; ++o) {
      y[static_cast<size_t>(o)] = bias[static_cast<size_t>(o)];
      for (int64_t k = 0; k < kHidden; ++k) y[static_cast<size_t>(o)] += double{w[static_cast<size_t>(o * kHidden + k)]} * x[k];
    }
    if (built == nullptr) return y;
    AdapterBuilder copy = built->builder;
    const auto& a = copy.at(std::string(kQuery) + ".lora_A.weight").values;
    const auto& b = copy.at(std::string(kQuery) + ".lora_B.weight").values;
    for (int64_t j = 0; j < built->rank; ++j) {
      double middle = 0;
      for (int64_t k = 0; k < kHidden; ++k) middle += double{a[static_cast<size_t>(j * kHidden + k)]} * x[k];
      for (int64_t o = 0; o < kHidden; ++o) {
        y[static_cast<size_t>(o)] += built->scaling * b[static_cast<size_t>(o * built->rank + j)] * middle;
      }
    }
    return y;
  }

  choral::testing::TempDir five_, nine_;
  std::vector<Built> built_;
  std::vector<LoRARequest> requests_;
  std::vector<LoRATarget> targets_ = small_targets();
  ThreadPool pool_{2};
  Arena arena_;
  kernels::Context ctx_{pool_, cpu_level(), arena_};
};

TEST_F(LoRAComputationFlowTest, MixedBatchEqualsTheFormula) {
  auto flow = LoRAComputationFlow::load(requests_, targets_, LoRAConfig{}, 16);
  ASSERT_TRUE(flow.ok()) << flow.status().message();
  ASSERT_NE(flow->find(9), nullptr);
  EXPECT_EQ(flow->find(9)->rank(), 3);
  EXPECT_EQ(flow->find(4), nullptr);

  const std::vector<int32_t> ids = {9, 0, 5, 0, 9};
  const std::vector<int64_t> lengths = {3, 2, 4, 0, 1};
  const std::vector<float> w = random_values(kHidden * kHidden, 7), bias = random_values(kHidden, 8),
                           x = random_values(10 * kHidden, 9);
  const TensorView w_view{reinterpret_cast<const std::byte*>(w.data()), DType::kF32, {kHidden, kHidden}, kCpuDevice};
  const kernels::WeightRows rows[] = {{w_view}};
  const auto base = kernels::pack_float(rows, DType::kF32, pool_);
  ASSERT_TRUE(base.ok());
  std::vector<float> y(10 * kHidden, 1e30F);
  const Status status =
      flow->forward(ctx_, kQuery, **base, bias, {ids, lengths}, {x.data(), 10, kHidden}, {y.data(), 10, kHidden});
  ASSERT_TRUE(status.ok()) << status.message();

  const Built* const of_row[] = {&built_[1], &built_[1], &built_[1], nullptr,    nullptr,
                                 &built_[0], &built_[0], &built_[0], &built_[0], &built_[1]};
  for (int64_t row = 0; row < 10; ++row) {
    const auto expected = expected_row(w, bias, x.data() + row * kHidden, of_row[row]);
    for (int64_t o = 0; o < kHidden; ++o) {
      EXPECT_NEAR(y[static_cast<size_t>(row * kHidden + o)], expected[static_cast<size_t>(o)], 2e-5) << row << " " << o;
    }
  }
  // Rows of the base are bit for bit those of a batch without adapters.
  std::vector<float> alone(10 * kHidden);
  const std::vector<int32_t> no_ids(5, 0);
  ASSERT_TRUE(
      flow->forward(ctx_, kQuery, **base, bias, {no_ids, lengths}, {x.data(), 10, kHidden}, {alone.data(), 10, kHidden}).ok());
  for (size_t i = 3 * kHidden; i < 5 * kHidden; ++i) EXPECT_EQ(y[i], alone[i]);
  for (size_t i = 0; i < 3 * kHidden; ++i) EXPECT_NE(y[i], alone[i]);
  EXPECT_EQ(flow->pool_stats().takes, 1);
  EXPECT_EQ(flow->pool_stats().fallbacks, 0);
}

TEST_F(LoRAComputationFlowTest, ARowIsTheSameWhateverSharesItsBatch) {
  auto flow = LoRAComputationFlow::load(requests_, targets_, LoRAConfig{}, 16);
  ASSERT_TRUE(flow.ok());
  const std::vector<float> x = random_values(6 * kHidden, 3);
  const auto delta = [&](std::vector<int32_t> ids, std::vector<int64_t> lengths, int64_t first, int64_t count) {
    const auto batch = flow->prepare(kQuery, {ids, lengths});
    EXPECT_TRUE(batch.ok());
    std::vector<float> y(static_cast<size_t>(count * kHidden), 0.25F);
    EXPECT_TRUE(flow->add_delta(ctx_, *batch, {x.data() + first * kHidden, count, kHidden}, {y.data(), count, kHidden}).ok());
    return y;
  };
  // 5 has rank 2: alone its stacks have no padding, beside 9 they have.
  const auto alone = delta({5}, {2}, 2, 2);
  const auto among = delta({9, 5, 0, 9}, {2, 2, 1, 1}, 0, 6);
  for (size_t i = 0; i < 2 * kHidden; ++i) EXPECT_EQ(alone[i], among[2 * kHidden + i]);
  for (size_t i = 4 * kHidden; i < 5 * kHidden; ++i) EXPECT_EQ(among[i], 0.25F);
}

TEST_F(LoRAComputationFlowTest, AModuleThatNoAdapterTouchesIsTheBases) {
  auto flow = LoRAComputationFlow::load(requests_, targets_, LoRAConfig{}, 16);
  ASSERT_TRUE(flow.ok());
  const std::vector<int32_t> ids = {9, 5};
  const std::vector<int64_t> lengths = {1, 1};
  const auto batch = flow->prepare(kKey, {ids, lengths});
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(batch->no_lora);
}

TEST_F(LoRAComputationFlowTest, MoreTokensThanExpectedFallBackAndAnswerTheSame) {
  auto small = LoRAComputationFlow::load(requests_, targets_, LoRAConfig{}, 1),
       large = LoRAComputationFlow::load(requests_, targets_, LoRAConfig{}, 64);
  ASSERT_TRUE(small.ok() && large.ok());
  const std::vector<int32_t> ids = {5, 9};
  const std::vector<int64_t> lengths = {20, 20};
  const std::vector<float> x = random_values(40 * kHidden, 5);
  std::vector<float> y[2] = {std::vector<float>(40 * kHidden), std::vector<float>(40 * kHidden)};
  for (int i = 0; i < 2; ++i) {
    auto& flow = i == 0 ? *small : *large;
    const auto batch = flow.prepare(kQuery, {ids, lengths});
    ASSERT_TRUE(batch.ok());
    ASSERT_TRUE(flow.add_delta(ctx_, *batch, {x.data(), 40, kHidden}, {y[i].data(), 40, kHidden}).ok());
  }
  EXPECT_EQ(y[0], y[1]);
  EXPECT_EQ(small->pool_stats().fallbacks, 1);
  EXPECT_EQ(large->pool_stats().fallbacks, 0);
}

TEST_F(LoRAComputationFlowTest, RefusalsNameTheAdapterOrTheMatrix) {
  auto requests = requests_;
  requests[1].lora_path = (nine_.path() / "nowhere").string();
  const auto missing = LoRAComputationFlow::load(requests, targets_, LoRAConfig{}, 16);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.status().message(), HasSubstr("nine"));
  requests[1] = requests[0];
  EXPECT_EQ(LoRAComputationFlow::load(requests, targets_, LoRAConfig{}, 16).status().code(), Code::kAlreadyExists);
  LoRAConfig narrow;
  narrow.max_lora_rank = 2;
  EXPECT_FALSE(LoRAComputationFlow::load(requests_, targets_, narrow, 16).ok());

  auto flow = LoRAComputationFlow::load(requests_, targets_, LoRAConfig{}, 16);
  ASSERT_TRUE(flow.ok());
  const std::vector<int32_t> ids = {9, 4};
  const std::vector<int64_t> lengths = {1, 1};
  EXPECT_EQ(flow->prepare(kQuery, {ids, lengths}).status().code(), Code::kNotFound);
  const auto batch = flow->prepare(kQuery, {std::span(ids).first(1), std::span(lengths).first(1)});
  ASSERT_TRUE(batch.ok());
  std::vector<float> y(2 * kHidden), x(2 * kHidden);
  EXPECT_THAT(flow->add_delta(ctx_, *batch, {x.data(), 2, kHidden}, {y.data(), 1, kHidden}).message(), HasSubstr("x is [2, 8]"));
  EXPECT_THAT(flow->add_delta(ctx_, *batch, {x.data(), 1, kHidden}, {y.data(), 1, 7}).message(), HasSubstr("y is [1, 7]"));
}

}  // namespace
}  // namespace choral::lora
