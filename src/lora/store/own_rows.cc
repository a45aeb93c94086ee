#include "lora/store/own_rows.h"

#include <algorithm>

#include "kernels/quant/dequantise.h"

namespace choral::lora {
namespace {

// The tensor of the rows that follow the base's; null when all of them are trained tokens.
const AdapterTensor* stored_rows(const LoRAModel& model, const LoRATarget& target) {
  const auto found = model.embeddings_tensors().find(target.name);
  return found == model.embeddings_tensors().end() ? nullptr : &found->second;
}

// row += scale · B_row·A, for the rows of a head's B that follow the base's.
void fold_pair(ThreadPool& pool, const LoRALayerWeights& layer, int64_t vocabulary, std::span<float> rows) {
  constexpr int64_t kRowsPerChunk = 16;
  const int64_t rank = layer.rank, width = layer.input_dim(), count = layer.output_dim() - vocabulary;
  const auto a = floats_of(layer.lora_a.view), b = floats_of(layer.lora_b.rows(vocabulary, count).view);
  pool.parallel_for(count, kRowsPerChunk, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = rows.data() + i * width;
      for (int64_t r = 0; r < rank; ++r) {
        const float factor = layer.scaling * b[i * rank + r];
        for (int64_t c = 0; c < width; ++c) row[c] += factor * a[r * width + c];
      }
    }
  });
}

}  // namespace

std::vector<float> floats_of(const TensorView& tensor) {
  std::vector<float> values(tensor.rows() * tensor.cols());
  for (int64_t r = 0; r < tensor.rows(); ++r) {
    kernels::dequantise_row(tensor.dtype, tensor.row(r), tensor.cols(), values.data() + r * tensor.cols());
  }
  return values;
}

int64_t count_own_rows(const LoRAModel& model, const LoRATarget& target) {
  const AdapterTensor* stored = stored_rows(model, target);
  int64_t count = stored == nullptr ? 0 : stored->view.rows();
  if (const TrainableTokens* tokens = model.trainable_tokens_of(target)) {
    for (const int32_t id : tokens->token_ids) count = std::max(count, id + 1 - target.out());
  }
  return count;
}

Result<Tensor> make_own_rows(ThreadPool& pool, const LoRAModel& model, const LoRATarget& target) {
  const int64_t width = target.in, vocabulary = target.out();
  CHORAL_TRY(Tensor rows, Tensor::allocate(DType::kF32, {count_own_rows(model, target), width}));
  const auto values = rows.as<float>();
  const auto put_row = [&](int64_t place, const TensorView& from, int64_t row) {
    kernels::dequantise_row(from.dtype, from.row(row), width, values.data() + place * width);
  };
  if (const AdapterTensor* stored = stored_rows(model, target)) {
    for (int64_t i = 0; i < stored->view.rows(); ++i) put_row(i, stored->view, i);
  }
  if (const TrainableTokens* tokens = model.trainable_tokens_of(target)) {
    for (size_t i = 0; i < tokens->token_ids.size(); ++i) {
      const int64_t place = tokens->token_ids[i] - vocabulary;
      if (place >= 0) put_row(place, tokens->rows.view, static_cast<int64_t>(i));
    }
  }
  const LoRALayerWeights* layer = model.get_lora(target.name);
  if (target.kind == TargetKind::kHead && layer != nullptr && layer->output_dim() > vocabulary) {
    fold_pair(pool, *layer, vocabulary, values);
  }
  return rows;
}

}  // namespace choral::lora
