// w[k, n] = (q − z) · s[group of k, n]. qweight int32 [k · bits / 32, n]: a channel's fields run down its column. qzeros int32
// [groups, n · bits / 32] along n, scales [groups, n], g_idx int32 [k] where columns of k were reordered. Version 1 stores z − 1.
#include <algorithm>

#include "base/log.h"
#include "quant/integers/bit_fields.h"
#include "quant/integers/group_order.h"
#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

constexpr int64_t kWordBytes = 4;

class GptqColumns : public IntegerStorage {
 public:
  GptqColumns(const IntegerFormat& format, GptqVersion version) : format_(format), version_(version) {}
  int bits() const override { return format_.bits <= 4 ? 4 : 8; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    const int64_t groups = scale_groups(format_, shape.in);
    for_each_shard(shape, parameters.add("qweight", StoredAs::kInt32), ".qweight", [&](int64_t out) {
      return Shape{words(shape.in), out};
    });
    for_each_shard(shape, parameters.add("qzeros", StoredAs::kInt32), ".qzeros", [&](int64_t out) {
      return Shape{groups, words(out)};
    });
    for_each_shard(shape, parameters.add("scales", StoredAs::kFloat), ".scales", [&](int64_t out) { return Shape{groups, out}; });
    add_g_idx(shape, parameters, ".g_idx");
    if (shape.bias) return;
    // Writers of this format give every layer a bias, of zeros where the model has none.
    for_each_shard(shape, parameters.add("no_bias", StoredAs::kFloat, Presence::kOptional), ".bias",
                   [](int64_t out) { return Shape{out}; });
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    if (!shape.bias) CHORAL_RETURN_IF_ERROR(check_no_bias(parameters.get("no_bias").shards[shard]));
    const int64_t rows = shape.out[shard];
    CHORAL_TRY(Tensor memory, Tensor::allocate(DType::kI8, {rows, shape.in}));
    const TensorView& stored = parameters.get("qweight").shards[shard].tensor.view;
    const auto q = memory.as<int8_t>();
    ctx.kernel.pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t n = begin; n < end; ++n) {
        read_fields(stored.data + n * kWordBytes, rows * kWordBytes, shape.in, format_.bits, FieldLayout::kDense,
                    q.data() + n * shape.in, 1);
      }
    });
    IntegerWeight out{.q = {memory.view(), {}}, .group_size = format_.group_size};
    CHORAL_TRY(out.scales, read_scale_columns(parameters.get("scales").shards[shard]));
    read_zero_points(parameters.get("qzeros").shards[shard], rows, scale_groups(format_, shape.in), out.zeros);
    CHORAL_RETURN_IF_ERROR(order_by_group(ctx, parameters.get("g_idx").shards[shard], memory, out));
    out.memory = std::move(memory);
    return out;
  }

 private:
  int64_t words(int64_t count) const { return field_words(count, format_.bits, FieldLayout::kDense); }

  static Status check_no_bias(const Shard& bias) {
    if (!bias.loaded()) return {};
    CHORAL_TRY(const auto values, read_scales(bias, bias.shape[0], 1));
    if (std::all_of(values.begin(), values.end(), [](float v) { return v == 0; })) return {};
    return unsupported("{} is not zero, but this model's layer has no bias", bias.name);
  }

  // Empty when all are 0.
  void read_zero_points(const Shard& shard, int64_t rows, int64_t groups, std::vector<int16_t>& zeros) const {
    std::vector<int8_t> stored(rows * groups);  // [groups, rows]
    for (int64_t g = 0; g < groups; ++g) {
      read_fields(shard.tensor.view.row(g), kWordBytes, rows, format_.bits, FieldLayout::kDense, stored.data() + g * rows, 1);
    }
    const bool middle = std::all_of(stored.begin(), stored.end(), [](int8_t z) { return z == 0; });
    const bool mislabelled = version_ == GptqVersion::k1 && format_.symmetric && middle;
    if (mislabelled) {
      CHORAL_LOG(kWarn,
                 "{}: symmetric, and every zero point is stored as {}: read as GPTQ version 2, though the checkpoint says 1",
                 shard.name, 1 << (format_.bits - 1));
    }
    const int16_t less = version_ == GptqVersion::k1 && !mislabelled ? 1 : 0;
    if (std::all_of(stored.begin(), stored.end(), [less](int8_t z) { return z + less == 0; })) return;
    zeros.resize(stored.size());
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t n = 0; n < rows; ++n) zeros[n * groups + g] = static_cast<int16_t>(stored[g * rows + n] + less);
    }
  }

  IntegerFormat format_;
  GptqVersion version_;
};

}  // namespace

std::shared_ptr<const IntegerStorage> gptq_columns(const IntegerFormat& format, GptqVersion version) {
  return std::make_shared<GptqColumns>(format, version);
}

}  // namespace choral::quant
