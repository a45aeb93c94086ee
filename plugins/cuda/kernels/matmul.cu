// "matmul", "grouped_matmul" and "gather_rows" for every format of W.
#include <algorithm>

#include "element_place.h"
#include "matmul.h"
#include "wgmma.h"

namespace choral_cuda {
namespace {

constexpr int kGatherThreads = 256;

const OperandMatmul& matmul_of(const PackedWeight& w) {
  const bool rounded = x_planes(w) == 1;
  switch (w.format) {
    case Format::kF32: return kMatmulF32;
    case Format::kF16: return rounded ? kMatmulF16ByRounded : kMatmulF16;
    case Format::kBF16: return rounded ? kMatmulBF16ByRounded : kMatmulBF16;
    case Format::kInt4: return rounded ? kMatmulInt4ByRounded : kMatmulInt4;
    case Format::kInt8: return rounded ? kMatmulInt8ByRounded : kMatmulInt8;
    case Format::kE4M3: return rounded ? kMatmulE4M3ByRounded : kMatmulE4M3;
    case Format::kInt8Rows: break;
  }
  return kMatmulInt8Rows;
}

// All but what each product has for itself.
PackedWeight form_of(const PackedWeight& weight) {
  PackedWeight form = weight;
  form.image = nullptr;
  form.k_order = nullptr;
  form.input_scale = 0.0f;
  form.input_offset = 0;
  return form;
}

int32_t block_tiles_of(const PackedWeight& weight, int64_t x_rows, bool is_one) {
  return tiles_of_block(weight.format, ceil_div<int64_t>(x_rows, kTokens), is_one);
}

// None yet, of such a weight, strides and number of rows.
template <int most>
void clear(Products<most>& p, const PackedWeight& weight, const choral_matmul_args& a, int64_t x_rows) {
  p.form = form_of(weight);
  p.x_stride = a.x.stride;
  p.y_stride = a.y.stride;
  p.accumulate = a.accumulate;
  p.block_tiles = block_tiles_of(weight, x_rows, most == 1);
  p.tile_count = 0;
  p.count = 0;
}

// `rows` rows of x from `begin` on.
template <int most>
void append(Products<most>& p, const PackedWeight& weight, const choral_matmul_args& a, int64_t begin, int64_t rows) {
  const int32_t first_tile = round_up(p.tile_count, p.block_tiles);
  p.of[p.count++] = {.image = weight.image,
                     .k_order = weight.k_order,
                     .x = static_cast<float*>(a.x.data) + begin * a.x.stride,
                     .y = static_cast<float*>(a.y.data) + begin * a.y.stride,
                     .bias = static_cast<const float*>(a.bias.data),
                     .rows = static_cast<int32_t>(rows),
                     .first_tile = first_tile,
                     .input_scale = weight.input_scale,
                     .input_offset = weight.input_offset};
  p.tile_count = first_tile + static_cast<int32_t>(ceil_div<int64_t>(rows, kTokens));
}

template <int most>
size_t scratch_bytes(const Products<most>& p) {
  return scratch_of_x(p) + (may_split(p) ? part_bytes(p.form, p.tile_count) : 0);
}

// Whether the kernels on wgmma take them: more than two tiles of x, of scaled weights and of many products many; and of W, or of
// sections of it, enough to fill at least half of the device.
template <int most>
bool by_warpgroups(const Launch& launch, const Products<most>& p) {
  const bool is_scaled = has_folds(p.form.format), few_too = !is_scaled && most == 1;
  if (!launch.has_wgmma || p.form.format == Format::kF32 || p.block_tiles < (few_too ? 4 : 16)) return false;
  const int64_t block_rows = int64_t{kMatmulWarps} * warpgroup_row_tiles(is_scaled, p.block_tiles) * kTileRows;
  const int64_t blocks = ceil_div(p.form.rows, block_rows) * ceil_div(p.tile_count, p.block_tiles);
  const bool splits = few_too && may_split(p);
  return blocks * (splits ? ceil_div(p.form.blocks, p.form.section_blocks) : 1) * 2 >= launch.sm_count;
}

template <int most>
cudaError_t multiply(const Launch& launch, Products<most>& p) {
  p.by_warpgroups = by_warpgroups(launch, p) ? 1 : 0;
  p.tiles = static_cast<unsigned char*>(launch.scratch);
  p.fold_sums = reinterpret_cast<float*>(p.tiles + prepared_bytes(p));
  p.factors = p.fold_sums + fold_sum_bytes(p) / sizeof(float);
  p.largest = reinterpret_cast<uint32_t*>(p.factors + int64_t{p.tile_count} * kTokens);
  p.knows_largest = p.tile_count > 2 && (p.form.format == Format::kF16 || p.form.format == Format::kInt8Rows) ? 1 : 0;
  const cudaError_t error = prepare_x(launch, p);
  if (error != cudaSuccess) return error;
  if constexpr (most == 1)
    return matmul_of(p.form).one(launch, p);
  else
    return matmul_of(p.form).many(launch, p);
}

// ---- Launches of a call: take(products) for each, until one fails.

constexpr int64_t kSlabRows = 2048;       // of x that are prepared at a time for one product
constexpr int32_t kMostGroupTiles = 512;  // of x that are prepared at a time for many

template <class Take>
cudaError_t for_each_slab(const PackedWeight& weight, const choral_matmul_args& a, Take take) {
  Products<1> p;
  for (int64_t begin = 0; begin < a.x.rows; begin += kSlabRows) {
    const int64_t rows = std::min(kSlabRows, a.x.rows - begin);
    clear(p, weight, a, rows);
    append(p, weight, a, begin, rows);
    if (const cudaError_t error = take(p)) return error;
  }
  return cudaSuccess;
}

// Whether one launch can take both.
bool same_kind(const GroupedProduct& a, const GroupedProduct& b) {
  return a.args.x.stride == b.args.x.stride && a.args.y.stride == b.args.y.stride && a.args.accumulate == b.args.accumulate &&
         block_tiles_of(*a.weight, a.args.x.rows, false) == block_tiles_of(*b.weight, b.args.x.rows, false) &&
         form_of(*a.weight) == form_of(*b.weight);
}

// Those of a kind together.
template <class Take>
cudaError_t for_each_group(std::span<const GroupedProduct> products, Take take) {
  Products<kMostProducts> p;
  for (size_t i = 0; i < products.size(); ++i) {
    const auto is_like_first = [&first = products[i]](const GroupedProduct& other) { return same_kind(first, other); };
    if (std::any_of(products.begin(), products.begin() + i, is_like_first)) continue;
    const auto start = [&] { clear(p, *products[i].weight, products[i].args, products[i].args.x.rows); };
    start();
    for (const GroupedProduct& product : products.subspan(i)) {
      if (!is_like_first(product)) continue;
      for (int64_t begin = 0; begin < product.args.x.rows;) {
        const int64_t rows_left = product.args.x.rows - begin;
        const int64_t room = (kMostGroupTiles - round_up(p.tile_count, p.block_tiles)) * int64_t{kTokens};
        if (p.count == kMostProducts || (p.count > 0 && rows_left > room)) {
          if (const cudaError_t error = take(p)) return error;
          start();
          continue;
        }
        append(p, *product.weight, product.args, begin, std::min(rows_left, room));
        begin += std::min(rows_left, room);
      }
    }
    if (p.count == 0) continue;
    if (const cudaError_t error = take(p)) return error;
  }
  return cudaSuccess;
}

__global__ void __launch_bounds__(kGatherThreads) gather_kernel(PackedWeight w, const int32_t* ids, Rows out, int32_t* fault) {
  wait_for_earlier_kernels();
  const int32_t id = ids[blockIdx.x];
  if (id < 0 || id >= w.rows) {
    if (threadIdx.x == 0) report(fault, kRowBeyond);
    return;
  }
  const unsigned char* record = w.image + id / kTileRows * w.tile_bytes;
  float* to = out[blockIdx.x];
  for (int64_t k = threadIdx.x; k < w.cols; k += kGatherThreads) {
    to[w.k_order == nullptr ? k : w.k_order[k]] = element_of(w, record, id % kTileRows, k);
  }
}

}  // namespace

size_t matmul_scratch_bytes(const PackedWeight& weight, int64_t x_rows) {
  choral_matmul_args args{};
  args.x.rows = x_rows;
  size_t most = 0;
  (void)for_each_slab(weight, args, [&](const Products<1>& p) {
    most = std::max(most, scratch_bytes(p));
    return cudaSuccess;
  });
  return most;
}

cudaError_t matmul(const Launch& launch, const PackedWeight& weight, const choral_matmul_args& args) {
  return for_each_slab(weight, args, [&](Products<1>& p) { return multiply(launch, p); });
}

size_t grouped_matmul_scratch_bytes(std::span<const GroupedProduct> products) {
  size_t most = 0;
  (void)for_each_group(products, [&](const Products<kMostProducts>& p) {
    most = std::max(most, scratch_bytes(p));
    return cudaSuccess;
  });
  return most;
}

cudaError_t grouped_matmul(const Launch& launch, std::span<const GroupedProduct> products) {
  return for_each_group(products, [&](Products<kMostProducts>& p) { return multiply(launch, p); });
}

cudaError_t gather_rows(const Launch& launch, const PackedWeight& weight, const choral_gather_rows_args& a) {
  if (a.out.rows == 0) return cudaSuccess;
  return launch_kernel(gather_kernel, {dim3(static_cast<unsigned>(a.out.rows)), dim3(kGatherThreads)}, launch, weight, a.ids,
                       Rows(a.out), launch.fault);
}

}  // namespace choral_cuda
