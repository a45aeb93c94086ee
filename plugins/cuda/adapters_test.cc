// What a call of several projections' adapters may ask for, that a refused one has changed nothing, and that graphs keep it.
#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kRows = 2, kIn = 16, kRank = 8, kOut = 4, kSlots = 2, kProjections = 3;

class AdaptersTest : public DeviceTest {};

// Three projections of one x, all of ones; a row of slot 0 and one of none.
class Slices {
 public:
  OpenDevice device;

  choral_lora_slices_args shrink() { return args(a_, kRank, kIn); }
  choral_lora_slices_args expand() { return args(b_, kOut, kRank); }
  std::vector<float> middle(int64_t i) { return device.download<float>(middles_[i], kRows * kRank); }
  std::vector<float> y() { return device.download<float>(y_, kRows * kProjections * kOut); }

 private:
  void* ones(int64_t count) { return device.upload(std::vector<float>(static_cast<size_t>(count), 1)); }
  choral_lora_slices_args args(void* stack, int64_t rows, int64_t cols) {
    choral_lora_slices_args args{};
    args.header = CHORAL_HEADER(choral_lora_slices_args);
    args.x = matrix(x_, kRows, kIn);
    args.y = matrix(y_, kRows, kProjections * kOut);
    args.slot_of = static_cast<const int32_t*>(slots_);
    args.scaling = 1;
    args.add = 1;
    args.slice_count = kProjections;
    for (int64_t i = 0; i < kProjections; ++i) {
      args.slices[i].stack = {stack, kSlots, rows, cols, CHORAL_F32, 0};
      args.slices[i].middle = matrix(middles_[i], kRows, kRank);
      args.slices[i].y_begin = i * kOut;
    }
    return args;
  }

  void *x_ = ones(kRows * kIn), *a_ = ones(kSlots * kRank * kIn), *b_ = ones(kSlots * kOut * kRank);
  void* slots_ = device.upload(std::vector<int32_t>{0, -1});
  void* middles_[kProjections] = {ones(kRows * kRank), ones(kRows* kRank), ones(kRows* kRank)};
  void* y_ = ones(kRows * kProjections * kOut);
};

std::vector<float> row(const std::vector<float>& values, int64_t row) {
  const auto cols = static_cast<int64_t>(values.size()) / kRows;
  return {values.begin() + row * cols, values.begin() + (row + 1) * cols};
}

TEST_F(AdaptersTest, ProjectionsAreComputedTogether) {
  Slices slices;
  const auto shrink = slices.shrink(), expand = slices.expand();
  EXPECT_EQ(slices.device.run("lora_shrink", &shrink).code, 0);
  for (int64_t i = 0; i < kProjections; ++i) {
    EXPECT_THAT(row(slices.middle(i), 0), Each(16.0F));
    EXPECT_THAT(row(slices.middle(i), 1), Each(1.0F));
  }
  EXPECT_EQ(slices.device.run("lora_expand", &expand).code, 0);
  EXPECT_THAT(row(slices.y(), 0), Each(1.0F + 8 * 16.0F));
  EXPECT_THAT(row(slices.y(), 1), Each(1.0F));
}

// Each slice keeps the rules of the operator that it is by itself, the last one too.
TEST_F(AdaptersTest, ACallWithASliceThatDoesNotFitComputesNone) {
  Slices slices;
  const auto refused = [&](const char* op, const choral_lora_slices_args& args, const char* why) {
    EXPECT_THAT(slices.device.run(op, &args).message, AllOf(HasSubstr(op), HasSubstr(why)));
  };
  auto args = slices.shrink();
  args.slices[2].middle.cols = kRank - 1;
  refused("lora_shrink", args, "y is as wide as the rank");
  args = slices.shrink();
  args.slices[2].middle.rows = kRows - 1;
  refused("lora_shrink", args, "x [rows, k] and the stack do not fit");
  args = slices.shrink();
  args.slices[2].stack.dtype = CHORAL_BF16;
  refused("lora_shrink", args, "the stacks of slices have one type");
  args = slices.shrink();
  args.slot_of = nullptr;
  refused("lora_shrink", args, "the list of slots is missing");
  args.starts = static_cast<const int32_t*>(args.x.data);
  args.sequence_count = 1;
  refused("lora_shrink", args, "the list of slots is missing");
  args = slices.expand();
  args.slices[2].y_begin = 2 * kOut + 1;
  refused("lora_expand", args, "the slice lies within y's columns");
  for (const int64_t count : {-1, 0, 5}) {
    args = slices.expand();
    args.slice_count = count;
    refused("lora_expand", args, "there is no such number of slices");
  }
  for (int64_t i = 0; i < kProjections; ++i) EXPECT_THAT(slices.middle(i), Each(1.0F));
  EXPECT_THAT(slices.y(), Each(1.0F));
}

TEST_F(AdaptersTest, SlotsAreCheckedOnTheDevice) {
  Slices slices;
  auto args = slices.shrink();
  args.slices[1].stack.slots = 0;  // which is no work at all
  EXPECT_EQ(slices.device.run("lora_shrink", &args).code, 0);
  EXPECT_FINE(plugin().memory->stream_synchronize(slices.device.handle, slices.device.stream));
  args.slot_of = static_cast<const int32_t*>(slices.device.upload(std::vector<int32_t>{0, 2}));
  EXPECT_EQ(slices.device.run("lora_shrink", &args).code, 0);
  const auto failed = seen(plugin().memory->stream_synchronize(slices.device.handle, slices.device.stream));
  EXPECT_EQ(failed.code, CHORAL_INVALID_ARGUMENT);
  EXPECT_THAT(failed.message, HasSubstr("an adapter's slot"));
}

// A list of nothing but them becomes a graph, which adds what the calls add.
TEST_F(AdaptersTest, GraphsKeepThem) {
  Slices slices;
  const auto& worker = plugin().workers[0];
  choral_step step{};
  step.header = CHORAL_HEADER(choral_step);
  for (int i = 1; i <= 4; ++i) {
    EXPECT_FINE(worker.begin_step(slices.device.handle, slices.device.stream, &step));
    for (int layer = 0; layer < 2; ++layer) {
      const auto shrink = slices.shrink(), expand = slices.expand();
      EXPECT_EQ(slices.device.run("lora_shrink", &shrink).code, 0);
      EXPECT_EQ(slices.device.run("lora_expand", &expand).code, 0);
    }
    EXPECT_FINE(worker.end_step(slices.device.handle, slices.device.stream, nullptr));
    EXPECT_FINE(plugin().memory->stream_synchronize(slices.device.handle, slices.device.stream));
    EXPECT_THAT(row(slices.y(), 0), Each(1.0F + static_cast<float>(i) * 2 * 8 * 16));
  }
  worker.on_stop(slices.device.handle);
  EXPECT_THAT(take_log().back(), HasSubstr("1 CUDA graphs were captured, and launched 2 times"));
}

}  // namespace
}  // namespace choral_cuda
