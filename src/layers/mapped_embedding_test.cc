// A table that stays in its file: rows as they lie there, nothing in memory, and an error once the file is another.
#include "layers/mapped_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/float16.h"
#include "io/safetensors_writer.h"
#include "layers/weights_test.h"
#include "platform/cpu_context_test.h"
#include "support/temp_dir.h"

namespace choral::layers {
namespace {

constexpr int64_t kVocab = 6, kWidth = 5;

class FileWeights : public quant::WeightSource {
 public:
  FileWeights(std::shared_ptr<const io::Checkpoint> checkpoint, quant::WeightRequest request)
      : checkpoint_(std::move(checkpoint)), request_(request) {}
  bool contains(const std::string& name) const override { return checkpoint_->contains(name); }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape>) override {
    return checkpoint_->find(name);
  }
  void release(const std::string& name) override { checkpoint_->release(name); }
  const quant::WeightRequest& request() const override { return request_; }
  std::shared_ptr<const io::Checkpoint> checkpoint() const override { return checkpoint_; }

 private:
  std::shared_ptr<const io::Checkpoint> checkpoint_;
  quant::WeightRequest request_;
};

class MappedEmbeddingTest : public ::testing::Test {
 protected:
  MappedEmbeddingTest() {
    auto table = *Tensor::allocate(DType::kF32, {kVocab, kWidth});
    for (int64_t i = 0; i < kVocab * kWidth; ++i) table.as<float>()[i] = static_cast<float>(i) + 1.0F / 3;
    const std::vector<io::TensorToWrite> all{{"table.weight", table.view()}};
    CHORAL_CHECK(io::write_safetensors(file_, all).ok(), "the file is written");
  }
  Builder builder() { return {cpu_.session(), *quant_config_, ops_, overrides_}; }
  std::vector<float> rows(const MappedEmbedding& table, std::vector<int32_t> ids) {
    std::vector<float> out(ids.size() * kWidth, -1);
    ForwardBatch batch;
    batch.token_ids = platform::place_indices(*cpu_, std::span<const int32_t>(ids));
    const MatrixView<float> y(out.data(), std::ssize(ids), kWidth);
    table.forward(*cpu_, batch, y, false, y);
    return out;
  }

  testing::TempDir folder_;
  std::filesystem::path file_ = folder_.path() / "model.safetensors";
  platform::testing::CpuContext cpu_;
  platform::LayerOverrides overrides_;
  platform::CustomOpConfig ops_;
  std::unique_ptr<quant::QuantConfig> quant_config_ = *quant::make_quant_config({}, "auto");
};

TEST_F(MappedEmbeddingTest, RowsAreReadWhereTheyLie) {
  for (const bool rounded : {false, true}) {
    auto b = builder();
    MappedEmbedding table(b, {"table", kVocab, kWidth});
    {
      FileWeights weights(*io::Checkpoint::open(file_), {.as_stored = !rounded, .convert_to = DType::kBF16});
      ASSERT_TRUE(table.load_weights(weights).ok());
      EXPECT_EQ(table.expected_bytes(weights.request()), 0);
      ASSERT_TRUE(table.process_weights_after_loading(*cpu_, weights).ok());
    }  // the source is gone, and with it all that it holds but the file
    EXPECT_EQ(table.weight_bytes(), 0);
    EXPECT_EQ(table.mapped_bytes(), kVocab * kWidth * 4);
    const auto got = rows(table, {5, 0, 5, 99});
    for (int64_t i = 0; i < kWidth; ++i) {
      const float fifth = static_cast<float>(25 + i) + 1.0F / 3, first = static_cast<float>(i) + 1.0F / 3;
      EXPECT_EQ(got[i], rounded ? to_float(to_bfloat16(fifth)) : fifth);
      EXPECT_EQ(got[kWidth + i], rounded ? to_float(to_bfloat16(first)) : first);
      EXPECT_EQ(got[2 * kWidth + i], got[i]);
    }
    EXPECT_TRUE(cpu_.session().end_step({}).ok());
  }
}

TEST_F(MappedEmbeddingTest, AFileThatWasWrittenToFailsTheStep) {
  auto b = builder();
  MappedEmbedding table(b, {"table", kVocab, kWidth});
  FileWeights weights(*io::Checkpoint::open(file_), {});
  ASSERT_TRUE(table.load_weights(weights).ok());
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 8);
  rows(table, {5});
  const Status status = cpu_.session().end_step({});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("changed while it was read"));
}

TEST_F(MappedEmbeddingTest, WithoutAFileItIsCopied) {
  auto b = builder();
  MappedEmbedding table(b, {"table", kVocab, kWidth});
  PatternWeights weights;
  ASSERT_TRUE(table.load_weights(weights).ok());
  const std::vector<float> wanted = [&] {
    std::vector<float> row(kWidth);
    EXPECT_TRUE(b.lora_targets.back().base_row(3, row).ok());
    return row;
  }();
  ASSERT_TRUE(table.process_weights_after_loading(*cpu_, weights).ok());  // releases, which frees
  EXPECT_EQ(table.weight_bytes(), kVocab * kWidth * 4);
  EXPECT_EQ(table.mapped_bytes(), 0);
  EXPECT_EQ(rows(table, {3}), wanted);
}

}  // namespace
}  // namespace choral::layers
