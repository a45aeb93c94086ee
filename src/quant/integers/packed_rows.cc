#include "quant/integers/bit_fields.h"
#include "quant/integers/group_order.h"
#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

class PackedRows : public IntegerStorage {
 public:
  explicit PackedRows(const IntegerFormat& format) : format_(format) {}
  int bits() const override { return format_.bits <= 4 ? 4 : 8; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    Parameter& weight = parameters.add("weight_packed", StoredAs::kInt32);
    for_each_shard(shape, weight, ".weight_packed", [&](int64_t out) {
      return Shape{out, field_words(shape.in, format_.bits, FieldLayout::kDense)};
    });
    for (Shard& shard : weight.shards) {
      shard.other_shapes = {Shape{shard.shape[0], field_words(shape.in, format_.bits, FieldLayout::kWhole)}};
    }
    for_each_shard(shape, parameters.add("weight_shape", StoredAs::kInteger, Presence::kOptional), ".weight_shape",
                   [](int64_t) { return Shape{2}; });
    add_scales(shape, format_, parameters);
    if (format_.g_idx) add_g_idx(shape, parameters, ".weight_g_idx");
    if (format_.symmetric) return;
    const int64_t groups = scale_groups(format_, shape.in);
    Parameter& zeros = parameters.add("weight_zero_point", StoredAs::kInt32);
    for_each_shard(shape, zeros, ".weight_zero_point", [&](int64_t out) {
      return Shape{field_words(out, format_.bits, FieldLayout::kDense), groups};
    });
    for (size_t i = 0; i < shape.out.size(); ++i) {
      zeros.shards[i].other_shapes = {Shape{field_words(shape.out[i], format_.bits, FieldLayout::kWhole), groups}};
    }
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    const int64_t rows = shape.out[shard], groups = scale_groups(format_, shape.in);
    CHORAL_RETURN_IF_ERROR(check_shape(parameters.get("weight_shape").shards[shard], shape.stored_rows(shard), shape.in));
    CHORAL_TRY(Tensor memory, Tensor::allocate(DType::kI8, {rows, shape.in}));
    const Shard& weight = parameters.get("weight_packed").shards[shard];
    const TensorView& words = weight.tensor.view;
    const auto q = memory.as<int8_t>();
    ctx.kernel.pool.parallel_for(rows, kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        read_fields(words.row(r), kWordBytes, shape.in, format_.bits, layout_of(words.cols(), shape.in), q.data() + r * shape.in,
                    1);
      }
    });
    IntegerWeight out{.q = {memory.view(), weight.tensor.row_order}, .group_size = format_.group_size};
    CHORAL_TRY(out.scales, read_scales(parameters.get("weight_scale").shards[shard], rows, groups));
    if (!format_.symmetric) out.zeros = unpack_zeros(parameters.get("weight_zero_point").shards[shard], rows, groups);
    if (format_.g_idx) {
      CHORAL_RETURN_IF_ERROR(order_by_group(ctx, parameters.get("g_idx").shards[shard], memory, out));
    }
    out.memory = std::move(memory);
    return out;
  }

 private:
  static constexpr int64_t kWordBytes = 4, kRowsPerTask = 16;

  FieldLayout layout_of(int64_t words, int64_t count) const {
    return words == field_words(count, format_.bits, FieldLayout::kDense) ? FieldLayout::kDense : FieldLayout::kWhole;
  }

  static Status check_shape(const Shard& stored, int64_t rows, int64_t k) {
    if (!stored.loaded()) return {};
    const auto said = read_integers(stored);
    if (said[0] == rows && said[1] == k) return {};
    return corrupt("{} says [{}, {}], but the layer is [{}, {}]", stored.name, said[0], said[1], rows, k);
  }

  std::vector<int16_t> unpack_zeros(const Shard& shard, int64_t rows, int64_t groups) const {
    const TensorView& words = shard.tensor.view;
    std::vector<int8_t> column(rows);
    std::vector<int16_t> zeros(rows * groups);
    for (int64_t g = 0; g < groups; ++g) {
      read_fields(words.data + g * kWordBytes, groups * kWordBytes, rows, format_.bits, layout_of(words.rows(), rows),
                  column.data(), 1);
      for (int64_t r = 0; r < rows; ++r) zeros[r * groups + g] = column[r];
    }
    return zeros;
  }

  IntegerFormat format_;
};

}  // namespace

std::shared_ptr<const IntegerStorage> packed_rows(const IntegerFormat& format) { return std::make_shared<PackedRows>(format); }

}  // namespace choral::quant
