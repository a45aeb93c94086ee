// The six operations of multi-adapter LoRA on stacked weights, for engines that keep weights and batches themselves. Names, order
// of arguments and semantics are those of vLLM and vllm-ascend; results are written in place, nothing is copied.
//
//   auto ops = choral::LoRAOps::make();
//   (*ops)->bgmv_shrink({x, kF32, x_shape}, {a, kF32, a_shape}, {middle, kF32, middle_shape}, {index, kI64, index_shape}, 0.5F);
//
//   inputs [tokens, in]; A stack [n, r, in]; B stack [n, out, r]; a 4-D stack [n, 1, rows, cols] is taken as [n, rows, cols].
//   shrink:       output[:, :c] = scaling · inputs·A[index]ᵀ, c = min(output's columns, r)
//   expand:       output[:, :c] (+)= inputs·B[index]ᵀ,        c = min(output's columns, out)
//   expand_slice: output[:, slice_offset : slice_offset + slice_size] (+)= inputs·B[index]ᵀ, slice_size = out
//
// Index -1 is the base: its row is not touched, and other columns are not. sgmv_*: sequence i has seq_len_tensor[i] rows from
// b_seq_start_loc[i] on and index lora_indices_tensor[i]. The result of a single row goes to every row of a longer output.
// Inputs and weights are rounded to output's type first, sums are fp32, each result is rounded once. A row's result is the same
// bits whatever stands beside it, on any number of threads.
// Errors are invalid_argument naming the operation, the argument, its value and what was expected; then output is as it was.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "choral/status.h"

namespace choral {

// Contiguous, row-major, in this process's memory, of at most four dimensions.
struct LoRAArray {
  enum class Type : uint8_t { kF32, kF16, kBF16, kI32, kI64 };  // the last two for indices and lengths
  const void* data = nullptr;
  Type type = Type::kF32;
  std::span<const int64_t> shape = {};
};
// What is written: a matrix that overlaps no other argument.
struct MutableLoRAArray {
  void* data = nullptr;
  LoRAArray::Type type = LoRAArray::Type::kF32;
  std::span<const int64_t> shape = {};
};

// Has a pool of threads. Thread-safe: calls take turns. Not to be used in a forked process.
class CHORAL_API LoRAOps {
 public:
  // 0 threads: one for each physical core that this process has.
  static Result<std::unique_ptr<LoRAOps>> make(int threads = 0);
  virtual ~LoRAOps() = default;
  virtual int threads() const = 0;

  // lora_indices_tensor [tokens]: -1, or 0 … n - 1.
  virtual Status bgmv_shrink(LoRAArray inputs, LoRAArray lora_a_weights, MutableLoRAArray output_tensor,
                             LoRAArray lora_indices_tensor, float scaling = 1.0F) = 0;
  virtual Status bgmv_expand(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor,
                             LoRAArray lora_indices_tensor, bool add_inputs = true) = 0;
  virtual Status bgmv_expand_slice(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor,
                                   LoRAArray lora_indices_tensor, int64_t slice_offset, int64_t slice_size,
                                   bool add_inputs = true) = 0;

  // b_seq_start_loc, seq_len_tensor, lora_indices_tensor [batches]. b_seq_start_loc are the sums of the lengths before,
  // max_seq_length is at least the longest, token_nums their sum and the rows of inputs.
  virtual Status sgmv_shrink(LoRAArray inputs, LoRAArray lora_a_weights, MutableLoRAArray output_tensor,
                             LoRAArray b_seq_start_loc, LoRAArray seq_len_tensor, LoRAArray lora_indices_tensor, int64_t batches,
                             int64_t max_seq_length, int64_t token_nums, float scaling) = 0;
  virtual Status sgmv_expand(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor,
                             LoRAArray b_seq_start_loc, LoRAArray seq_len_tensor, LoRAArray lora_indices_tensor, int64_t batches,
                             int64_t max_seq_length, int64_t token_nums, bool add_inputs = false) = 0;
  virtual Status sgmv_expand_slice(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor,
                                   LoRAArray b_seq_start_loc, LoRAArray seq_len_tensor, LoRAArray lora_indices_tensor,
                                   int64_t batches, int64_t max_seq_length, int64_t token_nums, int64_t slice_offset,
                                   int64_t slice_size, bool add_inputs = false) = 0;
};

}  // namespace choral
