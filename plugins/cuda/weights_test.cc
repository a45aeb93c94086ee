// Weights on their way to the device and back: parts and orders, large ones in many pieces, rows read by several threads.
#include <cmath>
#include <thread>

#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::HasSubstr;

// What lies between two calls is host memory that the plug-in may not keep.
struct Matrix {
  int64_t rows, cols;
  std::vector<float> values;

  Matrix(int64_t r, int64_t c) : rows(r), cols(c), values(static_cast<size_t>(r * c)) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2003) - 1001) / 1001.0F;
  }
  float at(int64_t row, int64_t col) const { return values[static_cast<size_t>(row * cols + col)]; }
};

class WeightsTest : public DeviceTest {};

choral_weight describe(const choral_weight_part* parts, int64_t count, int64_t cols) {
  choral_weight weight{};
  weight.header = CHORAL_HEADER(choral_weight);
  weight.stored_dtype = weight.dtype = CHORAL_F32;
  weight.cols = cols;
  weight.parts = parts;
  weight.part_count = count;
  return weight;
}

TestStatus prepack(OpenDevice& device, const choral_weight& weight, choral_packed** packed) {
  return seen(plugin().weights->prepack(device.handle, device.stream, &weight, packed, nullptr));
}

choral_packed* packed_whole(OpenDevice& device, Matrix matrix) {
  const choral_weight_part part{matrix.values.data(), matrix.rows, matrix.cols * 4, nullptr};
  choral_packed* packed = nullptr;
  const auto status = prepack(device, describe(&part, 1, matrix.cols), &packed);
  EXPECT_EQ(status.code, 0) << status.message;
  std::fill(matrix.values.begin(), matrix.values.end(), NAN);
  return packed;
}

std::vector<float> read_row(OpenDevice& device, const choral_packed* packed, int64_t row, int64_t cols) {
  std::vector<float> out(static_cast<size_t>(cols));
  EXPECT_FINE(plugin().weights->read_row(device.handle, packed, row, out.data()));
  return out;
}

void expect_row(const std::vector<float>& got, const Matrix& matrix, int64_t row) {
  for (int64_t col = 0; col < matrix.cols; ++col)
    ASSERT_EQ(got[static_cast<size_t>(col)], matrix.at(row, col)) << row << ", " << col;
}

TEST_F(WeightsTest, PartsAreStackedInTheirOrders) {
  OpenDevice device;
  const Matrix first(20, 70), second(9, 70);
  const std::vector<int32_t> order{8, 0, 3};
  const choral_weight_part parts[] = {{first.values.data(), 20, 70 * 4, nullptr},
                                      {second.values.data(), 3, 70 * 4, order.data()}};
  choral_packed* packed = nullptr;
  ASSERT_EQ(prepack(device, describe(parts, 2, 70), &packed).code, 0);
  for (int64_t row = 0; row < 20; ++row) expect_row(read_row(device, packed, row, 70), first, row);
  for (int64_t row = 0; row < 3; ++row)
    expect_row(read_row(device, packed, 20 + row, 70), second, order[static_cast<size_t>(row)]);
  std::vector<float> out(70);
  EXPECT_THAT(seen(plugin().weights->read_row(device.handle, packed, 23, out.data())).message, HasSubstr("row 23 of 23"));
  plugin().weights->release(device.handle, packed);
}

// Three chunks of pinned memory and more.
TEST_F(WeightsTest, LargeOnesGoInPiecesAndRowsAreReadByManyThreads) {
  OpenDevice device;
  const Matrix matrix(1100, 4000);
  choral_packed* packed = packed_whole(device, matrix);
  choral_packed* small = packed_whole(device, Matrix(5, 16));
  std::vector<std::thread> readers;
  for (int64_t begin = 0; begin < 4; ++begin) {
    readers.emplace_back([&, begin] {
      for (int64_t row = begin; row < matrix.rows; row += 61) {
        expect_row(read_row(device, packed, row, matrix.cols), matrix, row);
        expect_row(read_row(device, small, row % 5, 16), Matrix(5, 16), row % 5);
      }
    });
  }
  for (auto& reader : readers) reader.join();
  plugin().weights->release(device.handle, packed);
  plugin().weights->release(device.handle, small);
}

TEST_F(WeightsTest, AreMultipliedAsTheyWereGiven) {
  OpenDevice device;
  const Matrix w(37, 130), x(3, 130);
  choral_packed* packed = packed_whole(device, w);
  void* y = device.allocate(3 * 37 * sizeof(float));
  choral_matmul_args args{};
  args.header = CHORAL_HEADER(choral_matmul_args);
  args.weight = packed;
  args.x = matrix(device.upload(x.values), 3, 130);
  args.y = matrix(y, 3, 37);
  ASSERT_EQ(device.run("matmul", &args).code, 0);
  const auto got = device.download<float>(y, 3 * 37);
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t n = 0; n < 37; ++n) {
      double wanted = 0;
      for (int64_t k = 0; k < 130; ++k) wanted += static_cast<double>(x.at(row, k)) * w.at(n, k);
      EXPECT_NEAR(got[static_cast<size_t>(row * 37 + n)], wanted, 1e-4) << row << ", " << n;
    }
  }
  args.x.cols = 129;
  EXPECT_THAT(device.run("matmul", &args).message, HasSubstr("do not fit"));
  args.x.dtype = CHORAL_BF16;
  EXPECT_EQ(device.run("matmul", &args).code, CHORAL_UNSUPPORTED);
  plugin().weights->release(device.handle, packed);
}

TEST_F(WeightsTest, BadDescriptionsAreRefused) {
  OpenDevice device;
  const Matrix matrix(4, 64);
  const int32_t negative[] = {-1};
  const auto refuse = [&](auto&& spoil) {
    choral_weight_part part{matrix.values.data(), 4, 64 * 4, nullptr};
    choral_weight weight = describe(&part, 1, 64);
    spoil(weight, part);
    choral_packed* packed = nullptr;
    const auto status = prepack(device, weight, &packed);
    EXPECT_EQ(packed, nullptr);
    return status;
  };
  EXPECT_EQ(refuse([](auto& w, auto&) { w.cols = 0; }).code, CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](auto& w, auto&) { w.part_count = 0; }).code, CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](auto&, auto& part) { part.row_bytes = 255; }).code, CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](auto&, auto& part) { part.rows = int64_t{1} << 40; }).code, CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([&](auto&, auto& part) { part.order = negative, part.rows = 1; }).code, CHORAL_INVALID_ARGUMENT);
  EXPECT_EQ(refuse([](auto& w, auto&) { w.stored_dtype = 99; }).code, CHORAL_UNSUPPORTED);
  EXPECT_EQ(refuse([](auto& w, auto&) { w.scale_count = 3; }).code, CHORAL_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace choral_cuda
