// The public operators: their checks of plain pointers, and the kernels behind them on a pool of their own.
#include "choral/lora_ops.h"

#include <mutex>

#include "base/cpu_level.h"
#include "base/out_of_memory.h"
#include "kernels/lora/lora.h"

namespace choral {
namespace {

constexpr int kMostOpThreads = 1024;

DType dtype_of(LoRAArray::Type type) {
  switch (type) {
    case LoRAArray::Type::kF16: return DType::kF16;
    case LoRAArray::Type::kBF16: return DType::kBF16;
    case LoRAArray::Type::kI32: return DType::kI32;
    case LoRAArray::Type::kI64: return DType::kI64;
    case LoRAArray::Type::kF32: break;
  }
  return DType::kF32;
}

struct NamedArray {
  const char* name;
  LoRAArray array;
};

TensorView view_of(const LoRAArray& array) {
  return {static_cast<const std::byte*>(array.data), dtype_of(array.type), Shape(array.shape), kCpuDevice};
}

Status check_dimensions(const char* name, std::span<const int64_t> shape) {
  if (shape.size() <= Shape::kMaxRank) return {};
  return invalid_argument("{} has {} dimensions, expected at most {}", name, shape.size(), Shape::kMaxRank);
}

// The operation writes while it reads.
Status check_apart(const NamedArray& given, const MutableLoRAArray& output) {
  const TensorView read = view_of(given.array), written = view_of({output.data, output.type, output.shape});
  if (read.shape.elements() <= 0 || written.shape.elements() <= 0) return {};
  if (read.data >= written.data + written.size_bytes() || written.data >= read.data + read.size_bytes()) return {};
  return invalid_argument("output_tensor overlaps {}; give it memory of its own", given.name);
}

class PooledLoRAOps final : public LoRAOps {
 public:
  explicit PooledLoRAOps(std::unique_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  int threads() const override { return pool_->size(); }

  Status bgmv_shrink(LoRAArray inputs, LoRAArray lora_a_weights, MutableLoRAArray output_tensor, LoRAArray lora_indices_tensor,
                     float scaling) override {
    return run("bgmv_shrink", {{"inputs", inputs}, {"lora_a_weights", lora_a_weights}, indices(lora_indices_tensor)},
               output_tensor, [&](const kernels::Context& ctx, const kernels::MutableTensorView& out) {
                 return kernels::bgmv_shrink(ctx, view_of(inputs), view_of(lora_a_weights), out, view_of(lora_indices_tensor),
                                             scaling);
               });
  }
  Status bgmv_expand(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor, LoRAArray lora_indices_tensor,
                     bool add_inputs) override {
    return run("bgmv_expand", {{"inputs", inputs}, {"lora_b_weights", lora_b_weights}, indices(lora_indices_tensor)},
               output_tensor, [&](const kernels::Context& ctx, const kernels::MutableTensorView& out) {
                 return kernels::bgmv_expand(ctx, view_of(inputs), view_of(lora_b_weights), out, view_of(lora_indices_tensor),
                                             add_inputs);
               });
  }
  Status bgmv_expand_slice(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor,
                           LoRAArray lora_indices_tensor, int64_t slice_offset, int64_t slice_size, bool add_inputs) override {
    return run("bgmv_expand_slice", {{"inputs", inputs}, {"lora_b_weights", lora_b_weights}, indices(lora_indices_tensor)},
               output_tensor, [&](const kernels::Context& ctx, const kernels::MutableTensorView& out) {
                 return kernels::bgmv_expand_slice(ctx, view_of(inputs), view_of(lora_b_weights), out,
                                                   view_of(lora_indices_tensor), slice_offset, slice_size, add_inputs);
               });
  }
  Status sgmv_shrink(LoRAArray inputs, LoRAArray lora_a_weights, MutableLoRAArray output_tensor, LoRAArray b_seq_start_loc,
                     LoRAArray seq_len_tensor, LoRAArray lora_indices_tensor, int64_t batches, int64_t max_seq_length,
                     int64_t token_nums, float scaling) override {
    return run("sgmv_shrink",
               {{"inputs", inputs},
                {"lora_a_weights", lora_a_weights},
                {"b_seq_start_loc", b_seq_start_loc},
                {"seq_len_tensor", seq_len_tensor},
                indices(lora_indices_tensor)},
               output_tensor, [&](const kernels::Context& ctx, const kernels::MutableTensorView& out) {
                 return kernels::sgmv_shrink(ctx, view_of(inputs), view_of(lora_a_weights), out, view_of(b_seq_start_loc),
                                             view_of(seq_len_tensor), view_of(lora_indices_tensor), batches, max_seq_length,
                                             token_nums, scaling);
               });
  }
  Status sgmv_expand(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor, LoRAArray b_seq_start_loc,
                     LoRAArray seq_len_tensor, LoRAArray lora_indices_tensor, int64_t batches, int64_t max_seq_length,
                     int64_t token_nums, bool add_inputs) override {
    return run("sgmv_expand",
               {{"inputs", inputs},
                {"lora_b_weights", lora_b_weights},
                {"b_seq_start_loc", b_seq_start_loc},
                {"seq_len_tensor", seq_len_tensor},
                indices(lora_indices_tensor)},
               output_tensor, [&](const kernels::Context& ctx, const kernels::MutableTensorView& out) {
                 return kernels::sgmv_expand(ctx, view_of(inputs), view_of(lora_b_weights), out, view_of(b_seq_start_loc),
                                             view_of(seq_len_tensor), view_of(lora_indices_tensor), batches, max_seq_length,
                                             token_nums, add_inputs);
               });
  }
  Status sgmv_expand_slice(LoRAArray inputs, LoRAArray lora_b_weights, MutableLoRAArray output_tensor, LoRAArray b_seq_start_loc,
                           LoRAArray seq_len_tensor, LoRAArray lora_indices_tensor, int64_t batches, int64_t max_seq_length,
                           int64_t token_nums, int64_t slice_offset, int64_t slice_size, bool add_inputs) override {
    return run("sgmv_expand_slice",
               {{"inputs", inputs},
                {"lora_b_weights", lora_b_weights},
                {"b_seq_start_loc", b_seq_start_loc},
                {"seq_len_tensor", seq_len_tensor},
                indices(lora_indices_tensor)},
               output_tensor, [&](const kernels::Context& ctx, const kernels::MutableTensorView& out) {
                 return kernels::sgmv_expand_slice(ctx, view_of(inputs), view_of(lora_b_weights), out, view_of(b_seq_start_loc),
                                                   view_of(seq_len_tensor), view_of(lora_indices_tensor), batches, max_seq_length,
                                                   token_nums, slice_offset, slice_size, add_inputs);
               });
  }

 private:
  static NamedArray indices(const LoRAArray& array) { return {"lora_indices_tensor", array}; }

  static Status check(std::initializer_list<NamedArray> read, const MutableLoRAArray& output) {
    CHORAL_RETURN_IF_ERROR(check_dimensions("output_tensor", output.shape));
    for (const auto& given : read) {
      CHORAL_RETURN_IF_ERROR(check_dimensions(given.name, given.array.shape));
      CHORAL_RETURN_IF_ERROR(check_apart(given, output));
    }
    return {};
  }

  template <class Kernel>
  Status run(const char* name, std::initializer_list<NamedArray> read, const MutableLoRAArray& output, const Kernel& kernel) {
    CHORAL_RETURN_IF_ERROR(check(read, output).while_(name));
    const kernels::MutableTensorView out{static_cast<std::byte*>(output.data), dtype_of(output.type), Shape(output.shape),
                                         kCpuDevice};
    const std::lock_guard lock(mutex_);
    const kernels::Context ctx{*pool_, level_, scratch_};
    return or_out_of_memory(name, [&] { return kernel(ctx, out); });
  }

  const CpuLevel level_ = cpu_level();
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ThreadPool> pool_;
  Arena scratch_;
};

}  // namespace

Result<std::unique_ptr<LoRAOps>> LoRAOps::make(int threads) {
  if (threads < 0 || threads > kMostOpThreads)
    return invalid_argument("{} threads; give 1 to {}, or 0 for one per physical core", threads, kMostOpThreads);
  CHORAL_TRY(auto pool, ThreadPool::make(threads == 0 ? ThreadPool::default_size() : threads));
  return std::unique_ptr<LoRAOps>(std::make_unique<PooledLoRAOps>(std::move(pool)));
}

}  // namespace choral
