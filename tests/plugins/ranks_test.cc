// A model that ranks divide over devices: how many there may be, what is refused, and what becomes of a device that fails. That
// their answers are the bits of one device: tests/golden/ranks_test.cc.
#include "plugins/cuda_device.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class RanksOfDevicesTest : public PluginTest {
 protected:
  static EngineOptions divided(const std::string& device, int ranks = 2) {
    auto options = PluginTest::options(device);
    options.tensor_parallel_size = ranks;
    return options;
  }
  static std::string refusal(const EngineOptions& options) { return LLM::load(options).status().message(); }
};

TEST_F(RanksOfDevicesTest, EachHasADeviceOfItsOwn) {
  const auto llm = load(divided("ref_device"));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("tensor parallel: 2 ranks of this process with a device each")));
  expect_equal(answers(*llm), cpu_answers());
  EXPECT_THAT(refusal(divided("ref_device", 3)),
              AllOf(HasSubstr("rank 2 would have device ref_device:2"), HasSubstr("2 devices"), HasSubstr("--device cpu")));
  EXPECT_THAT(refusal(divided("ref_device:1")), HasSubstr("rank 1 would have device ref_device:2"));
  const Variable allowed("CHORAL_PLUGINS", "ref_device");
  EXPECT_THAT(refusal(divided("auto", 3)), HasSubstr("rank 2 would have device ref_device:2"))
      << "nor are some ranks the device's and some the CPU's";
}

TEST_F(RanksOfDevicesTest, RefuseWhatTheyDoNotHave) {
  auto shared_out = divided("ref_device");
  shared_out.fully_sharded_loras = true;
  EXPECT_THAT(refusal(shared_out), AllOf(HasSubstr("--fully-sharded-loras"), HasSubstr("ref_device")));
  auto on_host = divided("ref_device");
  on_host.kv_cache_dtype = "int8";
  EXPECT_THAT(refusal(on_host), AllOf(HasSubstr("has no cache of int8"), HasSubstr("--kv-cache-dtype")));
}

#ifdef CHORAL_TEST_CUDA
class RanksOnEmulatedCudaTest : public OnEmulatedCuda {};

TEST_F(RanksOnEmulatedCudaTest, ADeviceThatFailsEndsTheRequestsAndLeavesNoRankWaiting) {
  const Variable two("CHORAL_CUDA_EMULATION", "devices=2");
  auto options = PluginTest::options(cuda_device());
  options.tensor_parallel_size = 2;
  const auto llm = load(options);
  expect_equal(answers(*llm, 4), answers(*load(PluginTest::options("cpu")), 4));
  break_emulated_cuda("devices=2,fail=launch,at=1000,with=700");
  for (const auto& output : answers(*llm, 64)) {
    EXPECT_EQ(output.status.code(), Code::kUnavailable) << output.status.to_string();
    EXPECT_THAT(output.status.message(), HasSubstr("an illegal memory access was encountered"));
  }
  EXPECT_EQ(answers(*llm).front().status.code(), Code::kUnavailable);
}

TEST_F(RanksOnEmulatedCudaTest, EveryDevicePlansItsOwnMemoryAndTheLeastCounts) {
  const Variable small("CHORAL_CUDA_EMULATION", "devices=2,memory_mib=16");
  auto options = PluginTest::options(cuda_device());
  const auto tokens = [&](int ranks) {
    options.tensor_parallel_size = ranks;
    return load(options)->info().kv_cache_tokens;
  };
  const int64_t of_one = tokens(1), of_two = tokens(2);
  EXPECT_GT(of_two, of_one * 3 / 2) << "each has half of the heads' keys";
  options.tensor_parallel_size = 1;
  const auto other = load(options);  // takes memory of the first device
  EXPECT_LT(tokens(2), of_two / 2);
}
#endif

}  // namespace
}  // namespace choral::plugins
