// Keys and values into the cache. A block is a token's.
#include "kv_cache.h"
#include "rows.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    write_kv_kernel(CacheView cache, Rows k, Rows v, int v_head_dim, const int64_t* slots, int32_t* fault) {
  wait_for_earlier_kernels();
  const int64_t slot = slots[blockIdx.x];
  if (slot < 0) return;
  if (slot >= cache.blocks * kCacheBlockTokens) {
    if (threadIdx.x == 0) report(fault, kSlotBeyond);
    return;
  }
  store_token(cache, slot, k[blockIdx.x], cache.values == nullptr ? nullptr : v[blockIdx.x], v_head_dim);
}

}  // namespace

const char* cache_misfit(const choral_kv_cache& cache) {
  const bool known = cache.dtype == CHORAL_F32 || cache.dtype == CHORAL_F16 || cache.dtype == CHORAL_BF16;
  if (!known) return "the cache holds f32, f16 or bf16";
  if (cache.block_tokens != kCacheBlockTokens) return "a block of the cache has 32 tokens";
  if (cache.head_dim <= 0 || cache.head_dim % 8 != 0 || cache.head_dim > 1024) {
    return "keys of a head have a multiple of 8 elements, up to 1024";
  }
  if (cache.v_head_dim <= 0 || cache.v_head_dim > 1024) return "values of a head have 1 to 1024 elements";
  if (cache.values == nullptr && cache.v_head_dim > cache.head_dim) return "values in the keys are no longer than the keys";
  return nullptr;
}

cudaError_t write_kv(const Launch& launch, const choral_write_kv_args& a) {
  if (a.k.rows == 0) return cudaSuccess;
  return launch_kernel(write_kv_kernel, {dim3(static_cast<unsigned>(a.k.rows)), dim3(kThreads)}, launch, CacheView(a.cache),
                       Rows(a.k), Rows(a.v), static_cast<int>(a.cache.v_head_dim), a.slots, launch.fault);
}

}  // namespace choral_cuda
