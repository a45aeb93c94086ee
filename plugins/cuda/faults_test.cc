// What becomes of errors of CUDA, which the emulated runtime gives on demand: each is an answer, in words, and the device is as
// before or says that it is gone.
#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Errors, ShortageSaysWhatIsAskedForAndFree) {
  const Emulation small("memory_mib=64");
  OpenDevice device;
  void* memory = nullptr;
  const auto refused = seen(plugin().memory->allocate(device.handle, uint64_t{80} << 20, &memory));
  EXPECT_EQ(refused.code, CHORAL_RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message, AllOf(HasSubstr("no room for 80.0 MiB"), HasSubstr("64.0 MiB are free"), HasSubstr("--kv-cache")));
  EXPECT_EQ(memory, nullptr);
  EXPECT_NE(device.allocate(uint64_t{32} << 20), nullptr) << "a refusal leaves the device as it was";
}

TEST(Errors, OfMemoryForAWeightAreAnAnswer) {
  const Emulation small("memory_mib=1");
  OpenDevice device;
  const std::vector<float> values(600 * 600);
  const choral_weight_part part{values.data(), 600, 600 * 4, nullptr};
  choral_weight weight{};
  weight.header = CHORAL_HEADER(choral_weight);
  weight.stored_dtype = weight.dtype = CHORAL_F32;
  weight.cols = 600;
  weight.parts = &part;
  weight.part_count = 1;
  choral_packed* packed = nullptr;
  const auto refused = seen(plugin().weights->prepack(device.handle, device.stream, &weight, &packed, nullptr));
  EXPECT_EQ(refused.code, CHORAL_RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message, HasSubstr("a more quantised model"));
  EXPECT_EQ(packed, nullptr);
}

TEST(Errors, OfWhatIsNoDeviceMemoryAreTheRuntimes) {
  OpenDevice device;
  std::vector<uint8_t> host(64);
  EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, host.data(), 64, host.data(), 64, 64, 1).code, CHORAL_INTERNAL)
      << "to what is no device memory: the runtime says so";
  void* memory = device.allocate(64);
  EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, memory, 64, host.data(), 64, 64, 1).code, 0) << "and goes on";
}

TEST(Errors, OfQueuedWorkComeOutWhereItIsWaitedForAndLast) {
  const Emulation broken("fail=launch,at=2,with=700");
  OpenDevice device;
  void* x = device.upload(std::vector<float>(16, 1));
  void* y = device.allocate(16 * sizeof(float));
  const choral_unary_args args{CHORAL_HEADER(choral_unary_args), matrix(x, 1, 16), matrix(y, 1, 16)};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(device.run("add", &args).code, 0) << "queued";
  const auto failed = seen(plugin().memory->stream_synchronize(device.handle, device.stream));
  EXPECT_EQ(failed.code, CHORAL_UNAVAILABLE);
  EXPECT_THAT(failed.message, AllOf(HasSubstr("an illegal memory access was encountered (cudaErrorIllegalAddress)"),
                                    HasSubstr("compute-sanitizer")));
  std::vector<float> host(16);
  EXPECT_EQ(device.run("add", &args).code, CHORAL_UNAVAILABLE);
  EXPECT_EQ(device.copy(CHORAL_DEVICE_TO_HOST, host.data(), 64, y, 64, 64, 1).code, CHORAL_UNAVAILABLE);
  void* memory = nullptr;
  EXPECT_EQ(seen(plugin().memory->allocate(device.handle, 64, &memory)).code, CHORAL_UNAVAILABLE);
  device.release(y);  // nothing to say, nothing to crash
}

TEST(Errors, OfOneCallAreThatCallsAlone) {
  const Emulation broken("fail=cudaMemcpyAsync,at=1,with=801");
  OpenDevice device;
  void* memory = device.allocate(64);
  std::vector<uint8_t> host(64);
  const auto failed = device.copy(CHORAL_HOST_TO_DEVICE, memory, 64, host.data(), 64, 64, 1);
  EXPECT_EQ(failed.code, CHORAL_INTERNAL);
  EXPECT_THAT(failed.message, AllOf(HasSubstr("copy to the device"), HasSubstr("cudaErrorNotSupported")));
  EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, memory, 64, host.data(), 64, 64, 1).code, 0);
}

// Every call of the runtime that opening a device takes, failing once: an error, and nothing left behind.
TEST(Errors, WhileOpeningLeaveNothing) {
  for (const char* call : {"cudaSetDevice", "cudaMemPoolCreate", "cudaMemPoolSetAttribute", "cudaStreamCreateWithFlags",
                           "cudaEventCreateWithFlags", "cudaDeviceGetAttribute"}) {
    const Emulation broken(std::string("with=3,fail=") + call);
    choral_device_config config{};
    config.header = CHORAL_HEADER(choral_device_config);
    choral_device* device = nullptr;
    const auto failed = seen(plugin().open_device(&config, &device));
    EXPECT_NE(failed.code, 0) << call;
    EXPECT_THAT(failed.message, HasSubstr("cudaErrorInitializationError")) << call;
    EXPECT_EQ(device, nullptr);
  }
}

TestStatus measure_peaks(const OpenDevice& device, choral_peaks* peaks) {
  *peaks = {};
  peaks->header = CHORAL_HEADER(choral_peaks);
  return seen(plugin().measure_peaks(device.handle, device.stream, peaks));
}

TEST(Errors, OfMemoryForMeasuringPeaksAreAnAnswer) {
  const Emulation small("memory_mib=1");
  OpenDevice device;
  void* most = device.allocate((1 << 20) - (64 << 10));
  choral_peaks peaks{};
  const auto refused = measure_peaks(device, &peaks);
  EXPECT_EQ(refused.code, CHORAL_RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.message, HasSubstr("no room for 128 KiB"));
  EXPECT_EQ(peaks.read_bytes_per_s, 0) << "a call that fails leaves its outputs as they were";
  device.release(most);
  EXPECT_EQ(measure_peaks(device, &peaks).code, 0);
  EXPECT_GT(peaks.read_bytes_per_s, 0);
}

// Each call that measuring makes, failing once: an error, nothing left behind, and the next measurement is right.
TEST(Errors, WhileMeasuringPeaksLeaveNothing) {
  struct Failure {
    const char* call;
    int at;  // what opening takes comes before
  };
  for (const Failure& failure : {Failure{"cudaEventElapsedTime", 1}, Failure{"cudaEventElapsedTime", 30}, Failure{"enqueue", 1},
                                 Failure{"enqueue", 13}, Failure{"cudaMemcpyAsync", 2}, Failure{"cudaEventSynchronize", 1}}) {
    const Emulation broken("with=801,at=" + std::to_string(failure.at) + ",fail=" + failure.call);
    OpenDevice device;
    choral_peaks peaks{};
    const auto failed = measure_peaks(device, &peaks);
    EXPECT_EQ(failed.code, CHORAL_INTERNAL) << failure.call;
    EXPECT_THAT(failed.message, AllOf(HasSubstr("measure_peaks"), HasSubstr("cudaErrorNotSupported"))) << failure.call;
    EXPECT_EQ(peaks.int8_ops_per_s, 0);
    EXPECT_EQ(measure_peaks(device, &peaks).code, 0) << failure.call;
    EXPECT_GT(peaks.int8_ops_per_s, 0);
  }
}

}  // namespace
}  // namespace choral_cuda
