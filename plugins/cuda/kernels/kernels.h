// The kernels of the plug-in, one launcher for each operator of choral/plugin.h, with the argument structs of that header.
//
// A launcher queues work on `launch.stream` and returns what the launch gave; nothing is waited for. Who calls has checked that
// shapes fit each other and that every element type is one named here: a launcher looks at sizes only to choose a grid. What lies
// on the device (ids, slots, positions, block tables) nobody has checked: a kernel that meets a bad one leaves that row alone and
// writes a Fault to launch.fault.
//
// The bits of a row depend on its own numbers alone: not on other rows, their count, sm_count or the scratch. README.md says how.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "choral/plugin.h"
#include "packed_weight.h"

namespace choral_cuda {

// What a kernel found wrong in device memory; the largest stays.
enum Fault : int32_t {
  kNoFault = 0,
  kRowBeyond = 1,       // gather_rows, take_rows, moe_combine: an id that is no row
  kPositionBeyond = 2,  // rotary operators: a position that the table lacks
  kSlotBeyond = 3,      // write_kv, rope_write_kv: a slot beyond the cache's blocks
  kBlockBeyond = 4,     // paged_attention: a block, a table or rows that are not there
  kAdapterBeyond = 5,   // bgmv_, sgmv_, lora_: a slot that the stack lacks, or a sequence of rows that are not there
  kSampledBeyond = 6,   // sample: a row's vocabulary, edits, mask or places that are not there
};

struct Launch {
  cudaStream_t stream;
  int sm_count;
  void* scratch;              // on the device, 256-byte aligned, at least as large as the operator's *_scratch_bytes
  size_t scratch_bytes;       // the next launch on the stream may have the same
  int32_t* fault;             // on the device, one Fault; the caller zeroes it, looks at it and says it in words
  size_t block_shared_bytes;  // that a block may ask for: 99 KiB on some cards, twice as much on others
  bool has_wgmma = false;     // the device has it, with the bits of mma.sync (../wide_products.h)
  bool overlaps = false;      // the device starts kernels early (launch.h)
};

// Matrices are f32 unless said otherwise; norms' weights, biases and sinks f32; strides in elements.

size_t matmul_scratch_bytes(const PackedWeight& weight, int64_t x_rows);
cudaError_t matmul(const Launch& launch, const PackedWeight& weight, const choral_matmul_args& args);
// A product of several: `args` as matmul takes them, but for their weight.
struct GroupedProduct {
  const PackedWeight* weight;
  choral_matmul_args args;
};
size_t grouped_matmul_scratch_bytes(std::span<const GroupedProduct> products);
cudaError_t grouped_matmul(const Launch& launch, std::span<const GroupedProduct> products);
cudaError_t gather_rows(const Launch& launch, const PackedWeight& weight, const choral_gather_rows_args& args);

cudaError_t take_rows(const Launch& launch, const choral_take_rows_args& args);
cudaError_t moe_combine(const Launch& launch, const choral_moe_combine_args& args);
cudaError_t add(const Launch& launch, const choral_unary_args& args);
cudaError_t add_bias(const Launch& launch, const choral_bias_args& args);
cudaError_t scale(const Launch& launch, const choral_scale_args& args);
cudaError_t soft_cap(const Launch& launch, const choral_soft_cap_args& args);
cudaError_t silu_and_mul(const Launch& launch, const choral_unary_args& args);
cudaError_t gelu_tanh_and_mul(const Launch& launch, const choral_unary_args& args);  // the CustomOp gelu_and_mul as well
cudaError_t swigluoai_and_mul(const Launch& launch, const choral_swigluoai_args& args);

cudaError_t rms_norm(const Launch& launch, const choral_rms_norm_args& args);
cudaError_t rms_norm_heads(const Launch& launch, const choral_rms_norm_args& args);
cudaError_t add_rms_norm(const Launch& launch, const choral_rms_norm_args& args);
cudaError_t add_rms_norm_bias(const Launch& launch, const choral_rms_norm_args& args);

cudaError_t rotary_embedding(const Launch& launch, const choral_rotary_args& args);
cudaError_t qk_norm_rope(const Launch& launch, const choral_rotary_args& args);
cudaError_t rope_write_kv(const Launch& launch, const choral_rotary_args& args);  // a cache that fits

inline constexpr int kMostTopLogprobs = 128;            // of a row
inline constexpr int64_t kMostSampledLogits = 1 << 21;  // that a row may have
size_t sample_scratch_bytes(const choral_sample_args& args);
cudaError_t sample(const Launch& launch, const choral_sample_args& args);

// Null, or why this cache is not one for the three operators on it ("keys of a head have a multiple of 8 elements …").
const char* cache_misfit(const choral_kv_cache& cache);
cudaError_t write_kv(const Launch& launch, const choral_write_kv_args& args);
size_t paged_attention_scratch_bytes(const choral_attention_args& args);
cudaError_t paged_attention(const Launch& launch, const choral_attention_args& args);

// Stacks of f32, f16 and bf16; any rank.
cudaError_t bgmv_shrink(const Launch& launch, const choral_lora_args& args);
cudaError_t bgmv_expand(const Launch& launch, const choral_lora_args& args);  // slice_begin 0
cudaError_t bgmv_expand_slice(const Launch& launch, const choral_lora_args& args);
cudaError_t sgmv_shrink(const Launch& launch, const choral_lora_args& args);
cudaError_t sgmv_expand(const Launch& launch, const choral_lora_args& args);
cudaError_t sgmv_expand_slice(const Launch& launch, const choral_lora_args& args);
cudaError_t bgmv_scale(const Launch& launch, const choral_lora_args& args);
// What one slice of several is by itself.
choral_lora_args shrink_of(const choral_lora_slices_args& args, const choral_lora_slice& slice);
choral_lora_args expand_of(const choral_lora_slices_args& args, const choral_lora_slice& slice);
// One launch each, with the bits of these. The stacks have one type.
cudaError_t lora_shrink(const Launch& launch, const choral_lora_slices_args& args);
cudaError_t lora_expand(const Launch& launch, const choral_lora_slices_args& args);

}  // namespace choral_cuda
