#include "emulated_ptx.h"

namespace choral_cuda {
namespace {

using cuda_emulation::kWarpLanes;

template <class Sum>
struct MmaOperands {
  Sum* c;
  const uint32_t *a, *b;
};

// C += A·B of all lanes. `element(register, i)` is element i of a register, of which one holds `kElements`. The products of a
// row and column are exact and are added in double before they meet c; a device keeps fewer bits, and says nothing of the order.
template <class Sum, class Wide, int kElements, class Element>
void multiply_fragments(void* const* lanes, Element element) {
  constexpr int kDepth = 8 * kElements;
  Wide a[16][kDepth], b[8][kDepth];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto* o = static_cast<const MmaOperands<Sum>*>(lanes[lane]);
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r) {
      for (int i = 0; i < kElements; ++i) a[g + r % 2 * 8][r / 2 * 4 * kElements + t * kElements + i] = element(o->a[r], i);
    }
    for (int r = 0; r < 2; ++r) {
      for (int i = 0; i < kElements; ++i) b[g][r * 4 * kElements + t * kElements + i] = element(o->b[r], i);
    }
  }
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto* o = static_cast<const MmaOperands<Sum>*>(lanes[lane]);
    for (int i = 0; i < 4; ++i) {
      const Wide* row = a[lane / 4 + i / 2 * 8];
      const Wide* column = b[lane % 4 * 2 + i % 2];
      Wide sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += row[k] * column[k];
      o->c[i] = static_cast<Sum>(static_cast<Wide>(o->c[i]) + sum);
    }
  }
}

void multiply_bf16(void* const* lanes) {
  multiply_fragments<float, double, 2>(lanes, [](uint32_t r, int i) { return from_bf16(static_cast<uint16_t>(r >> 16 * i)); });
}
void multiply_f16(void* const* lanes) {
  multiply_fragments<float, double, 2>(lanes, [](uint32_t r, int i) { return from_f16(static_cast<uint16_t>(r >> 16 * i)); });
}
void multiply_s8(void* const* lanes) {
  multiply_fragments<int32_t, int64_t, 4>(lanes, [](uint32_t r, int i) { return static_cast<int8_t>(r >> 8 * i); });
}

struct Turned {
  uint32_t given, taken;
};

struct Loaded {
  const void* row;
  uint32_t words[4];
};

}  // namespace

void mma_bf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOperands<float> mine{c, a, b};
  cuda_emulation::meet(multiply_bf16, &mine);
}

void mma_f16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOperands<float> mine{c, a, b};
  cuda_emulation::meet(multiply_f16, &mine);
}

void mma_s8(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  MmaOperands<int32_t> mine{c, a, b};
  cuda_emulation::meet(multiply_s8, &mine);
}

uint32_t transpose_8x8(uint32_t x) {
  Turned mine{x, 0};
  cuda_emulation::meet(
      [](void* const* lanes) {
        const auto element = [&](int row, int column) {
          return static_cast<const Turned*>(lanes[row * 4 + column / 2])->given >> column % 2 * 16 & 0xffffu;
        };
        for (int lane = 0; lane < kWarpLanes; ++lane) {
          const int row = lane / 4, column = lane % 4 * 2;
          static_cast<Turned*>(lanes[lane])->taken = element(column, row) | element(column + 1, row) << 16;
        }
      },
      &mine);
  return mine.taken;
}

uint4 load_matrices(const void* row) {
  Loaded mine{row, {}};
  cuda_emulation::meet(
      [](void* const* lanes) {
        for (int lane = 0; lane < kWarpLanes; ++lane) {
          for (int matrix = 0; matrix < 4; ++matrix) {
            const auto* words = static_cast<const uint32_t*>(static_cast<const Loaded*>(lanes[matrix * 8 + lane / 4])->row);
            static_cast<Loaded*>(lanes[lane])->words[matrix] = words[lane % 4];
          }
        }
      },
      &mine);
  return {mine.words[0], mine.words[1], mine.words[2], mine.words[3]};
}

}  // namespace choral_cuda
