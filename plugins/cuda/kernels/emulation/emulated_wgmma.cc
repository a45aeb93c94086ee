#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "../../emulation/rounding.h"
#include "float16.h"
#include "wgmma.h"

namespace cuda_emulation {

bool wgmma_rounds_otherwise = false;

// Of a thread: the products under way, and what their sums were before.
struct AsyncProducts {
  struct Product {
    void* c;
    int group;
    std::function<void(void* sums)> add;  // A·B to the true sums
  };
  bool started = false;
  int group = 0;
  std::vector<Product> products;
  std::map<void*, std::vector<unsigned char>> sums;
};

}  // namespace cuda_emulation

namespace choral_cuda {
namespace {

using cuda_emulation::AsyncProducts;
using cuda_emulation::kWarpLanes;

AsyncProducts& own() {
  auto& products = cuda_emulation::current_thread->products;
  if (products == nullptr) products = std::make_shared<AsyncProducts>();
  return *products;
}

// Where a descriptor says that B is.
struct CoreMatrices {
  uint64_t bits;

  size_t address() const { return (bits & 0x3fff) << 4; }
  size_t k_bytes() const { return (bits >> 16 & 0x3fff) << 4; }
  size_t column_bytes() const { return (bits >> 32 & 0x3fff) << 4; }
  bool is_plain() const { return (bits >> 49) == 0; }  // neither a base offset nor a swizzle
  // The 16 bytes of column n in core matrix k.
  const unsigned char* row(int n, int k) const {
    const size_t at = address() + k * k_bytes() + n / 8 * column_bytes() + n % 8 * 16;
    if (at + 16 > cuda_emulation::current_block->shared_bytes) cuda_emulation::fail("wgmma: B lies beyond shared memory");
    return cuda_emulation::current_block->shared + at;
  }
};

template <class Wide>
using RowsOfA = std::vector<std::vector<Wide>>;  // of a warp: [16][k]

template <class Wide>
struct Started {
  const uint32_t* a;
  uint64_t b;
  std::shared_ptr<RowsOfA<Wide>> rows;
};

// The warp's lanes show each other their A, of `elements` a register, and that they mean the same B.
template <class Wide, int elements, class Element>
std::shared_ptr<RowsOfA<Wide>> rows_of_warp(const uint32_t (&a)[4], uint64_t b) {
  Started<Wide> mine{a, b, nullptr};
  cuda_emulation::meet(
      [](void* const* lanes) {
        auto rows = std::make_shared<RowsOfA<Wide>>(16, std::vector<Wide>(8 * elements));
        for (int lane = 0; lane < kWarpLanes; ++lane) {
          auto* o = static_cast<Started<Wide>*>(lanes[lane]);
          if (o->b != static_cast<Started<Wide>*>(lanes[0])->b) cuda_emulation::fail("wgmma: lanes with different descriptors");
          for (int r = 0; r < 4; ++r) {
            for (int i = 0; i < elements; ++i) {
              (*rows)[lane / 4 + r % 2 * 8][r / 2 * 4 * elements + lane % 4 * elements + i] = Element::of(o->a[r], i);
            }
          }
          o->rows = rows;
        }
      },
      &mine);
  return mine.rows;
}

struct Bf16Element {
  static double of(uint32_t r, int i) { return from_bf16(static_cast<uint16_t>(r >> 16 * i)); }
};
struct F16Element {
  static double of(uint32_t r, int i) { return from_f16(static_cast<uint16_t>(r >> 16 * i)); }
};
struct S8Element {
  static int64_t of(uint32_t r, int i) { return static_cast<int8_t>(r >> 8 * i); }
};

float rounded(double sum) {
  const auto nearest = static_cast<float>(sum);
  return cuda_emulation::wgmma_rounds_otherwise ? __uint_as_float(__float_as_uint(nearest) & ~1u) : nearest;
}
int32_t rounded(int64_t sum) { return static_cast<int32_t>(sum); }

// As mma's: the products of a row and a column are exact and are added up before they meet the sum.
template <class Sum, class Wide, int elements, class Element, int tiles>
void add_products(WarpgroupSums<Sum, tiles>& c, const RowsOfA<Wide>& a, CoreMatrices b, int lane) {
  constexpr int kDepth = 8 * elements, kOfCore = 4 * elements;
  for (int n = 0; n < tiles; ++n) {
    Wide columns[2][kDepth];
    for (int column = 0; column < 2; ++column) {
      for (int k = 0; k < kDepth; ++k) {
        uint32_t word;
        std::memcpy(&word, b.row(n * 8 + lane % 4 * 2 + column, k / kOfCore) + k % kOfCore / elements * 4, sizeof word);
        columns[column][k] = Element::of(word, k % elements);
      }
    }
    for (int i = 0; i < 4; ++i) {
      const Wide* row = a[lane / 4 + i / 2 * 8].data();
      Wide sum = 0;
      for (int k = 0; k < kDepth; ++k) sum += row[k] * columns[i % 2][k];
      c[n][i] = rounded(static_cast<Wide>(c[n][i]) + sum);
    }
  }
}

// `add` makes the products, once they are waited for.
template <class Sum, int tiles, class Add>
void start_product(WarpgroupSums<Sum, tiles>& c, Add add) {
  AsyncProducts& products = own();
  if (!products.started) cuda_emulation::fail("wgmma without wgmma.fence behind what wrote its registers");
  cuda_emulation::expect_copies_shown();
  auto& sums = products.sums[&c];
  if (sums.empty()) {
    sums.resize(sizeof c);
    std::memcpy(sums.data(), &c, sizeof c);
    std::memset(&c, 0xff, sizeof c);
  }
  products.products.push_back({&c, products.group, [add](void* to) { add(*static_cast<WarpgroupSums<Sum, tiles>*>(to)); }});
}

void expect_plain(uint64_t descriptor) {
  if (!CoreMatrices{descriptor}.is_plain()) cuda_emulation::fail("wgmma: a descriptor with a swizzle or a base offset");
}

template <class Sum, class Wide, int elements, class Element, int tiles>
void start(WarpgroupSums<Sum, tiles>& c, const uint32_t (&a)[4], uint64_t b) {
  expect_plain(b);
  auto rows = rows_of_warp<Wide, elements, Element>(a, b);
  const int lane = cuda_emulation::current_thread->lane;
  start_product<Sum>(
      c, [rows, b, lane](auto& sums) { add_products<Sum, Wide, elements, Element>(sums, *rows, CoreMatrices{b}, lane); });
}

// A in shared memory: the warp's sixteen rows of it.
template <class Element, int tiles>
void start_of_shared(WarpgroupSums<float, tiles>& c, uint64_t a, uint64_t b) {
  expect_plain(a), expect_plain(b);
  const int lane = cuda_emulation::current_thread->lane;
  const int first_row = static_cast<int>(threadIdx.x) % kWarpgroup / kWarpLanes * 16;
  start_product<float>(c, [a, b, lane, first_row](auto& sums) {
    RowsOfA<double> rows(16, std::vector<double>(16));
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < 16; ++k) {
        uint32_t word;
        std::memcpy(&word, CoreMatrices{a}.row(first_row + row, k / 8) + k % 8 / 2 * 4, sizeof word);
        rows[row][k] = Element::of(word, k % 2);
      }
    }
    add_products<float, double, 2, Element>(sums, rows, CoreMatrices{b}, lane);
  });
}

}  // namespace

#define CHORAL_PRODUCTS(tiles)                                                         \
  void wgmma_bf16(WarpgroupSums<float, tiles>& c, const uint32_t(&a)[4], uint64_t b) { \
    start<float, double, 2, Bf16Element>(c, a, b);                                     \
  }                                                                                    \
  void wgmma_f16(WarpgroupSums<float, tiles>& c, const uint32_t(&a)[4], uint64_t b) {  \
    start<float, double, 2, F16Element>(c, a, b);                                      \
  }                                                                                    \
  void wgmma_s8(WarpgroupSums<int32_t, tiles>& c, const uint32_t(&a)[4], uint64_t b) { \
    start<int32_t, int64_t, 4, S8Element>(c, a, b);                                    \
  }
CHORAL_PRODUCTS(4)
CHORAL_PRODUCTS(8)
CHORAL_PRODUCTS(16)
CHORAL_PRODUCTS(32)
#undef CHORAL_PRODUCTS

void wgmma_bf16(WarpgroupSums<float, 4>& c, uint64_t a, uint64_t b) { start_of_shared<Bf16Element>(c, a, b); }
void wgmma_f16(WarpgroupSums<float, 4>& c, uint64_t a, uint64_t b) { start_of_shared<F16Element>(c, a, b); }

void start_group() { own().started = true; }

void end_group() {
  own().started = false;
  ++own().group;
}

void wait_until_under_way(int groups) {
  AsyncProducts& own_products = own();
  auto& products = own_products.products;
  size_t done = 0;
  for (; done < products.size() && products[done].group < own_products.group - groups; ++done) {
    products[done].add(own_products.sums.at(products[done].c).data());
  }
  products.erase(products.begin(), products.begin() + static_cast<ptrdiff_t>(done));
  std::erase_if(own_products.sums, [&](const auto& kept) {
    for (const auto& product : products) {
      if (product.c == kept.first) return false;
    }
    std::memcpy(kept.first, kept.second.data(), kept.second.size());
    return true;
  });
  // A warp waits as one: what one lane does next comes behind the products of all.
  cuda_emulation::meet([](void* const*) {}, nullptr);
}

}  // namespace choral_cuda
