// What is said of machines without a device that can be used.
#include <cstddef>
#include <cstring>

#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Probe, FindsTheDevice) {
  choral_probe probe{};
  probe.header = CHORAL_HEADER(choral_probe);
  EXPECT_FINE(plugin().probe(&probe));
  EXPECT_EQ(probe.device_count, 1);
  EXPECT_GT(probe.score, 0);
  EXPECT_EQ(probe.memory_bytes, uint64_t{8} << 30);
  EXPECT_STREQ(probe.device_name, "emulated CUDA device");
  EXPECT_EQ(probe.host_accessible, 0);
}

TEST(Probe, SaysWhyThereIsNone) {
  const auto reason = [](const char* faults) {
    const Emulation broken(faults);
    return probe_reason();
  };
  EXPECT_THAT(reason("driver=0"), AllOf(HasSubstr("no NVIDIA driver"), HasSubstr("libcuda.so.1")));
  EXPECT_THAT(reason("driver=11040"), AllOf(HasSubstr("too old"), HasSubstr("CUDA 11.4"), HasSubstr("driver 580")));
  EXPECT_THAT(reason("devices=0"), HasSubstr("no device"));
  EXPECT_THAT(reason("capability=75"), AllOf(HasSubstr("emulated CUDA device has compute capability 7.5"), HasSubstr("8.0")));
  EXPECT_THAT(reason("pools=0"), HasSubstr("memory pools"));
  EXPECT_THAT(reason("fail=cudaGetDeviceCount,with=3"), HasSubstr("initialization error (cudaErrorInitializationError)"));
  EXPECT_THAT(reason("fail=cudaGetDeviceProperties,with=999"), HasSubstr("does not say what it is"));
  EXPECT_EQ(reason(""), "");
}

TEST(Probe, ADeviceThatIsGoneSinceIsNotOpened) {
  const Emulation broken("driver=0");
  choral_device_config config{};
  config.header = CHORAL_HEADER(choral_device_config);
  choral_device* device = nullptr;
  const auto refused = seen(plugin().open_device(&config, &device));
  EXPECT_EQ(refused.code, CHORAL_UNAVAILABLE);
  EXPECT_THAT(refused.message, HasSubstr("no NVIDIA driver"));
  EXPECT_EQ(device, nullptr);
}

// An older host's struct is shorter; nothing beyond it is written.
TEST(Probe, WritesNoMoreThanTheHostKnows) {
  choral_probe probe;
  std::memset(&probe, 0x5A, sizeof probe);
  probe.header = {offsetof(choral_probe, memory_bytes), CHORAL_ABI_MAJOR, 0};
  EXPECT_FINE(plugin().probe(&probe));
  EXPECT_EQ(probe.device_count, 1);
  EXPECT_EQ(probe.memory_bytes, 0x5A5A5A5A5A5A5A5A);
}

}  // namespace
}  // namespace choral_cuda
