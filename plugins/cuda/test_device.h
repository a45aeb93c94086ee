// A host of a few lines for the plug-in's own tests, and a device that is opened through its table, as Choral does it.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "choral/plugin.h"

namespace choral_cuda {

// A status as this host keeps it; it belongs to the test once it was seen.
struct TestStatus {
  int32_t code = 0;
  std::string message;
};
// Code 0: null was given.
TestStatus seen(choral_status* status);

#define EXPECT_FINE(call)                        \
  do {                                           \
    const auto status = seen(call);              \
    EXPECT_EQ(status.code, 0) << status.message; \
  } while (false)

// What is broken about the emulated device while this lives.
class Emulation {
 public:
  explicit Emulation(const std::string& faults) { setenv("CHORAL_CUDA_EMULATION", faults.c_str(), 1); }
  ~Emulation() { unsetenv("CHORAL_CUDA_EMULATION"); }
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;
};

const choral_plugin& plugin();
std::vector<std::string> take_log();  // what it told the host since the last call
std::string probe_reason();           // empty: there is a device
int device_count();

class OpenDevice {
 public:
  explicit OpenDevice(int index = 0);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  choral_device* handle = nullptr;
  choral_stream* stream = nullptr;

  void* allocate(uint64_t bytes);  // given back at the end, unless by release()
  void release(void* memory);
  TestStatus copy(int32_t kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                  int64_t rows);
  template <class T>
  void* upload(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    void* memory = allocate(static_cast<uint64_t>(bytes));
    EXPECT_EQ(copy(CHORAL_HOST_TO_DEVICE, memory, bytes, values.data(), bytes, bytes, 1).code, 0);
    return memory;
  }
  template <class T>
  std::vector<T> download(const void* memory, size_t count) {
    std::vector<T> values(count);
    const auto bytes = static_cast<int64_t>(count * sizeof(T));
    const auto status = copy(CHORAL_DEVICE_TO_HOST, values.data(), bytes, memory, bytes, bytes, 1);
    EXPECT_EQ(status.code, 0) << status.message;
    return values;
  }
  TestStatus run(const std::string& op, const void* args);

 private:
  std::vector<void*> memory_;
};

// On the emulated device, or on a real one: without it these tests are skipped.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string reason = probe_reason();
    if (reason.empty()) return;
    if (std::string(plugin().name) != "cuda") FAIL() << reason;
    GTEST_SKIP() << reason;
  }
};

choral_matrix matrix(void* data, int64_t rows, int64_t cols);

}  // namespace choral_cuda
