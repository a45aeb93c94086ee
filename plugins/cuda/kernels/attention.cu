// Attention over the paged cache. A block of threads has rows of one sequence and one kv head; the cache's fragments come through
// shared memory, a block of 32 positions ahead, and its warps share them. Prompts have blocks of many warps, sequences of one
// tile a warp for each range.
#include <algorithm>

#include "attention_warpgroups.h"

namespace choral_cuda {
namespace {

constexpr int kMostWarps = 8;

// Blocks of the cache on their way into shared memory: keys of the head, and the slice of its values.
template <class Form>
struct CacheStages {
  const Attention& a;
  const HeadPart& part;
  uint16_t* shared;  // [stage][keys, values]
  int key_elements, value_elements;

  __device__ __forceinline__ CacheStages(const Attention& a_, const HeadPart& part_, void* shared_)
      : a(a_),
        part(part_),
        shared(static_cast<uint16_t*>(shared_)),
        key_elements(kCacheBlockTokens * a.cache.head_dim * Form::planes),
        value_elements(Form::values_in_keys ? 0
                                            : min_of(a.cache.v_head_dim / 16 - part.slice * kSliceTiles, kSliceTiles) * 2 *
                                                  Form::planes * kFragment) {}

  __device__ __forceinline__ uint16_t* keys(int stage) const { return shared + stage * (key_elements + value_elements); }
  __device__ __forceinline__ uint16_t* values(int stage) const { return keys(stage) + (Form::values_in_keys ? 0 : key_elements); }

  __device__ __forceinline__ void fetch(int64_t id, int stage) const {
    copy(keys(stage), a.cache.key_block(id, part.kv_head), key_elements);
    if constexpr (!Form::values_in_keys) {
      copy(values(stage), a.cache.value_block(id, part.kv_head) + part.slice * kSliceTiles * 2 * Form::planes * kFragment,
           value_elements);
    }
    commit_async_copies();
  }

  // What lies behind a sequence's last token, of which the block has `left`, is anybody's, and may be no number.
  __device__ __forceinline__ void forget_behind(int stage, int64_t left) const {
    if (left >= kCacheBlockTokens) return;
    forget_values<Form>(reinterpret_cast<uint4*>(values(stage)), a.cache.head_dim,
                        (Form::values_in_keys ? key_elements : value_elements) / 8, static_cast<int>(left));
    __syncthreads();
  }

 private:
  static __device__ __forceinline__ void copy(uint16_t* to, const uint16_t* from, int elements) {
    for (int at = static_cast<int>(threadIdx.x) * 8; at < elements; at += static_cast<int>(blockDim.x) * 8) {
      copy_16_async(to + at, from + at, true);
    }
  }
};

template <class Form>
__global__ void __launch_bounds__(kMostWarps* kWarp) attention_kernel(Attention a) {
  wait_for_earlier_kernels();
  const HeadPart part(a, blockIdx.y);
  const int warps = static_cast<int>(blockDim.x) / kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const int q_of_warp = q_elements<1>(a.cache.head_dim);
  auto* q = shared_memory<uint16_t>() + warp * q_of_warp;
  const CacheStages<Form> stages(a, part, shared_memory<uint16_t>() + warps * q_of_warp);
  ItemWalk walk;
  Item found;
  for (int64_t i = blockIdx.x; walk.find(a, i, &found); i += gridDim.x) {
    const BlockItem item(a, found);
    const auto id_of = [&](int64_t block) -> int64_t {
      if (block >= item.end) return -1;
      const int32_t id = a.block_ids[item.sequence.first_block + block];
      return id < a.cache.blocks ? id : -1;
    };
    __syncthreads();  // nobody reads stages of the item before
    int64_t id = id_of(item.begin), next = id_of(item.begin + 1);
    if (id >= 0) stages.fetch(id, 0);
    AttentionRows<Form, 1> rows(a, item, part, q);
    int64_t block = item.begin;
    for (int stage = 0; block < item.end && id >= 0; ++block) {
      const int64_t behind = id_of(block + 2);  // its load is waited for while blocks before it are multiplied
      wait_async_copies<0>();
      __syncthreads();  // and nobody reads the stage before
      if (a.stages == 2 && next >= 0) stages.fetch(next, 1 - stage);
      stages.forget_behind(stage, item.tokens() - block * kCacheBlockTokens);
      if (rows.sees(block)) rows.go_through(block, stages.keys(stage), stages.values(stage));
      if (a.stages == 2) {
        stage = 1 - stage;
      } else if (next >= 0) {
        __syncthreads();
        stages.fetch(next, 0);
      }
      id = next, next = behind;
    }
    if (block != item.end || (item.is_split && item.split >= a.part_capacity)) {
      if (threadIdx.x == 0) report(a.fault, kBlockBeyond);
    } else if (!item.is_split) {
      rows.finish();
    } else if (warp == 0) {
      rows.store_range(a.parts + (item.split * gridDim.y + blockIdx.y) * kColumns * kPartFloats);
    }
  }
}

// The ranges of sequences of one tile, in order. A thread has an element of the slice.
__global__ void __launch_bounds__(kSlice) combine_kernel(Attention a) {
  wait_for_earlier_kernels();
  const int64_t index = blockIdx.x;
  int32_t splits = 0;  // of the sequences before
  for (int64_t i = threadIdx.x % kWarp; i < index; i += kWarp) splits += Share::of(a, i).splits;
  for (int step = kWarp / 2; step > 0; step /= 2) splits += __shfl_xor_sync(kAllLanes, splits, step);
  const Share share = Share::of(a, index);
  if (splits + share.splits > a.part_capacity) return;
  const HeadPart head_part(a, blockIdx.y);
  const int at = static_cast<int>(threadIdx.x), v_left = a.v_head_dim - head_part.slice * kSlice;
  if (share.splits == 0 || at >= v_left) return;
  for (int column = 0; column < kColumns; ++column) {
    if (!a.has(share.sequence, 0, head_part.chunk, column)) continue;
    const int64_t head = head_part.head(a, column);
    Softmax total = sink_or_nothing(a.sinks, head);
    float sum = 0.0f;
#pragma unroll 4
    for (int range = 0; range < share.splits; ++range) {
      const float* part =
          a.parts + ((int64_t{splits} + range) * gridDim.y + blockIdx.y) * kColumns * kPartFloats + column * kPartFloats;
      sum = merge_value(sum, part[2 + at], merge(&total, {part[0], part[1]}));
    }
    a.out[share.sequence.query_begin + a.row_of(0, column)][head * a.v_head_dim + head_part.slice * kSlice + at] =
        sum * (1.0f / total.sum);
  }
}

using AttentionKernel = void(Attention);

template <bool f16, int planes>
AttentionKernel* kernel_of(const choral_kv_cache& cache) {
  if (cache.values == nullptr) return attention_kernel<CacheForm<f16, planes, true, 0>>;
  if (cache.head_dim == 128 && cache.v_head_dim == 128) return attention_kernel<CacheForm<f16, planes, false, 128>>;
  if (cache.head_dim == 64 && cache.v_head_dim == 64) return attention_kernel<CacheForm<f16, planes, false, 64>>;
  return attention_kernel<CacheForm<f16, planes, false, 0>>;
}

AttentionKernel* kernel_for(const choral_kv_cache& cache) {
  if (cache.dtype == CHORAL_F16) return kernel_of<true, 1>(cache);
  return cache.dtype == CHORAL_BF16 ? kernel_of<false, 1>(cache) : kernel_of<false, 2>(cache);
}

int64_t shared_bytes(const choral_kv_cache& args, int64_t warps, int stages) {
  const CacheView cache(args);
  const int64_t q = q_elements<1>(cache.head_dim) * int64_t{sizeof(uint16_t)};
  const int64_t elements = cache.head_dim + (cache.values == nullptr ? 0 : std::min(cache.v_head_dim, kSlice));
  return warps * q + stages * elements * kCacheBlockTokens * cache.planes * int64_t{sizeof(uint16_t)};
}

// Blocks of `warps` warps, each warp with two tiles of long sequences.
cudaError_t launch_items(const Launch& launch, const choral_attention_args& args, Takes takes, int64_t warps) {
  Attention a(launch, args, static_cast<int>(warps) * kTilesOfWarp, takes);
  a.stages = shared_bytes(args.cache, warps, 2) <= static_cast<int64_t>(launch.block_shared_bytes) ? 2 : 1;
  const int64_t blocks = std::min<int64_t>(a.most_items(), 1 << 16);
  const GridShape shape{dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(a.grid_y())),
                        dim3(static_cast<unsigned>(warps * kWarp)),
                        static_cast<size_t>(shared_bytes(args.cache, warps, a.stages))};
  return launch_kernel(kernel_for(args.cache), shape, launch, a);
}

// Prompts by warpgroups, where one kernel knows the whole head and scores are not capped.
template <class Form, int warpgroups>
cudaError_t launch_warpgroups(const Launch& launch, const choral_attention_args& args) {
  using Shape = AttentionWarpgroups<Form, warpgroups>;
  const Attention a(launch, args, Shape::kWarps * kTilesOfWarp, Takes::kLong);
  if (warpgroups == 2 && ceil_div<int64_t>(a.rows, a.item_rows) * a.grid_y() < 2 * launch.sm_count) {
    return launch_warpgroups<Form, 1>(launch, args);
  }
  const GridShape shape{
      dim3(static_cast<unsigned>(std::min<int64_t>(a.most_items(), 1 << 16)), static_cast<unsigned>(a.grid_y())),
      dim3(warpgroups * kWarpgroup), Shape::kSharedBytes};
  return launch_kernel(attention_warpgroup_kernel<Form, warpgroups>, shape, launch, a);
}

using LaunchPrompts = cudaError_t(const Launch& launch, const choral_attention_args& args);

template <bool f16, int planes>
LaunchPrompts* warpgroups_of(int64_t head) {
  return head == 128 ? launch_warpgroups<CacheForm<f16, planes, false, 128>, 2>
                     : launch_warpgroups<CacheForm<f16, planes, false, 64>, 2>;
}

// Null: they do not take it.
LaunchPrompts* warpgroups_for(const Launch& launch, const choral_attention_args& args) {
  const choral_kv_cache& cache = args.cache;
  const bool is_known = (cache.head_dim == 64 || cache.head_dim == 128) && cache.v_head_dim == cache.head_dim;
  if (!launch.has_wgmma || !is_known || cache.values == nullptr || args.softcap > 0.0f) return nullptr;
  if (cache.dtype == CHORAL_F16) return warpgroups_of<true, 1>(cache.head_dim);
  return cache.dtype == CHORAL_BF16 ? warpgroups_of<false, 1>(cache.head_dim) : warpgroups_of<false, 2>(cache.head_dim);
}

// The same by warps. Many of them share more of what they read; fewer where a block has no room for them, or some multiprocessors
// would have none.
cudaError_t launch_prompts(const Launch& launch, const choral_attention_args& args) {
  int64_t warps = kMostWarps;
  while (warps > 1 && shared_bytes(args.cache, warps, 2) > static_cast<int64_t>(launch.block_shared_bytes)) warps /= 2;
  const auto blocks = [&] {
    const Attention a(launch, args, static_cast<int>(warps) * kTilesOfWarp, Takes::kLong);
    return ceil_div<int64_t>(a.rows, a.item_rows) * a.grid_y();
  };
  while (warps > 2 && blocks() < 2 * launch.sm_count) warps /= 2;
  return launch_items(launch, args, Takes::kLong, warps);
}

}  // namespace

size_t paged_attention_scratch_bytes(const choral_attention_args& args) {
  const Attention a(Launch{}, args, kTilesOfWarp, Takes::kShort);
  return static_cast<size_t>(a.part_capacity * a.grid_y()) * kColumns * kPartFloats * sizeof(float);
}

cudaError_t paged_attention(const Launch& launch, const choral_attention_args& args) {
  if (args.q.rows == 0 || args.sequence_count == 0) return cudaSuccess;
  // How many rows a sequence has is known on the device alone; that none has more than a tile is sure where each has one.
  if (args.q.rows > args.sequence_count) {
    LaunchPrompts* by_warpgroups = warpgroups_for(launch, args);
    const cudaError_t error = by_warpgroups != nullptr ? by_warpgroups(launch, args) : launch_prompts(launch, args);
    if (error != cudaSuccess) return error;
  }
  const cudaError_t error = launch_items(launch, args, Takes::kShort, 1);
  if (error != cudaSuccess) return error;
  const Attention a(launch, args, kTilesOfWarp, Takes::kShort);
  return launch_kernel(combine_kernel,
                       {dim3(static_cast<unsigned>(args.sequence_count), static_cast<unsigned>(a.grid_y())), dim3(kSlice)},
                       launch, a);
}

}  // namespace choral_cuda
