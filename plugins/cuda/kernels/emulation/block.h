// One block of an emulated kernel: every CUDA thread is a fiber, lanes of a warp wait for each other where they meet (shuffles,
// mma), threads of the block at barriers. Who waits for somebody who will never come is a fault of the kernel, which ends the
// process with a line that says where. Blocks run one after another, in the thread that waits for the stream.
//
// Shared memory is exactly as large as asked for and begins as NaNs; what a copy under way will write is NaN until it is waited
// for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}  // NOLINT: as CUDA's
};

namespace cuda_emulation {

inline constexpr int kWarpLanes = 32;

struct Warp;
struct Fiber;
struct AsyncProducts;  // emulated_wgmma.cc
struct CopyBarriers;   // emulated_barriers.cc

struct Thread {
  uint3 index{};
  int lane = 0;
  Warp* warp = nullptr;
  Fiber* fiber = nullptr;
  std::shared_ptr<AsyncProducts> products;
};

struct Block {
  uint3 index{};
  dim3 threads, blocks;
  unsigned char* shared = nullptr;
  size_t shared_bytes = 0;
  std::shared_ptr<CopyBarriers> barriers;
};

extern Thread* current_thread;
extern Block* current_block;

// Runs `body` in every thread of every block. Blocks have whole warps.
void run_grid(dim3 blocks, dim3 threads, size_t shared_bytes, const std::function<void()>& body);

// All threads of the block come here, or nobody goes on.
void barrier();

// The calling thread goes on once the word has changed; `at` says where it waits.
void wait_while(const uint32_t* word, const char* at);

// All lanes of the warp come here with an operand each; the last one does `what` to all operands.
using Meeting = void (*)(void* const* operands);
void meet(Meeting what, void* operand);

// cp.async of the calling thread: `bytes` from global memory, of which those from `valid` on become zero.
void copy_async(void* to, const void* from, int bytes, int valid);
void commit_copies();
void wait_copies(int groups_left);
// What the calling thread waited for is seen by products that read shared memory themselves, once threads have met.
void show_copies();
// Of all threads, or the process ends.
void expect_copies_shown();

// The calling thread may use what earlier kernels wrote; one that ends without it, ends the process.
void wait_for_earlier_kernels();
void expect_waited();

// A fault of the kernel: ends the process with a line that says where.
[[noreturn]] void fail(const char* what);

}  // namespace cuda_emulation
