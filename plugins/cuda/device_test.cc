// Memory, copies, streams and what kernels find wrong: on the emulated runtime, which runs everything as late as CUDA allows and
// faults whoever touches device memory outside of it, and on a real device where there is one.
#include "device.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// Of the device's pool: what is free of the device depends on other processes and on the driver.
uint64_t used_bytes(const OpenDevice& device) {
  uint64_t used = 0, free = 0, total = 0;
  EXPECT_EQ(device.handle->memory.used_bytes(&used), cudaSuccess);
  EXPECT_FINE(plugin().memory->capacity(device.handle, &free, &total));
  EXPECT_LE(used + free, total);
  return used;
}

TEST_F(DeviceTest, MemoryIsZeroAlignedAndGivenBack) {
  constexpr int64_t kBytes = 100000, kPiece = 512;  // in which it is given out
  OpenDevice device;
  const uint64_t before = used_bytes(device);
  for (int round = 0; round < 2; ++round) {
    void* memory = device.allocate(kBytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
    EXPECT_GE(used_bytes(device), before + kBytes);
    EXPECT_EQ(device.download<uint8_t>(memory, kBytes), std::vector<uint8_t>(kBytes));
    const std::vector<uint8_t> noise(kBytes, 0xEE);
    EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, memory, kBytes, noise.data(), kBytes, kBytes, 1).code, 0);
    device.release(memory);  // waits for the copy
    void* small = device.allocate(0);
    EXPECT_NE(small, nullptr);
    device.release(small);
  }
  device.allocate(1);  // runs what was queued to give memory back
  EXPECT_LE(used_bytes(device), before + kPiece);
}

struct Shape {
  int64_t row_bytes, rows, host_pitch, device_pitch;
};

class CopiesTest : public DeviceTest, public ::testing::WithParamInterface<Shape> {};

// To the device, on it, and back, from host memory that is gone as soon as the call returns.
TEST_P(CopiesTest, BringRowsWhole) {
  const auto [row_bytes, rows, host_pitch, device_pitch] = GetParam();
  OpenDevice device;
  const int64_t host_bytes = host_pitch * rows, device_bytes = device_pitch * rows;
  void* first = device.allocate(static_cast<uint64_t>(device_bytes));
  void* second = device.allocate(static_cast<uint64_t>(device_bytes));
  std::vector<uint8_t> sent(static_cast<size_t>(host_bytes));
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<uint8_t>(i * 131 + i / 251);
  {
    std::vector<uint8_t> gone = sent;
    EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, first, device_pitch, gone.data(), host_pitch, row_bytes, rows).code, 0);
    std::fill(gone.begin(), gone.end(), 0);
  }
  EXPECT_EQ(device.copy(CHORAL_DEVICE_TO_DEVICE, second, device_pitch, first, device_pitch, row_bytes, rows).code, 0);
  std::vector<uint8_t> back(sent.size(), 0x77);
  EXPECT_EQ(device.copy(CHORAL_DEVICE_TO_HOST, back.data(), host_pitch, second, device_pitch, row_bytes, rows).code, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const auto* at = back.data() + row * host_pitch;
    ASSERT_EQ(std::memcmp(at, sent.data() + row * host_pitch, static_cast<size_t>(row_bytes)), 0) << "row " << row;
    for (int64_t gap = row_bytes; gap < host_pitch; ++gap) ASSERT_EQ(at[gap], 0x77) << "what lies between rows is the host's";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CopiesTest,
                         ::testing::Values(Shape{1, 1, 1, 1}, Shape{64, 5, 64, 64}, Shape{64, 5, 100, 80}, Shape{12, 3, 12, 64},
                                           Shape{3 << 20, 5, 3 << 20, 3 << 20},         // a row a piece
                                           Shape{5 << 20, 3, (5 << 20) + 64, 5 << 20},  // rows in pieces
                                           Shape{1000, 13000, 1000, 1024}));            // many rows a piece, many pieces

// Another thread fills half of a block, over more than a ring of pinned memory, while this one works on the other half, takes
// memory and gives some back.
TEST_F(DeviceTest, AnotherThreadCopiesBesideTheDevicesOwn) {
  ASSERT_NE(plugin().memory->copies_beside, 0);
  OpenDevice device;
  constexpr size_t kHalf = 20 << 20;
  auto* block = static_cast<uint8_t*>(device.allocate(2 * kHalf));
  choral_stream* beside = nullptr;
  EXPECT_FINE(plugin().memory->stream_create(device.handle, &beside));
  const std::vector<uint8_t> theirs(kHalf, 0x5A);
  int failures = 0;
  std::thread other([&] {
    constexpr int64_t kPiece = 1 << 20;
    for (size_t at = 0; at < kHalf; at += kPiece) {
      const choral_copy piece{
          CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, block + at, kPiece, theirs.data() + at, kPiece, kPiece, 1};
      failures += seen(plugin().memory->copy(device.handle, beside, &piece)).code != 0;
    }
    failures += seen(plugin().memory->stream_synchronize(device.handle, beside)).code != 0;
  });
  const std::vector<uint8_t> ours(1 << 16, 0xA5);
  const auto bytes = std::ssize(ours);
  for (int i = 0; i < 50; ++i) {
    void* taken = device.allocate(1000);
    EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, block + kHalf, bytes, ours.data(), bytes, bytes, 1).code, 0);
    EXPECT_EQ(device.download<uint8_t>(block + kHalf, ours.size()), ours);
    device.release(taken);
  }
  other.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(device.download<uint8_t>(block, kHalf), theirs) << "on every stream, once theirs was waited for";
  EXPECT_EQ(device.download<uint8_t>(block + kHalf, ours.size()), ours);
  plugin().memory->stream_destroy(device.handle, beside);
}

TEST_F(DeviceTest, CopiesOfNothingAreFineAndBadOnesAreRefused) {
  OpenDevice device;
  std::vector<uint8_t> host(64);
  EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, nullptr, 0, nullptr, 0, 0, 5).code, 0);
  EXPECT_EQ(device.copy(CHORAL_DEVICE_TO_HOST, nullptr, 0, nullptr, 0, 16, 0).code, 0);
  void* memory = device.allocate(64);
  EXPECT_THAT(device.copy(7, memory, 64, host.data(), 64, 64, 1).message, HasSubstr("unknown kind"));
  EXPECT_THAT(device.copy(CHORAL_HOST_TO_DEVICE, memory, 8, host.data(), 8, 16, 2).message, HasSubstr("rows overlap"));
  EXPECT_THAT(device.copy(CHORAL_HOST_TO_DEVICE, memory, 64, host.data(), 64, -1, 1).message, HasSubstr("not negative"));
  EXPECT_THAT(device.copy(CHORAL_HOST_TO_DEVICE, memory, 64, nullptr, 64, 64, 1).message, HasSubstr("no memory is given"));
  EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, memory, 64, host.data(), 64, 64, 1).code, 0) << "a refusal changes nothing";
}

// Of one thread, as when a model is loaded: each call finds its own device.
TEST_F(DeviceTest, SeveralTakeTurns) {
  const Emulation emulation("devices=2");
  if (device_count() < 2) GTEST_SKIP() << "there is one device";
  OpenDevice first(0), second(1);
  const uint64_t before = used_bytes(first);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::vector<float>> rows;
    std::vector<void*> outs;
    for (OpenDevice* device : {&first, &second}) {
      rows.emplace_back(16, static_cast<float>(10 * round + std::ssize(rows)));
      void* x = device->upload(rows.back());
      void* ids = device->upload(std::vector<int32_t>{0});
      outs.push_back(device->allocate(16 * sizeof(float)));
      const choral_take_rows_args args{CHORAL_HEADER(choral_take_rows_args), matrix(x, 1, 16), static_cast<const int32_t*>(ids),
                                       matrix(outs.back(), 1, 16)};
      EXPECT_EQ(device->run("take_rows", &args).code, 0);
    }
    EXPECT_EQ(first.download<float>(outs[0], 16), rows[0]);
    EXPECT_EQ(second.download<float>(outs[1], 16), rows[1]);
  }
  const uint64_t grown = used_bytes(first);
  EXPECT_GT(grown, before);
  second.allocate(1 << 20);
  EXPECT_EQ(used_bytes(first), grown) << "the other's memory is its own";
}

TEST_F(DeviceTest, WhatLiesOnTheDeviceIsCheckedThere) {
  OpenDevice device;
  void* x = device.upload(std::vector<float>(16, 1));
  void* out = device.allocate(16 * sizeof(float));
  void* rows = device.upload(std::vector<int32_t>{99});
  const choral_take_rows_args args{CHORAL_HEADER(choral_take_rows_args), matrix(x, 1, 16), static_cast<const int32_t*>(rows),
                                   matrix(out, 1, 16)};
  EXPECT_EQ(device.run("take_rows", &args).code, 0);
  const auto failed = seen(plugin().memory->stream_synchronize(device.handle, device.stream));
  EXPECT_EQ(failed.code, CHORAL_INVALID_ARGUMENT);
  EXPECT_THAT(failed.message, HasSubstr("an id that is no row"));
  EXPECT_FINE(plugin().memory->stream_synchronize(device.handle, device.stream));  // it was told
}

TEST_F(DeviceTest, StatesItsPeaks) {
  OpenDevice device;
  choral_peaks peaks{};
  peaks.header = CHORAL_HEADER(choral_peaks);
  EXPECT_FINE(plugin().measure_peaks(device.handle, device.stream, &peaks));
  EXPECT_GT(peaks.read_bytes_per_s, 0);
  EXPECT_GT(peaks.copy_bytes_per_s, 0);
  EXPECT_GT(peaks.f32_ops_per_s, 0);
  EXPECT_GT(peaks.bf16_ops_per_s, 0);
  EXPECT_GT(peaks.int8_ops_per_s, 0);
  EXPECT_EQ(peaks.header.struct_size, sizeof peaks);

  choral_peaks of_older_host{};  // which knows but the first
  of_older_host.header = CHORAL_HEADER(choral_peaks);
  of_older_host.header.struct_size = offsetof(choral_peaks, copy_bytes_per_s);
  EXPECT_FINE(plugin().measure_peaks(device.handle, device.stream, &of_older_host));
  EXPECT_GT(of_older_host.read_bytes_per_s, 0);
  EXPECT_EQ(of_older_host.copy_bytes_per_s, 0);
}

}  // namespace
}  // namespace choral_cuda
