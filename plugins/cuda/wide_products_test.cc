// What multiplies many rows: wgmma where it gives the bits of mma.sync, and nobody is left in doubt which.
#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class WideProductsTest : public DeviceTest {
 protected:
  static constexpr int64_t kRowsOfW = 300, kCols = 128, kRowsOfX = 70;

  static std::vector<float> values(int64_t count) {
    std::vector<float> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<float>(i * 7919 % 2003 - 1001) / 997.0F);
    return out;
  }
  // What the plug-in says of a bf16 weight's kernel.
  std::string prepack(OpenDevice& device) {
    const auto w = values(kRowsOfW * kCols);
    const choral_weight_part part{w.data(), kRowsOfW, kCols * 4, nullptr};
    choral_weight weight{};
    weight.header = CHORAL_HEADER(choral_weight);
    weight.stored_dtype = CHORAL_F32;
    weight.dtype = CHORAL_BF16;
    weight.cols = kCols;
    weight.parts = &part;
    weight.part_count = 1;
    choral_packed_facts facts{};
    facts.header = CHORAL_HEADER(choral_packed_facts);
    EXPECT_FINE(plugin().weights->prepack(device.handle, device.stream, &weight, &packed_, &facts));
    return facts.kernel;
  }
  std::vector<float> multiply(OpenDevice& device, const std::vector<float>& x) {
    const auto rows = static_cast<int64_t>(x.size()) / kCols;
    void* y = device.allocate(static_cast<uint64_t>(rows * kRowsOfW) * sizeof(float));
    choral_matmul_args args{};
    args.header = CHORAL_HEADER(choral_matmul_args);
    args.weight = packed_;
    args.x = matrix(device.upload(x), rows, kCols);
    args.y = matrix(y, rows, kRowsOfW);
    EXPECT_EQ(device.run("matmul", &args).code, 0);
    return device.download<float>(y, static_cast<size_t>(rows * kRowsOfW));
  }
  // A row of many and the same one alone.
  void expect_a_rows_own_bits(OpenDevice& device) {
    constexpr int64_t kRow = 41;
    const auto x = values(kRowsOfX * kCols), all = multiply(device, x);
    const auto alone = multiply(device, {x.begin() + kRow * kCols, x.begin() + (kRow + 1) * kCols});
    EXPECT_EQ(alone, std::vector<float>(all.begin() + kRow * kRowsOfW, all.begin() + (kRow + 1) * kRowsOfW));
  }
  void release(OpenDevice& device) { plugin().weights->release(device.handle, packed_); }

 private:
  choral_packed* packed_ = nullptr;
};

// On a device of compute capability 9.0 it fails where wgmma rounds otherwise, which is worth knowing.
TEST_F(WideProductsTest, AreWgmmasWhereThatHasTheBitsOfMmaSync) {
  take_log();
  OpenDevice device;
  const std::string kernel = prepack(device);
  const auto told = take_log();
  if (kernel.find("wgmma") == std::string::npos) {
    EXPECT_THAT(told, Not(Contains(HasSubstr("wgmma gives other bits"))));
    EXPECT_STREQ(plugin().name, "cuda") << "the emulated device has it";
  } else {
    EXPECT_THAT(kernel, HasSubstr("mma m16n8k16 of bf16, x as two planes; many rows by wgmma"));
    EXPECT_THAT(told, Contains(HasSubstr("many rows are multiplied by wgmma")));
  }
  expect_a_rows_own_bits(device);
  release(device);
}

TEST_F(WideProductsTest, AreMmaSyncsWhereWgmmaRoundsOtherwise) {
  if (std::string(plugin().name) == "cuda") GTEST_SKIP() << "a device is as it is";
  take_log();
  const Emulation other("wgmma=0");
  OpenDevice device;
  EXPECT_THAT(prepack(device), Not(HasSubstr("wgmma")));
  EXPECT_THAT(take_log(), Contains(HasSubstr("wgmma gives other bits on this device")));
  expect_a_rows_own_bits(device);
  release(device);
}

TEST_F(WideProductsTest, OlderAndNewerDevicesAreNotTried) {
  if (std::string(plugin().name) == "cuda") GTEST_SKIP() << "a device is as it is";
  for (const char* capability : {"capability=80", "capability=100"}) {
    take_log();
    const Emulation other(capability);
    OpenDevice device;
    EXPECT_THAT(prepack(device), Not(HasSubstr("wgmma")));
    EXPECT_THAT(take_log(), Not(Contains(HasSubstr("wgmma"))));
    release(device);
  }
}

}  // namespace
}  // namespace choral_cuda
