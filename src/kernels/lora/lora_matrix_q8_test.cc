// Adapters in GGUF's Q8_0 keep their blocks: the same bits as from the values they stand for, in a bit more than a quarter of the
// bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/lora/lora_matrix.h"
#include "kernels/quant/dequantise.h"
#include "tensor/tensor.h"

namespace choral::kernels {
namespace {

using ::testing::HasSubstr;

// [rows, cols] of any blocks, or of fp16.
Tensor random_tensor(DType type, int64_t rows, int64_t cols, uint32_t seed) {
  auto tensor = Tensor::allocate(type, {rows, cols});
  CHORAL_CHECK(tensor.ok(), tensor.status().message());
  std::mt19937 random(seed);
  const int64_t step = facts(type).block_bytes;
  for (int64_t at = 0; at < tensor->view().size_bytes(); at += step) {
    for (int64_t i = 0; i < step; ++i) tensor->data()[at + i] = static_cast<std::byte>(random());
    const Float16 scale = to_float16(static_cast<float>(random() % 2000) * 1e-5F - 0.002F);
    std::memcpy(tensor->data() + at, &scale.bits, sizeof scale.bits);
  }
  return std::move(*tensor);
}

Tensor as_float(const Tensor& tensor) {
  const TensorView& view = tensor.view();
  auto out = Tensor::allocate(DType::kF32, view.shape);
  for (int64_t r = 0; r < view.rows(); ++r) {
    dequantise_row(view.dtype, view.row(r), view.cols(), out->as<float>().data() + r * view.cols());
  }
  return std::move(*out);
}

struct Shape3 {
  int64_t out_begin, out, rank;
  DType b_type = DType::kQ8_0;
};

// One layer's slices as stored, and as the floats they stand for.
struct Layer {
  int64_t in, out;
  std::vector<Tensor> tensors;
  std::vector<LoRASliceSource> stored, floats;

  Layer(int64_t in_, int64_t out_, const std::vector<Shape3>& shapes, DType a_type = DType::kQ8_0) : in(in_), out(out_) {
    uint32_t seed = 0;
    for (const auto& shape : shapes) {
      tensors.push_back(random_tensor(a_type, shape.rank, in, ++seed));
      tensors.push_back(random_tensor(shape.b_type, shape.out, shape.rank, ++seed));
      tensors.push_back(as_float(tensors[tensors.size() - 2]));
      tensors.push_back(as_float(tensors[tensors.size() - 2]));
    }
    for (size_t i = 0; i < shapes.size(); ++i) {
      const auto* of = &tensors[4 * i];
      stored.push_back({shapes[i].out_begin, of[0].view(), of[1].view(), 0.5F});
      floats.push_back({shapes[i].out_begin, of[2].view(), of[3].view(), 0.5F});
    }
  }
  LoRAMatrix pack(const std::vector<LoRASliceSource>& slices, LoRAFormat format) const {
    auto packed = LoRAMatrix::pack({.in = in, .out = out, .slices = slices}, format);
    CHORAL_CHECK(packed.ok(), packed.status().message());
    return std::move(*packed);
  }
};

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// Middle and result of `rows` rows, one after the other.
std::vector<float> computed(const LoRAMatrix& matrix, CpuLevel level, int64_t rows) {
  const auto x = random_values(rows * matrix.in(), 77);
  std::vector<float> middle(rows * matrix.rank()), y = random_values(rows * matrix.out(), 78);
  matrix.shrink(level, {x.data(), rows, matrix.in()}, 1.5F, 0, matrix.rank(), {middle.data(), rows, matrix.rank()});
  const LoRATerm term{&matrix, middle.data()};
  lora_expand(level, {&term, 1}, 0, {y.data(), rows, matrix.out()});
  // And piece by piece.
  std::vector<float> pieces(middle.size(), 0.0F), deltas(y.size(), 0.0F);
  for (int64_t at = 0; at < matrix.panel_bytes();) {
    const int64_t end = matrix.compute_piece(level, at, {x.data(), rows, matrix.in()}, 1.5F, {pieces.data(), rows, matrix.rank()},
                                             {deltas.data(), rows, matrix.out()});
    CHORAL_CHECK(end > at, "a piece has bytes");
    at = end;
  }
  for (const auto* part : {&middle, &pieces, &deltas}) y.insert(y.end(), part->begin(), part->end());
  return y;
}

TEST(LoRAMatrixQ8, KeepsItsBlocksAndGivesTheBitsOfTheirValues) {
  const Layer layers[] = {{32, 16, {{0, 16, 32}}},
                          {96, 50, {{0, 50, 64}}},
                          {64, 70, {{3, 20, 32}, {23, 9, 96}, {40, 30, 32}}},
                          {256, 33, {{0, 33, 5, DType::kF16}}},
                          {1024, 520, {{0, 200, 32}, {200, 320, 32}}}};
  for (const auto& layer : layers) {
    const LoRAMatrix kept = layer.pack(layer.stored, LoRAFormat::kAuto), wanted = layer.pack(layer.floats, LoRAFormat::kF32);
    EXPECT_LT(static_cast<double>(kept.panel_bytes()), 0.6 * static_cast<double>(wanted.panel_bytes()));
    if (layer.stored[0].b.dtype == DType::kQ8_0) {
      EXPECT_EQ(kept.panel_bytes() * 32, wanted.panel_bytes() / 4 * 36) << "32 values and a float";
    }
    for (const CpuLevel level : usable_cpu_levels()) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 13}) {
        EXPECT_EQ(computed(kept, level, rows), computed(wanted, level, rows))
            << cpu_level_name(level) << ", " << rows << " rows, " << layer.in << " inputs";
      }
    }
  }
}

TEST(LoRAMatrixQ8, BesideAnotherTypeOrWhenAskedItIsConverted) {
  Layer mixed(64, 32, {{0, 16, 32}, {16, 16, 32}});
  const Layer half(64, 32, {{0, 16, 32}}, DType::kF16);
  mixed.stored[1].a = half.stored[0].a;
  mixed.floats[1].a = half.floats[0].a;
  const LoRAMatrix kept = mixed.pack(mixed.stored, LoRAFormat::kAuto), wanted = mixed.pack(mixed.floats, LoRAFormat::kF32);
  EXPECT_EQ(computed(kept, cpu_level(), 3), computed(wanted, cpu_level(), 3));
  for (const auto format : {LoRAFormat::kF32, LoRAFormat::kF16, LoRAFormat::kBF16, LoRAFormat::kI8}) {
    const LoRAMatrix a = half.pack(half.stored, format), b = half.pack(half.floats, format);
    EXPECT_EQ(a.panel_bytes(), b.panel_bytes());
    EXPECT_EQ(computed(a, cpu_level(), 3), computed(b, cpu_level(), 3));
  }
}

TEST(LoRAMatrixQ8, RowsMustBeWholeBlocks) {
  Layer layer(64, 32, {{0, 32, 32}});
  layer.stored[0].a.shape = {32, 40};
  const auto refused = LoRAMatrix::pack({.in = 40, .out = 32, .slices = layer.stored}, LoRAFormat::kAuto);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("lora_A has rows of 40 values, which are no whole blocks of Q8_0"));
}

}  // namespace
}  // namespace choral::kernels
