// "matmul" and "gather_rows" for every format of W.
#include "element_place.h"
#include "matmul.h"
#include "matmul_inl.h"

namespace choral_cuda {
namespace {

constexpr int kGatherThreads = 256;

SlabMatmul* product_of(Format format) {
  switch (format) {
    case Format::kF32: return matmul_f32;
    case Format::kF16: return matmul_f16;
    case Format::kBF16: return matmul_bf16;
    case Format::kInt4: return matmul_int4;
    case Format::kInt8: return matmul_int8;
    case Format::kE4M3: return matmul_e4m3;
    case Format::kInt8Rows: return matmul_int8_rows;
  }
  return nullptr;
}

__global__ void __launch_bounds__(kGatherThreads) gather_kernel(PackedWeight w, const int32_t* ids, Rows out, int32_t* fault) {
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
  const int64_t rows = x_rows < kSlabRows ? x_rows : kSlabRows;
  const bool may_split = rows > 2 * kTokens && rows <= kMostSplitTiles * kTokens && parts_fit(weight, rows);
  return prepared_bytes(weight, rows) + (may_split ? part_bytes(weight, rows) : 0);
}

cudaError_t matmul(const Launch& launch, const PackedWeight& weight, const choral_matmul_args& a) {
  if (weight.rows == 0) return cudaSuccess;
  for (int64_t begin = 0; begin < a.x.rows; begin += kSlabRows) {
    const int64_t rows = a.x.rows - begin < kSlabRows ? a.x.rows - begin : kSlabRows;
    PreparedX x;
    cudaError_t error = prepare_x(launch, weight, a.x, begin, rows, &x);
    if (error != cudaSuccess) return error;
    Output out{Rows(a.y), static_cast<const float*>(a.bias.data), a.accumulate != 0};
    out.y.data += begin * a.y.stride;
    error = product_of(weight.format)(launch, weight, x, out);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t gather_rows(const Launch& launch, const PackedWeight& weight, const choral_gather_rows_args& a) {
  if (a.out.rows == 0) return cudaSuccess;
  return launch_kernel(gather_kernel, {dim3(static_cast<unsigned>(a.out.rows)), dim3(kGatherThreads)}, launch.stream, weight,
                       a.ids, Rows(a.out), launch.fault);
}

}  // namespace choral_cuda
