#include "lora/stacked/lora_batch_processor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace choral::lora {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

AdapterTensor counting(int64_t rows, int64_t cols, float first) {
  auto tensor = Tensor::allocate(DType::kF32, {rows, cols});
  EXPECT_TRUE(tensor.ok());
  float value = first;
  for (float& v : tensor->as<float>()) v = value++;
  return AdapterTensor(std::move(tensor).value());
}

LoRALayerWeights weights(int64_t rank, float scaling, float first, int64_t in = 3, int64_t out = 2) {
  LoRALayerWeights w;
  w.module_name = "model.layers.0.mlp.up_proj";
  w.rank = rank;
  w.scaling = scaling;
  w.lora_a = counting(rank, in, first);
  w.lora_b = counting(out, rank, -first);
  return w;
}

Result<LoRABatch> prepare(std::vector<int32_t> ids, std::vector<int64_t> lengths, const std::vector<ActiveLoRA>& active) {
  return LoRABatchProcessor::prepare_batch(ids, lengths, active);
}

TEST(LoRABatchProcessor, StacksWhatTheBatchNamesPaddedToItsLargestRank) {
  const LoRALayerWeights five = weights(2, 0.5F, 1), nine = weights(1, 2.0F, 100), other = weights(7, 1.0F, 1000);
  const auto batch = prepare({9, 0, 5, 9}, {2, 1, 3, 1}, {{9, &nine}, {7, &other}, {5, &five}});
  ASSERT_TRUE(batch.ok()) << batch.status().message();
  EXPECT_THAT(batch->lora_ids, ElementsAre(5, 9));  // 7, of rank 7, is not named
  EXPECT_THAT(batch->ranks, ElementsAre(2, 1));
  EXPECT_THAT(batch->scalings, ElementsAre(0.5F, 2.0F));
  EXPECT_EQ(batch->max_rank, 2);
  EXPECT_EQ(batch->a_stack.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(batch->b_stack.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(batch->a_stack.as<float>(), ElementsAre(1, 2, 3, 4, 5, 6, 100, 101, 102, 0, 0, 0));
  EXPECT_THAT(batch->b_stack.as<float>(), ElementsAre(-1, 0, 1, 2, -100, 0, -99, 0));
  EXPECT_THAT(batch->token_indices, ElementsAre(1, 1, -1, 0, 0, 0, 1));
  EXPECT_THAT(batch->sequence_indices, ElementsAre(1, -1, 0, 1));
  EXPECT_THAT(batch->sequence_starts, ElementsAre(0, 2, 3, 6));
  EXPECT_THAT(batch->sequence_lengths, ElementsAre(2, 1, 3, 1));
  EXPECT_EQ(batch->token_count, 7);
  EXPECT_EQ(batch->batches(), 4);
  EXPECT_EQ(batch->max_sequence_length, 3);
  EXPECT_FALSE(batch->no_lora);
  const TensorView view = LoRABatch::view_of(batch->sequence_lengths);
  EXPECT_EQ(view.dtype, DType::kI32);
  EXPECT_EQ(view.shape, (Shape{4}));
}

TEST(LoRABatchProcessor, AnAdapterThatLeavesTheModuleAloneAddsNothing) {
  const LoRALayerWeights five = weights(2, 0.5F, 1);
  const auto batch = prepare({7, 5}, {1, 2}, {{7, nullptr}, {5, &five}});
  ASSERT_TRUE(batch.ok());
  EXPECT_THAT(batch->token_indices, ElementsAre(-1, 0, 0));
  const auto none = prepare({7, 0}, {1, 2}, {{7, nullptr}, {5, &five}});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->no_lora);
  EXPECT_TRUE(none->a_stack.empty());
  EXPECT_THAT(none->token_indices, ElementsAre(-1, -1, -1));
  EXPECT_THAT(none->lora_ids, IsEmpty());
}

TEST(LoRABatchProcessor, ScalesEachRowOfTheMiddleByItsAdapters) {
  const LoRALayerWeights five = weights(2, 0.5F, 1), nine = weights(1, 2.0F, 100);
  const auto batch = prepare({9, 0, 5}, {1, 1, 1}, {{9, &nine}, {5, &five}});
  ASSERT_TRUE(batch.ok());
  std::vector<float> middle = {1, 2, 3, 4, 5, 6};
  batch->scale_middle({middle.data(), 3, 2});
  EXPECT_THAT(middle, ElementsAre(2, 4, 3, 4, 2.5F, 3));
}

TEST(LoRABatchProcessor, RefusesWhatDoesNotFitOrCannotBeStacked) {
  const LoRALayerWeights five = weights(2, 0.5F, 1), wide = weights(2, 1.0F, 1, 4);
  const auto refusal = [&](std::vector<int32_t> ids, std::vector<int64_t> lengths, const std::vector<ActiveLoRA>& active) {
    const auto batch = prepare(std::move(ids), std::move(lengths), active);
    EXPECT_FALSE(batch.ok());
    return batch.ok() ? Status() : batch.status();
  };
  EXPECT_EQ(refusal({5, 6}, {1, 1}, {{5, &five}}).code(), Code::kNotFound);
  EXPECT_EQ(refusal({5}, {1, 1}, {{5, &five}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refusal({5}, {-1}, {{5, &five}}).code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal({5}, {1}, {{5, &five}, {5, &five}}).message(), HasSubstr("active twice"));
  EXPECT_THAT(refusal({5}, {1}, {{5, &five}, {0, &five}}).message(), HasSubstr("id 0"));
  const Status shapes = refusal({5, 6}, {1, 1}, {{5, &five}, {6, &wide}});
  EXPECT_THAT(shapes.message(), HasSubstr("adapter 6 has 4 inputs"));
  EXPECT_THAT(shapes.message(), HasSubstr("mlp.up_proj"));
  LoRALayerWeights wrong = weights(2, 1.0F, 1);
  wrong.lora_b = counting(2, 3, 0);
  EXPECT_THAT(refusal({5}, {1}, {{5, &wrong}}).message(), HasSubstr("B [2, 3]"));
  LoRALayerWeights dora = weights(2, 1.0F, 1), biased = dora, embedding = dora;
  dora.magnitude = counting(1, 2, 0);
  biased.bias = counting(1, 2, 0);
  embedding.is_embedding = true;
  for (const LoRALayerWeights* w : {&dora, &biased, &embedding}) {
    EXPECT_EQ(refusal({5}, {1}, {{5, w}}).code(), Code::kUnsupported);
    EXPECT_TRUE(prepare({0}, {1}, {{5, w}}).ok());  // nobody wants it
  }
}

}  // namespace
}  // namespace choral::lora
