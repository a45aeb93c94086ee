#include "kernel_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace choral_cuda {

Shared<float> random_floats(int64_t count, uint32_t seed, float scale) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> between(-scale, scale);
  Shared<float> values(count);
  for (float& x : values) x = between(random);
  return values;
}

TestMatrix::TestMatrix(int64_t rows, int64_t cols, int64_t gap)
    : rows_(rows), cols_(cols), stride_(cols + gap), data_(rows * stride_, std::numeric_limits<float>::quiet_NaN()) {}

TestMatrix& TestMatrix::fill(uint32_t seed, float scale) {
  const auto values = random_floats(rows_ * cols_, seed, scale);
  for (int64_t i = 0; i < rows_; ++i) std::copy_n(values.begin() + i * cols_, cols_, &at(i, 0));
  return *this;
}

void TestMatrix::set_row(int64_t i, const std::vector<float>& values) {
  std::memcpy(&at(i, 0), values.data(), values.size() * sizeof(float));
}

choral_matrix TestMatrix::view() { return rows_from(0, rows_); }
choral_matrix TestMatrix::rows_from(int64_t begin, int64_t count) {
  return {data_.data() + begin * stride_, count, cols_, stride_, CHORAL_F32, 0};
}

bool TestMatrix::gaps_are_whole() const {
  for (int64_t i = 0; i < rows_; ++i) {
    for (int64_t j = cols_; j < stride_; ++j) {
      if (!std::isnan(at(i, j))) return false;
    }
  }
  return true;
}

choral_vector vector_of(const Shared<float>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), CHORAL_F32, 0};
}

TestLaunch::TestLaunch(size_t scratch_bytes, int sm_count, size_t block_shared_bytes)
    : scratch_(scratch_bytes, 0xff), sm_count_(sm_count), block_shared_bytes_(block_shared_bytes) {}
Launch TestLaunch::get() { return {nullptr, sm_count_, scratch_.data(), scratch_.size(), fault_.data(), block_shared_bytes_}; }

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_near(float got, double wanted, double tolerance, int64_t row, int64_t col) {
  EXPECT_LE(std::abs(got - wanted), tolerance) << "at [" << row << ", " << col << "]: " << got << " instead of " << wanted;
}

}  // namespace choral_cuda
