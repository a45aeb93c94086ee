// What the kernels' tests share: memory that both sides see, matrices in it, filled at random, and a Launch. The same tests run
// in emulation (emulation/test_memory.cc) and on a GPU (device_test_memory.cc).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "kernels.h"

namespace choral_cuda {

void* allocate_shared(size_t bytes);
void release_shared(void* memory);
// What the launch gave, or what its work came to.
cudaError_t done(cudaError_t launched);
// Negative where nobody counts them: on a GPU.
int64_t launches_so_far();
bool device_has_wgmma();

template <class T>
struct SharedAllocator {
  using value_type = T;
  SharedAllocator() = default;
  template <class U>
  SharedAllocator(const SharedAllocator<U>&) {}  // NOLINT: as allocators are
  T* allocate(size_t count) { return static_cast<T*>(allocate_shared(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { release_shared(memory); }
  bool operator==(const SharedAllocator&) const = default;
};
template <class T>
using Shared = std::vector<T, SharedAllocator<T>>;

// Rows lie apart by more than their columns, and NaNs lie between them.
class TestMatrix {
 public:
  TestMatrix(int64_t rows, int64_t cols, int64_t gap = 4);
  TestMatrix& fill(uint32_t seed, float scale = 1.0f);

  float& at(int64_t row, int64_t col) { return data_[row * stride_ + col]; }
  float at(int64_t row, int64_t col) const { return data_[row * stride_ + col]; }
  std::vector<float> row(int64_t i) const { return {&data_[i * stride_], &data_[i * stride_] + cols_}; }
  void set_row(int64_t i, const std::vector<float>& values);
  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  choral_matrix view();
  choral_matrix rows_from(int64_t begin, int64_t count);
  // That kernels left the gaps alone.
  bool gaps_are_whole() const;

 private:
  int64_t rows_, cols_, stride_;
  Shared<float> data_;
};

Shared<float> random_floats(int64_t count, uint32_t seed, float scale = 1.0f);
choral_vector vector_of(const Shared<float>& values);

// A device with so many multiprocessors; scratch is exactly as large as asked for.
class TestLaunch {
 public:
  explicit TestLaunch(size_t scratch_bytes = 0, int sm_count = 4, size_t block_shared_bytes = 227 << 10);
  Launch get();
  Fault fault() const { return static_cast<Fault>(fault_[0]); }

 private:
  Shared<unsigned char> scratch_;
  int sm_count_;
  size_t block_shared_bytes_;
  Shared<int32_t> fault_{kNoFault};
};

// Bits, so that -0 is not 0 and NaN is itself.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);
void expect_near(float got, double wanted, double tolerance, int64_t row, int64_t col);

}  // namespace choral_cuda
