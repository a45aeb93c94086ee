#include "kernels/lora/lora.h"

#include <algorithm>
#include <cstring>

#include "kernels/lora/lora_stack.h"

namespace choral::kernels {
namespace {

bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

Status check_float(const char* name, DType type) {
  if (is_float(type)) return {};
  return invalid_argument("{} has type {}, expected float32, float16 or bfloat16", name, dtype_name(type));
}

Status check_memory(const char* name, const std::byte* data, const Shape& shape, const Device& device) {
  for (const int64_t d : shape.dims()) {
    if (d < 0) return invalid_argument("{} has shape {}: a dimension is negative", name, shape.to_string());
  }
  if (!device.host_accessible) return invalid_argument("{} lies on a device the host cannot read, expected host memory", name);
  if (data == nullptr && shape.elements() > 0) return invalid_argument("{} {} has no data", name, shape.to_string());
  return {};
}

Status check_matrix(const char* name, const std::byte* data, DType type, const Shape& shape, const Device& device,
                    const char* expected) {
  if (shape.rank() != 2) return invalid_argument("{} has shape {}, expected {}", name, shape.to_string(), expected);
  CHORAL_RETURN_IF_ERROR(check_float(name, type));
  return check_memory(name, data, shape, device);
}

// [n, rows, cols] or [n, 1, rows, cols]
Result<LoRAStack> check_stack(const char* name, TensorView w, const char* expected) {
  const Shape& s = w.shape;
  const bool squeezed = s.rank() == 4 && s[1] == 1;
  if (s.rank() != 3 && !squeezed) return invalid_argument("{} has shape {}, expected {}", name, s.to_string(), expected);
  CHORAL_RETURN_IF_ERROR(check_float(name, w.dtype));
  CHORAL_RETURN_IF_ERROR(check_memory(name, w.data, s, w.device));
  const LoRAStack stack{w.data, w.dtype, s[0], s[s.rank() - 2], s[s.rank() - 1], row_bytes(w.dtype, s[s.rank() - 1])};
  if (stack.rows == 0 || stack.cols == 0) {
    return invalid_argument("{} has shape {}: rows and columns must be at least 1", name, s.to_string());
  }
  return stack;
}

// A vector of `count` integers, copied to scratch.
Result<std::span<const int64_t>> read_integers(const char* name, TensorView t, int64_t count, const char* count_name,
                                               Arena& scratch) {
  if (t.shape.rank() != 1 || t.shape[0] != count) {
    return invalid_argument("{} has shape {}, expected [{}], one for each of {}", name, t.shape.to_string(), count, count_name);
  }
  if (t.dtype != DType::kI32 && t.dtype != DType::kI64) {
    return invalid_argument("{} has type {}, expected int32 or int64", name, dtype_name(t.dtype));
  }
  CHORAL_RETURN_IF_ERROR(check_memory(name, t.data, t.shape, t.device));
  const std::span<int64_t> values = scratch.make<int64_t>(count);
  for (size_t i = 0; i < values.size(); ++i) {
    if (t.dtype == DType::kI64) {
      std::memcpy(&values[i], t.data + i * 8, 8);
    } else {
      int32_t v;
      std::memcpy(&v, t.data + i * 4, 4);
      values[i] = v;
    }
  }
  return std::span<const int64_t>(values);
}

Status check_indices(std::span<const int64_t> indices, int64_t adapters) {
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < -1 || indices[i] >= adapters) {
      return invalid_argument("lora_indices_tensor[{}] is {}, expected -1 (base) or 0 to {}, the last of {} stacked adapters", i,
                              indices[i], adapters - 1, adapters);
    }
  }
  return {};
}

// sgmv's description of sequences.
struct Sequences {
  TensorView start, length;
  int64_t batches, max_length, tokens;
};

// Repeats each sequence's index for its rows.
Result<std::span<const int64_t>> repeat(const Sequences& s, std::span<const int64_t> of_sequence, Arena& scratch) {
  CHORAL_TRY(const auto start, read_integers("b_seq_start_loc", s.start, s.batches, "batches", scratch));
  CHORAL_TRY(const auto length, read_integers("seq_len_tensor", s.length, s.batches, "batches", scratch));
  int64_t total = 0;
  for (size_t i = 0; i < length.size(); ++i) {
    if (length[i] < 0 || length[i] > s.tokens - total) {
      return invalid_argument(
          "seq_len_tensor[{}] is {}, expected 0 to {}: {} of token_nums = {} rows are taken by the sequences before", i,
          length[i], s.tokens - total, total, s.tokens);
    }
    if (length[i] > s.max_length) {
      return invalid_argument("max_seq_length is {}, expected at least seq_len_tensor[{}] = {}", s.max_length, i, length[i]);
    }
    if (start[i] != total) {
      return invalid_argument("b_seq_start_loc[{}] is {}, expected {}, the sum of the lengths before", i, start[i], total);
    }
    total += length[i];
  }
  if (total != s.tokens) return invalid_argument("token_nums is {}, expected the sum of seq_len_tensor, {}", s.tokens, total);
  const std::span<int64_t> of_token = scratch.make<int64_t>(total);
  auto to = of_token.begin();
  for (size_t i = 0; i < length.size(); ++i) to = std::fill_n(to, length[i], of_sequence[i]);
  return std::span<const int64_t>(of_token);
}

// What all six share: inputs, indices (through `sequences` for sgmv) and the rows of output.
Result<LoRAGroups> group(const Context& ctx, TensorView inputs, const LoRAStack& stack, MutableTensorView output,
                         TensorView indices, const Sequences* sequences) {
  CHORAL_RETURN_IF_ERROR(check_matrix("inputs", inputs.data, inputs.dtype, inputs.shape, inputs.device, "[tokens, features]"));
  CHORAL_RETURN_IF_ERROR(
      check_matrix("output_tensor", output.data, output.dtype, output.shape, output.device, "[rows, features]"));
  if (reinterpret_cast<uintptr_t>(output.data) % static_cast<uintptr_t>(row_bytes(output.dtype, 1)) != 0) {
    return invalid_argument("output_tensor begins within an element, expected an address aligned to {}",
                            dtype_name(output.dtype));
  }
  const int64_t tokens = inputs.shape[0], rows = output.shape[0];
  if (inputs.shape[1] != stack.cols) {
    return invalid_argument("inputs has shape {}, expected [tokens, {}] to fit the weights", inputs.shape.to_string(),
                            stack.cols);
  }
  if (tokens < rows && tokens != 1) {
    return invalid_argument("inputs has {} rows, expected 1 or at least the {} rows of output_tensor", tokens, rows);
  }
  if (sequences != nullptr) {
    if (sequences->batches < 0) return invalid_argument("batches is {}, expected the number of sequences", sequences->batches);
    if (sequences->tokens != tokens) {
      return invalid_argument("token_nums is {}, expected {}, the rows of inputs", sequences->tokens, tokens);
    }
  }
  CHORAL_TRY(auto index, read_integers("lora_indices_tensor", indices, sequences == nullptr ? tokens : sequences->batches,
                                       sequences == nullptr ? "inputs' rows" : "batches", ctx.scratch));
  CHORAL_RETURN_IF_ERROR(check_indices(index, stack.count));
  if (sequences != nullptr) {
    CHORAL_TRY(index, repeat(*sequences, index, ctx.scratch));
  }
  return group_rows(index, rows, stack.count, ctx.scratch);
}

Status shrink(const Context& ctx, TensorView inputs, TensorView weights, MutableTensorView output, TensorView indices,
              const Sequences* sequences, float scaling) {
  const Arena::Mark mark(ctx.scratch);
  CHORAL_TRY(const LoRAStack a, check_stack("lora_a_weights", weights, "[n, r, in] or [n, 1, r, in]"));
  CHORAL_TRY(const LoRAGroups groups, group(ctx, inputs, a, output, indices, sequences));
  shrink_stack(ctx, groups, inputs, a, scaling, std::min(output.shape[1], a.rows), output);
  return {};
}

struct SliceOfOutput {
  int64_t offset, size;
};

Status expand(const Context& ctx, TensorView inputs, TensorView weights, MutableTensorView output, TensorView indices,
              const Sequences* sequences, const SliceOfOutput* slice, bool add) {
  const Arena::Mark mark(ctx.scratch);
  CHORAL_TRY(const LoRAStack b, check_stack("lora_b_weights", weights, "[n, out, r] or [n, 1, out, r]"));
  CHORAL_TRY(const LoRAGroups groups, group(ctx, inputs, b, output, indices, sequences));
  const int64_t width = output.shape[1];
  if (slice == nullptr) {
    expand_stack(ctx, groups, inputs, b, add, 0, std::min(width, b.rows), output);
    return {};
  }
  if (slice->offset < 0 || slice->offset > width) {
    return invalid_argument("slice_offset is {}, expected 0 to {}, the columns of output_tensor", slice->offset, width);
  }
  if (slice->size != b.rows) {
    return invalid_argument("slice_size is {}, expected {}, the outputs of lora_b_weights {}", slice->size, b.rows,
                            weights.shape.to_string());
  }
  if (slice->size > width - slice->offset) {
    return invalid_argument("slice_size is {} at slice_offset {}, expected at most {}: output_tensor has {} columns", slice->size,
                            slice->offset, width - slice->offset, width);
  }
  expand_stack(ctx, groups, inputs, b, add, slice->offset, slice->size, output);
  return {};
}

Status scale_rows(const Context& ctx, TensorView factors, MutableTensorView output, TensorView indices) {
  const Arena::Mark mark(ctx.scratch);
  CHORAL_RETURN_IF_ERROR(check_matrix("factors", factors.data, factors.dtype, factors.shape, factors.device, "[n, features]"));
  CHORAL_RETURN_IF_ERROR(
      check_matrix("output_tensor", output.data, output.dtype, output.shape, output.device, "[rows, features]"));
  if (factors.dtype != DType::kF32 || output.dtype != DType::kF32) {
    return invalid_argument("factors are {} and output_tensor {}, expected float32 both", dtype_name(factors.dtype),
                            dtype_name(output.dtype));
  }
  if (factors.shape[1] != output.shape[1]) {
    return invalid_argument("factors have shape {}, expected [n, {}] to fit output_tensor", factors.shape.to_string(),
                            output.shape[1]);
  }
  CHORAL_TRY(const auto index,
             read_integers("lora_indices_tensor", indices, output.shape[0], "output_tensor's rows", ctx.scratch));
  CHORAL_RETURN_IF_ERROR(check_indices(index, factors.shape[0]));
  constexpr int64_t kGrain = 8;
  const int64_t cols = output.shape[1];
  ctx.pool.parallel_for(output.shape[0], kGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      if (index[row] < 0) continue;
      const auto* factor = reinterpret_cast<const float*>(factors.row(index[row]));
      float* out = reinterpret_cast<float*>(output.data) + row * cols;
      for (int64_t c = 0; c < cols; ++c) out[c] *= factor[c];
    }
  });
  return {};
}

}  // namespace

Status bgmv_shrink(const Context& ctx, TensorView inputs, TensorView lora_a_weights, MutableTensorView output_tensor,
                   TensorView lora_indices_tensor, float scaling) {
  return shrink(ctx, inputs, lora_a_weights, output_tensor, lora_indices_tensor, nullptr, scaling).while_("bgmv_shrink");
}

Status bgmv_expand(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                   TensorView lora_indices_tensor, bool add_inputs) {
  return expand(ctx, inputs, lora_b_weights, output_tensor, lora_indices_tensor, nullptr, nullptr, add_inputs)
      .while_("bgmv_expand");
}

Status bgmv_expand_slice(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                         TensorView lora_indices_tensor, int64_t slice_offset, int64_t slice_size, bool add_inputs) {
  const SliceOfOutput slice{slice_offset, slice_size};
  return expand(ctx, inputs, lora_b_weights, output_tensor, lora_indices_tensor, nullptr, &slice, add_inputs)
      .while_("bgmv_expand_slice");
}

Status bgmv_scale(const Context& ctx, TensorView factors, MutableTensorView output_tensor, TensorView lora_indices_tensor) {
  return scale_rows(ctx, factors, output_tensor, lora_indices_tensor).while_("bgmv_scale");
}

Status sgmv_shrink(const Context& ctx, TensorView inputs, TensorView lora_a_weights, MutableTensorView output_tensor,
                   TensorView b_seq_start_loc, TensorView seq_len_tensor, TensorView lora_indices_tensor, int64_t batches,
                   int64_t max_seq_length, int64_t token_nums, float scaling) {
  const Sequences sequences{b_seq_start_loc, seq_len_tensor, batches, max_seq_length, token_nums};
  return shrink(ctx, inputs, lora_a_weights, output_tensor, lora_indices_tensor, &sequences, scaling).while_("sgmv_shrink");
}

Status sgmv_expand(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                   TensorView b_seq_start_loc, TensorView seq_len_tensor, TensorView lora_indices_tensor, int64_t batches,
                   int64_t max_seq_length, int64_t token_nums, bool add_inputs) {
  const Sequences sequences{b_seq_start_loc, seq_len_tensor, batches, max_seq_length, token_nums};
  return expand(ctx, inputs, lora_b_weights, output_tensor, lora_indices_tensor, &sequences, nullptr, add_inputs)
      .while_("sgmv_expand");
}

Status sgmv_expand_slice(const Context& ctx, TensorView inputs, TensorView lora_b_weights, MutableTensorView output_tensor,
                         TensorView b_seq_start_loc, TensorView seq_len_tensor, TensorView lora_indices_tensor, int64_t batches,
                         int64_t max_seq_length, int64_t token_nums, int64_t slice_offset, int64_t slice_size, bool add_inputs) {
  const Sequences sequences{b_seq_start_loc, seq_len_tensor, batches, max_seq_length, token_nums};
  const SliceOfOutput slice{slice_offset, slice_size};
  return expand(ctx, inputs, lora_b_weights, output_tensor, lora_indices_tensor, &sequences, &slice, add_inputs)
      .while_("sgmv_expand_slice");
}

}  // namespace choral::kernels
