#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

class Int8Rows : public IntegerStorage {
 public:
  explicit Int8Rows(const IntegerFormat& format) : format_(format) {}
  int bits() const override { return format_.bits <= 4 ? 4 : 8; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    add_weight(shape, StoredAs::kInt8, parameters);
    add_scales(shape, format_, parameters);
    if (format_.symmetric) return;
    add_like_scales(shape, format_, parameters.add("weight_zero_point", StoredAs::kInt8), ".weight_zero_point");
  }

  Result<IntegerWeight> read(const platform::Context&, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    const Shard& weight = parameters.get("weight").shards[shard];
    IntegerWeight out{.q = {weight.tensor.view, weight.tensor.row_order}, .group_size = format_.group_size};
    const int64_t rows = weight.shape[0], groups = scale_groups(format_, shape.in);
    CHORAL_TRY(out.scales, read_scales(parameters.get("weight_scale").shards[shard], rows, groups));
    if (!format_.symmetric) {
      const Shard& zeros = parameters.get("weight_zero_point").shards[shard];
      out.zeros = read_zeros(zeros, rows, groups);
    }
    return out;
  }

 private:
  IntegerFormat format_;
};

}  // namespace

std::shared_ptr<const IntegerStorage> int8_rows(const IntegerFormat& format) { return std::make_shared<Int8Rows>(format); }

}  // namespace choral::quant
