// Rotations of q and k by their positions, alone and fused with what stands around them: the norm of each head before, the cache
// after. A block is a row's.
#include "kv_cache.h"
#include "norm_inl.h"
#include "rows.h"

namespace choral_cuda {
namespace {

constexpr int kThreads = 256;

// What of the table a row needs.
struct Turn {
  const float* cosines;
  const float* sines;
  int half;
  bool interleaved;

  __device__ __forceinline__ Turn(const choral_rotary_table& table, int64_t position)
      : cosines(table.cos_sin + position * table.rotary_dim),
        sines(cosines + table.rotary_dim / 2),
        half(static_cast<int>(table.rotary_dim / 2)),
        interleaved(table.interleaved != 0) {}

  // Pair i of a head, each element times its factor first.
  template <class Scaled>
  __device__ __forceinline__ void pair(float* head, int i, Scaled scaled) const {
    const int first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : half + i;
    const float a = scaled(head, first), b = scaled(head, second);
    head[first] = a * cosines[i] - b * sines[i];
    head[second] = b * cosines[i] + a * sines[i];
  }
};

__device__ __forceinline__ void rotate_row(const Turn& turn, int64_t head_dim, float* row, int64_t cols) {
  const int64_t pairs = cols / head_dim * turn.half;
  for (int64_t i = threadIdx.x; i < pairs; i += kThreads) {
    turn.pair(row + i / turn.half * head_dim, static_cast<int>(i % turn.half),
              [](const float* head, int at) { return head[at]; });
  }
}

// Null and a report where the table lacks the position.
__device__ __forceinline__ bool has_position(const choral_rotary_table& table, int64_t position, int32_t* fault) {
  if (position >= 0 && position < table.max_positions) return true;
  if (threadIdx.x == 0) report(fault, kPositionBeyond);
  return false;
}

__global__ void __launch_bounds__(kThreads) rotary_kernel(choral_rotary_table table, const int32_t* positions, Rows q,
                                                          int64_t q_cols, Rows k, int64_t k_cols, int32_t* fault) {
  wait_for_earlier_kernels();
  const int64_t position = positions[blockIdx.x];
  if (!has_position(table, position, fault)) return;
  const Turn turn(table, position);
  rotate_row(turn, table.head_dim, q[blockIdx.x], q_cols);
  rotate_row(turn, table.head_dim, k[blockIdx.x], k_cols);
}

// One head by one warp.
__device__ __forceinline__ void norm_and_rotate(const Turn& turn, int64_t head_dim, float* head, const float* weight, float eps) {
  const float scale = warp_rms_scale(head, head_dim, eps);
  const auto scaled = [=](const float* x, int at) { return x[at] * scale * weight[at]; };
  const int lane = threadIdx.x % kWarp;
  for (int i = lane; i < turn.half; i += kWarp) turn.pair(head, i, scaled);
  for (int i = 2 * turn.half + lane; i < head_dim; i += kWarp) head[i] = scaled(head, i);
}

__global__ void __launch_bounds__(kThreads)
    qk_norm_rope_kernel(choral_rotary_table table, const int32_t* positions, Rows q, int64_t q_heads, const float* q_weight,
                        Rows k, int64_t k_heads, const float* k_weight, float eps, int32_t* fault) {
  wait_for_earlier_kernels();
  const int64_t position = positions[blockIdx.x];
  if (!has_position(table, position, fault)) return;
  const Turn turn(table, position);
  for (int64_t head = threadIdx.x / kWarp; head < q_heads + k_heads; head += kThreads / kWarp) {
    const bool is_q = head < q_heads;
    float* x = is_q ? q[blockIdx.x] + head * table.head_dim : k[blockIdx.x] + (head - q_heads) * table.head_dim;
    norm_and_rotate(turn, table.head_dim, x, is_q ? q_weight : k_weight, eps);
  }
}

__global__ void __launch_bounds__(kThreads)
    rope_write_kv_kernel(choral_rotary_table table, const int32_t* positions, Rows q, int64_t q_cols, Rows k, int64_t k_cols,
                         Rows v, CacheView cache, int v_head_dim, const int64_t* slots, int32_t* fault) {
  wait_for_earlier_kernels();
  const int64_t position = positions[blockIdx.x], slot = slots[blockIdx.x];
  if (!has_position(table, position, fault)) return;
  const Turn turn(table, position);
  rotate_row(turn, table.head_dim, q[blockIdx.x], q_cols);
  rotate_row(turn, table.head_dim, k[blockIdx.x], k_cols);
  if (slot < 0) return;
  if (slot >= cache.blocks * kCacheBlockTokens) {
    if (threadIdx.x == 0) report(fault, kSlotBeyond);
    return;
  }
  __syncthreads();  // k is whole
  store_token(cache, slot, k[blockIdx.x], cache.values == nullptr ? nullptr : v[blockIdx.x], v_head_dim);
}

GridShape block_a_row(const choral_matrix& q) { return {dim3(static_cast<unsigned>(q.rows)), dim3(kThreads)}; }

}  // namespace

cudaError_t rotary_embedding(const Launch& launch, const choral_rotary_args& a) {
  if (a.q.rows == 0 || a.table.rotary_dim == 0) return cudaSuccess;
  return launch_kernel(rotary_kernel, block_a_row(a.q), launch, a.table, a.positions, Rows(a.q), a.q.cols, Rows(a.k), a.k.cols,
                       launch.fault);
}

cudaError_t qk_norm_rope(const Launch& launch, const choral_rotary_args& a) {
  if (a.q.rows == 0) return cudaSuccess;
  return launch_kernel(qk_norm_rope_kernel, block_a_row(a.q), launch, a.table, a.positions, Rows(a.q),
                       a.q.cols / a.table.head_dim, static_cast<const float*>(a.q_weight.data), Rows(a.k),
                       a.k.cols / a.table.head_dim, static_cast<const float*>(a.k_weight.data), a.eps, launch.fault);
}

cudaError_t rope_write_kv(const Launch& launch, const choral_rotary_args& a) {
  if (a.q.rows == 0) return cudaSuccess;
  return launch_kernel(rope_write_kv_kernel, block_a_row(a.q), launch, a.table, a.positions, Rows(a.q), a.q.cols, Rows(a.k),
                       a.k.cols, Rows(a.v), CacheView(a.cache), static_cast<int>(a.cache.v_head_dim), a.slots, launch.fault);
}

}  // namespace choral_cuda
