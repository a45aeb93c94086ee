// Buffers for those who run the LoRA operations themselves: fp32 middles (tokens × rank) and outputs (tokens × columns), made
// once and lent out. A request that is too large, or that comes when all are out, gets memory of its own instead, and is counted:
// a steady state shows no fallbacks. (The engine's plan has its arena and does not use this.) 64-byte aligned; contents are what
// the last user left. For one thread: take and give back on the same one. Leases end before the pool does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/status.h"
#include "tensor/view.h"

namespace choral::lora {

struct LoRAMemoryPoolSize {
  int64_t max_tokens = 0;
  int64_t max_rank = 0;     // columns of a middle: all ranks that are computed at once
  int64_t max_columns = 0;  // of an output
  int middles = 1;
  int outputs = 1;
};

struct LoRAMemoryPoolStats {
  int64_t takes = 0;
  int64_t fallbacks = 0;                 // takes that allocated
  int64_t fallback_bytes = 0;            // of all of them together
  int middles_out = 0, outputs_out = 0;  // lent now, fallbacks included
  int most_middles_out = 0, most_outputs_out = 0;
  int64_t most_middle_floats = 0, most_output_floats = 0;  // the largest asked for
};

class LoRAMemoryPool {
 public:
  // A buffer until the end of its scope.
  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease();

    MatrixView<float> view() const { return view_; }
    bool is_fallback() const { return slot_ < 0; }

   private:
    friend class LoRAMemoryPool;
    Lease() = default;
    void give_back();

    LoRAMemoryPool* pool_ = nullptr;
    bool is_output_ = false;
    int slot_ = -1;  // of the pool; -1: own_
    AlignedBuffer own_;
    MatrixView<float> view_;
  };

  // invalid_argument for sizes that are negative or no buffers of a size; resource_exhausted when there is not so much memory.
  static Result<std::unique_ptr<LoRAMemoryPool>> make(const LoRAMemoryPoolSize& size);
  LoRAMemoryPool(const LoRAMemoryPool&) = delete;
  LoRAMemoryPool& operator=(const LoRAMemoryPool&) = delete;
  ~LoRAMemoryPool();

  // Fails only where a fallback finds no memory.
  Result<Lease> take_middle(int64_t tokens, int64_t rank);
  Result<Lease> take_output(int64_t tokens, int64_t columns);

  const LoRAMemoryPoolStats& stats() const { return stats_; }
  int64_t size_bytes() const;

 private:
  struct Buffers {
    int64_t floats = 0;  // of each
    std::vector<AlignedBuffer> all;
    std::vector<int> free;  // slots
  };

  LoRAMemoryPool() = default;
  static Status fill(Buffers& buffers, int64_t rows, int64_t cols, int count);
  Result<Lease> take(bool is_output, int64_t rows, int64_t cols);

  Buffers middles_, outputs_;
  LoRAMemoryPoolStats stats_;
};

}  // namespace choral::lora
