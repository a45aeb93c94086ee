// The six operations of multi-adapter LoRA on stacked weights, by their usual names, argument order and semantics, and bgmv_scale
// for DoRA. They are what a device with memory of its own computes adapters with, and here the definition that it is held to; on
// the host's memory the engine runs lora_matrix.h (no stacks, true ranks).
//   inputs [tokens, in]; A stack [n, r, in]; B stack [n, out, r]; a 4-D stack [n, 1, rows, cols] is taken as [n, rows, cols].
//   shrink:       output[:, :c] = scaling · inputs·A[index]ᵀ, c = min(output's columns, r)
//   expand:       output[:, :c] (+)= inputs·B[index]ᵀ,        c = min(output's columns, out)
//   expand_slice: output[:, slice_offset : slice_offset + slice_size] (+)= inputs·B[index]ᵀ, slice_size = out
// Other columns are not touched. inputs and weights (float32, float16, bfloat16) are first rounded to output's type, sums are
// fp32, and a result is rounded once: an addition reads output, adds in fp32, rounds.
// Rows: results beyond output's rows are dropped; the result of exactly one row goes to every row of a longer output; any other
// difference is an error. Index -1 is the base: its row gets exactly nothing. It is not written at all, neither by shrink nor by
// expand, with add_inputs or without, so what it held stays bit for bit and its inputs may be garbage.
// sgmv_*: sequence i has rows [b_seq_start_loc[i], + seq_len_tensor[i]) and index lora_indices_tensor[i]; equal to bgmv_* with
// the indices repeated for each row. Lengths may be 0.
// Errors are invalid_argument naming the operation, the argument, its value and what was expected; then output is as it was.
// Rows are grouped by index and divided over ctx.pool, so an adapter is read once whatever the number of its rows; each result is
// one sum in one order (invariant 1). Allocates only from ctx.scratch. output overlaps no other argument. Oracle: ref/lora.h.
#pragma once

#include "base/status.h"
#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::kernels {

// What an operation writes: [rows, cols], contiguous, row-major.
struct MutableTensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;  // float32, float16 or bfloat16
  Shape shape;
  Device device;
};

// lora_indices_tensor [tokens], int32 or int64: -1 or 0 … n - 1.
Status bgmv_shrink(const Context& ctx, TensorView inputs, TensorView lora_a_weights, MutableTensorView output_tensor,
                   TensorView lora_indices_tensor, float scaling = 1.0F);
Status bgmv_expand(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                   TensorView lora_indices_tensor, bool add_inputs = true);
Status bgmv_expand_slice(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                         TensorView lora_indices_tensor, int64_t slice_offset, int64_t slice_size, bool add_inputs = true);

// output_tensor[row, :] *= factors[index, :]; what DoRA does to the base's product. factors [n, features], float32 as
// output_tensor. Rows as above, index -1 too: such a row is not touched.
Status bgmv_scale(const Context& ctx, TensorView factors, MutableTensorView output_tensor, TensorView lora_indices_tensor);

// b_seq_start_loc, seq_len_tensor, lora_indices_tensor [batches], int32 or int64. b_seq_start_loc are the sums of the lengths
// before, max_seq_length is at least the longest, token_nums their sum and the rows of inputs.
Status sgmv_shrink(const Context& ctx, TensorView inputs, TensorView lora_a_weights, MutableTensorView output_tensor,
                   TensorView b_seq_start_loc, TensorView seq_len_tensor, TensorView lora_indices_tensor, int64_t batches,
                   int64_t max_seq_length, int64_t token_nums, float scaling);
Status sgmv_expand(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                   TensorView b_seq_start_loc, TensorView seq_len_tensor, TensorView lora_indices_tensor, int64_t batches,
                   int64_t max_seq_length, int64_t token_nums, bool add_inputs = false);
Status sgmv_expand_slice(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                         TensorView b_seq_start_loc, TensorView seq_len_tensor, TensorView lora_indices_tensor, int64_t batches,
                         int64_t max_seq_length, int64_t token_nums, int64_t slice_offset, int64_t slice_size,
                         bool add_inputs = false);

}  // namespace choral::kernels
