#include "layers/mapped_embedding.h"

#include <algorithm>
#include <cstring>

#include "base/float16.h"
#include "kernels/quant/dequantise.h"
#include "kernels/task_size.h"

namespace choral::layers {
namespace {

// Then what is mapped of the file is given back: the system maps far more than a row when one is touched.
constexpr int64_t kRowsAtOnce = 64;

}  // namespace

MappedEmbedding::MappedEmbedding(Builder& builder, const Spec& spec) : spec_(spec), tensor_(spec.prefix + ".weight") {
  lora::LoRATarget target{
      .kind = lora::TargetKind::kEmbedding, .name = spec.prefix, .members = {{spec.prefix, spec.vocab}}, .in = spec.width};
  target.base_row = [this](int64_t row, std::span<float> out) {
    read_row(row, out);
    return Status();
  };
  lora_target_ = builder.add_lora_target(std::move(target));
  builder.modules.push_back(this);
}

Status MappedEmbedding::load_weights(quant::WeightSource& source) {
  CHORAL_TRY(const auto tensor, source.take(tensor_, {spec_.vocab, spec_.width}));
  const auto& f = facts(tensor.view.dtype);
  if (!f.is_floating && !f.is_block) {
    return unsupported("tensor {} is stored as {}, a float type or GGUF blocks are wanted", tensor_, f.name);
  }
  CHORAL_CHECK(tensor.parts.empty() && tensor.row_order.empty() && !tensor.transposed, "no file has a table in pieces");
  table_ = tensor.view;
  checkpoint_ = source.checkpoint();
  if (!source.request().as_stored) rounded_to_ = source.request().convert_to;
  return {};
}

Status MappedEmbedding::process_weights_after_loading(const platform::Context&, quant::WeightSource& source) {
  if (checkpoint_ != nullptr) return {};
  CHORAL_TRY(copy_, Tensor::allocate(table_.dtype, table_.shape));
  std::memcpy(copy_.data(), table_.data, static_cast<size_t>(table_.size_bytes()));
  table_ = copy_.view();
  source.release(tensor_);
  return {};
}

void MappedEmbedding::read_row(int64_t row, std::span<float> out) const {
  kernels::dequantise_row(table_.dtype, table_.row(row), spec_.width, out.data());
  if (rounded_to_ == DType::kBF16) {
    for (float& x : out) x = to_float(to_bfloat16(x));
  } else if (rounded_to_ == DType::kF16) {
    for (float& x : out) x = to_float(to_float16(x));
  }
}

void MappedEmbedding::forward(const platform::Context& ctx, const ForwardBatch& batch, MatrixView<const float>, bool add,
                              MatrixView<float> y) const {
  CHORAL_CHECK(!add, "rows of a table begin a matrix");
  {
    const platform::HostView<float> rows(ctx, y, platform::Access::kWrite);
    const auto ids = batch.token_ids.host;
    for (int64_t first = 0; first < std::ssize(ids); first += kRowsAtOnce) {
      const int64_t count = std::min(kRowsAtOnce, std::ssize(ids) - first);
      ctx.kernel.pool.parallel_for(count, kernels::pieces_per_task(kernels::kMediumTask, spec_.width),
                                   [&](int64_t begin, int64_t end, int) {
                                     for (int64_t i = first + begin; i < first + end; ++i) {
                                       read_row(ids[i] < spec_.vocab ? ids[i] : 0, (*rows).row_span(i));
                                     }
                                   });
      if (checkpoint_ != nullptr) checkpoint_->release(tensor_);
    }
  }
  if (checkpoint_ != nullptr) ctx.session.fail(checkpoint_->check_unchanged());  // after the last look at it
  if (batch.lora != nullptr) batch.lora->add_lora_embedding(ctx, lora_target_, batch.token_ids, y);
}

}  // namespace choral::layers
