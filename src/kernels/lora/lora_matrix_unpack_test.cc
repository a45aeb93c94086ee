// What read_a() and read_b() give is what shrink() and lora_expand() multiply by: unit vectors bring it out, exactly.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/lora/lora_matrix.h"

namespace choral::kernels {
namespace {

struct Stored {
  std::vector<std::byte> bytes;
  TensorView view;
};

Stored random_tensor(DType type, int64_t rows, int64_t cols, std::mt19937& random) {
  Stored out{std::vector<std::byte>(rows * row_bytes(type, cols)), {}};
  std::normal_distribution<float> normal;
  std::byte* to = out.bytes.data();
  const auto put = [&to](const auto& value) {
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  };
  for (int64_t i = 0; i < rows * cols; ++i) {
    if (type == DType::kQ8_0 && i % 32 == 0) put(to_float16(0.01F + std::abs(normal(random))).bits);
    if (type == DType::kQ8_0) put(static_cast<int8_t>(static_cast<int>(random() % 255) - 127));
    if (type == DType::kF32) put(normal(random));
    if (type == DType::kF16) put(to_float16(normal(random)).bits);
    if (type == DType::kBF16) put(to_bfloat16(normal(random)).bits);
  }
  out.view = {out.bytes.data(), type, {rows, cols}, kCpuDevice};
  return out;
}

struct Case {
  DType a, b;
  LoRAFormat format;
};

void expect_what_is_multiplied_by(const LoRAMatrix& matrix) {
  const int64_t in = matrix.in(), rank = matrix.rank(), out = matrix.out();
  std::vector<float> row(in), x(in), middle(rank);
  std::vector<float> columns(in * rank);  // [in][rank], by shrink
  for (int64_t k = 0; k < in; ++k) {
    std::fill(x.begin(), x.end(), 0.0F);
    x[k] = 1.0F;
    matrix.shrink(cpu_level(), {x.data(), 1, in}, 1.0F, 0, rank, {columns.data() + k * rank, 1, rank});
  }
  for (int64_t j = 0; j < rank; ++j) {
    matrix.read_a(j, row);
    for (int64_t k = 0; k < in; ++k) ASSERT_FLOAT_EQ(row[k], columns[k * rank + j]);
  }
  std::vector<float> y(out), values;
  for (size_t s = 0; s < matrix.slice_count(); ++s) {
    const auto& slice = matrix.slice(s);
    values.resize(slice.rank);
    for (int64_t j = 0; j < slice.rank; ++j) {
      std::fill(middle.begin(), middle.end(), 0.0F);
      middle[slice.rank_begin + j] = 1.0F;
      std::fill(y.begin(), y.end(), 0.0F);
      const LoRATerm term{&matrix, middle.data(), 1.0F};
      lora_expand(cpu_level(), {&term, 1}, 0, {y.data(), 1, out});
      for (int64_t col = slice.out_begin; col < slice.out_end; ++col) {
        matrix.read_b(s, col, values);
        ASSERT_FLOAT_EQ(values[j], y[col]) << "slice " << s << ", rank " << j;
      }
    }
  }
}

TEST(LoRAMatrixUnpack, GivesBackWhatIsMultipliedByInEveryFormat) {
  const Case cases[] = {{DType::kF32, DType::kF32, LoRAFormat::kAuto},  {DType::kBF16, DType::kBF16, LoRAFormat::kAuto},
                        {DType::kF16, DType::kF16, LoRAFormat::kAuto},  {DType::kBF16, DType::kF32, LoRAFormat::kAuto},
                        {DType::kF32, DType::kF32, LoRAFormat::kBF16},  {DType::kF32, DType::kBF16, LoRAFormat::kF16},
                        {DType::kBF16, DType::kBF16, LoRAFormat::kI8},  {DType::kQ8_0, DType::kQ8_0, LoRAFormat::kAuto},
                        {DType::kQ8_0, DType::kBF16, LoRAFormat::kAuto}};
  std::mt19937 random(7);
  for (const Case& c : cases) {
    SCOPED_TRACE(dtype_name(c.a));
    const bool blocks = c.a == DType::kQ8_0 || c.b == DType::kQ8_0;
    const int64_t in = blocks ? 64 : 70;
    struct Shape {
      int64_t out_begin, out, rank;
    };
    // Slices that begin within a panel, of odd ranks, with more than one group of ranks.
    const std::vector<Shape> shapes =
        blocks ? std::vector<Shape>{{0, 24, 32}, {24, 20, 64}} : std::vector<Shape>{{3, 20, 5}, {23, 9, 12}, {40, 17, 1}};
    std::vector<Stored> tensors;
    tensors.reserve(2 * shapes.size());
    std::vector<LoRASliceSource> slices;
    for (const auto& [out_begin, out, rank] : shapes) {
      const auto& a = tensors.emplace_back(random_tensor(c.a, rank, in, random));
      const auto& b = tensors.emplace_back(random_tensor(c.b, out, rank, random));
      slices.push_back({out_begin, a.view, b.view, 0.75F + static_cast<float>(out_begin)});
    }
    const auto packed = LoRAMatrix::pack({in, 60, slices}, c.format);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    expect_what_is_multiplied_by(*packed);
  }
}

}  // namespace
}  // namespace choral::kernels
