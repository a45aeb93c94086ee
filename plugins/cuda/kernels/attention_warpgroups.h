// Attention of prompts on wgmma: a block of threads has one or two warpgroups, each with 64 (row of x, head) pairs of one
// sequence and kv head. A block of the cache, 32 positions, comes to shared memory in two pieces, keys and values, a few blocks
// ahead; products read it, and q, where they lie. One warpgroup weighs its scores while the other's products run.
//
// The arithmetic and its order are those of attention_rows.h.
#pragma once

#include "attention_rows.h"
#include "barriers.h"

namespace choral_cuda {

template <class Form, int warpgroups>
struct AttentionWarpgroups {
  static constexpr int kWarps = warpgroups * kWarpgroup / kWarp;
  static constexpr int kQElements = q_elements<kWarpgroup / kWarp>(Form::head);  // of a warpgroup
  static constexpr uint32_t kQBytes = warpgroups * kQElements * sizeof(uint16_t);
  static constexpr uint32_t kKeyBytes = kCacheBlockTokens * Form::head * Form::planes * sizeof(uint16_t);  // and of values
  static constexpr uint32_t kStageBytes = 2 * kKeyBytes;
  static constexpr int kStages = warpgroups == 1 ? 2 : 4;
  static constexpr int kBehind = warpgroups;  // blocks that a warp may be behind before others wait for it
  static constexpr size_t kSharedBytes = kQBytes + kStages * kStageBytes + 2 * kStages * kBarrierBytes;
  static_assert(kSharedBytes * (3 - warpgroups) <= 226 << 10);
};

template <class Form, int warpgroups>
__global__ void __launch_bounds__(warpgroups* kWarpgroup, 3 - warpgroups) attention_warpgroup_kernel(Attention a) {
  using Shape = AttentionWarpgroups<Form, warpgroups>;
  constexpr int kStages = Shape::kStages;
  auto* shared = shared_memory<unsigned char>();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroup;
  auto* q = reinterpret_cast<uint16_t*>(shared) + warpgroup * Shape::kQElements;
  const uint32_t q_address = shared_address(q), barriers = shared_address(shared) + Shape::kQBytes + kStages * Shape::kStageBytes;
  // Blocks of the cache are counted over all items.
  const auto stage_of = [&](int n) { return shared + Shape::kQBytes + n % kStages * Shape::kStageBytes; };
  const auto keys_of = [&](int n) { return shared_address(stage_of(n)); };
  const auto there = [&](int n) { return barriers + n % kStages * kBarrierBytes; };
  const auto done = [&](int n) { return barriers + (kStages + n % kStages) * kBarrierBytes; };
  const auto parity = [&](int n) { return static_cast<uint32_t>(n / kStages & 1); };
  if (threadIdx.x == 0) {
    for (int n = 0; n < kStages; ++n) start_barrier(there(n), 1), start_barrier(done(n), Shape::kWarps);
    show_barriers();
  }
  wait_for_earlier_kernels();
  const HeadPart part(a, blockIdx.y);
  int first = 0;  // of the item
  ItemWalk walk;
  Item found;
  for (int64_t i = blockIdx.x; walk.find(a, i, &found); i += gridDim.x) {
    const BlockItem item(a, found);
    const int blocks = static_cast<int>(item.end - item.begin);
    // One thread's: a block on its way, once all are done with what has its place.
    const auto fetch = [&](int n) {
      if (n >= blocks) return;
      const int at = first + n;
      if (at >= kStages) wait_phase(done(at), parity(at) ^ 1);
      const int32_t id = a.block_ids[item.sequence.first_block + item.begin + n];
      if (id < 0 || id >= a.cache.blocks) {
        report(a.fault, kBlockBeyond);
        arrive(there(at));
        return;
      }
      arrive_and_expect(there(at), Shape::kStageBytes);
      copy_bulk(keys_of(at), a.cache.key_block(id, part.kv_head), Shape::kKeyBytes, there(at));
      copy_bulk(keys_of(at) + Shape::kKeyBytes, a.cache.value_block(id, part.kv_head), Shape::kKeyBytes, there(at));
    };
    __syncthreads();  // barriers are there, and nobody reads q of the item before
    if (threadIdx.x == 0) {
      for (int n = 0; n < kStages - Shape::kBehind; ++n) fetch(n);
    }
    __syncwarp();
    AttentionRows<Form, kWarpgroup / kWarp> rows(a, item, part, q);
    show_to_products();
    __syncthreads();

    const auto leave = [&](int n) {
      if (threadIdx.x % kWarp == 0) arrive(done(n));
    };
    for (int n = 0; n < blocks; ++n) {
      const int at = first + n;
      const int64_t block = item.begin + n, left = item.tokens() - block * kCacheBlockTokens;
      wait_phase(there(at), parity(at));
      if (left < kCacheBlockTokens) {  // the sequence's last block
        forget_values<Form>(reinterpret_cast<uint4*>(stage_of(at) + Shape::kKeyBytes), Form::head, Shape::kKeyBytes / 16,
                            static_cast<int>(left));
        show_to_products();
        __syncthreads();
      }
      rows.begin(q_address, keys_of(at));
      if (n > 0) leave(at - 1);
      rows.go_on(block, keys_of(at) + Shape::kKeyBytes);
      if (threadIdx.x == 0) fetch(n + kStages - Shape::kBehind);
      __syncwarp();
    }
    wait_groups<0>();
    rows.end_products();
    if (blocks > 0) leave(first + blocks - 1);
    rows.finish();
    first += blocks;
  }
}

}  // namespace choral_cuda
