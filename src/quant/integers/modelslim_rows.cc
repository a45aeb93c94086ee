#include <cmath>

#include "quant/integers/group_order.h"
#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

constexpr int64_t kRowsPerTask = 16;

// A column of [rows, 1], which may stand as [rows].
void add_columns(const LinearShape& shape, ParameterSet& parameters, const std::string& name, Presence presence) {
  Parameter& parameter = parameters.add(name, StoredAs::kFloat, presence);
  for_each_shard(shape, parameter, "." + name, [](int64_t out) { return Shape{out, 1}; });
  for (Shard& shard : parameter.shards) shard.other_shapes = {Shape{shard.shape[0]}};
}

class ModelSlimRows : public IntegerStorage {
 public:
  ModelSlimRows(const IntegerFormat& format, ModelSlimBytes bytes, Presence scales)
      : format_(format), bytes_(bytes), scales_(scales) {}
  int bits() const override { return format_.bits; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    for_each_shard(shape, parameters.add("weight", StoredAs::kInt8), ".weight", [&](int64_t out) {
      return Shape{bytes_ == ModelSlimBytes::kPair ? ceil_div(out, 2) : out, shape.in};
    });
    add_columns(shape, parameters, "weight_scale", scales_);
    add_columns(shape, parameters, "weight_offset", Presence::kOptional);
    if (format_.bits == 4) {  // 8 · Σ q·scale, in one sum or in 16: what another machine's arithmetic needs
      add_columns(shape, parameters, "scale_bias", Presence::kOptional);
      for (Shard& shard : parameters.get("scale_bias").shards) shard.other_shapes.push_back({shard.shape[0], 16});
    }
    if (format_.group_size == 0) return;
    const auto groups = [&](int64_t out) { return Shape{out, scale_groups(format_, shape.in)}; };
    for_each_shard(shape, parameters.add("weight_scale_second", StoredAs::kFloat), ".weight_scale_second", groups);
    for_each_shard(shape, parameters.add("weight_offset_second", StoredAs::kFloat, Presence::kOptional), ".weight_offset_second",
                   groups);
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    const auto stored = [&](std::string_view name) -> const Shard& { return parameters.get(name).shards[shard]; };
    const int64_t rows = shape.out[shard], groups = scale_groups(format_, shape.in);
    IntegerWeight out{.q = {stored("weight").tensor.view, {}}, .group_size = format_.group_size};
    if (bytes_ == ModelSlimBytes::kPair) CHORAL_RETURN_IF_ERROR(split_pairs(ctx, stored("weight"), rows, out));
    if (stored("weight_scale").loaded()) {
      CHORAL_TRY(out.scales, read_scales(stored("weight_scale"), rows, 1));
    }
    if (format_.group_size != 0) {
      CHORAL_TRY(auto second, read_scales(stored("weight_scale_second"), rows, groups));
      for (int64_t i = 0; i < std::ssize(second); ++i) second[i] *= out.scales[i / groups];
      out.scales = std::move(second);
      CHORAL_RETURN_IF_ERROR(check_zero(stored("weight_offset_second")));
    }
    CHORAL_RETURN_IF_ERROR(read_offsets(stored("weight_offset"), out));
    if (format_.bits == 4 && stored("scale_bias").loaded()) {
      CHORAL_RETURN_IF_ERROR(check_scale_bias(ctx, stored("scale_bias"), out, rows, shape.in, groups));
    }
    return out;
  }

 private:
  // Byte (i, k): channel 2i in the low nibble, 2i + 1 in the high one.
  static Status split_pairs(const platform::Context& ctx, const Shard& weight, int64_t rows, IntegerWeight& out) {
    if (rows % 2 != 0) return unsupported("{} holds two channels in a byte, but its layer has {}", weight.name, rows);
    const TensorView& pairs = weight.tensor.view;
    const int64_t k = pairs.cols();
    CHORAL_TRY(out.memory, Tensor::allocate(DType::kI8, {rows, k}));
    const auto q = out.memory.as<int8_t>();
    ctx.kernel.pool.parallel_for(pairs.rows(), kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(pairs.row(i));
        int8_t *even = q.data() + 2 * i * k, *odd = even + k;
        for (int64_t j = 0; j < k; ++j) {
          even[j] = static_cast<int8_t>(((bytes[j] & 15) ^ 8) - 8);
          odd[j] = static_cast<int8_t>(((bytes[j] >> 4) ^ 8) - 8);
        }
      }
    });
    out.q.tensor = out.memory.view();
    return {};
  }

  static Status check_zero(const Shard& offsets) {
    if (!offsets.loaded()) return {};
    CHORAL_TRY(const auto values, read_scales(offsets, offsets.shape[0], offsets.shape[1]));
    for (const float v : values) {
      if (v != 0) return unsupported("{} is not zero; with two levels of scales only symmetric weights are read", offsets.name);
    }
    return {};
  }

  // w = scale · (q + offset).
  Status read_offsets(const Shard& shard, IntegerWeight& out) const {
    if (!shard.loaded()) return {};
    CHORAL_TRY(const auto offsets, read_scales(shard, shard.shape[0], 1));
    bool any = false;
    for (const float v : offsets) {
      if (v != std::rint(v) || std::abs(v) > 256)
        return corrupt("{} holds {}; an offset is a whole number of q's range", shard.name, v);
      any |= v != 0;
    }
    if (!any) return {};
    if (format_.group_size != 0) return check_zero(shard);
    for (const float v : offsets) out.zeros.push_back(static_cast<int16_t>(-v));
    return {};
  }

  // Not needed by integers that are multiplied as they are, but a witness that nibbles and scales were read rightly.
  static Status check_scale_bias(const platform::Context& ctx, const Shard& shard, const IntegerWeight& weight, int64_t rows,
                                 int64_t k, int64_t groups) {
    const int64_t parts = shard.tensor.view.cols() == 16 && shard.tensor.view.shape.rank() == 2 ? 16 : 1;
    CHORAL_TRY(const auto stored, read_scales(shard, rows, parts));
    const int64_t group = weight.group_size == 0 ? k : weight.group_size;
    std::vector<double> sums(rows), sizes(rows);  // of 8 · q·scale and of its magnitudes
    ctx.kernel.pool.parallel_for(rows, kRowsPerTask, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* q = reinterpret_cast<const int8_t*>(weight.q.tensor.row(r));
        for (int64_t j = 0; j < k; ++j) {
          const double w = 8.0 * q[j] * weight.scales[r * groups + j / group];
          sums[r] += w;
          sizes[r] += std::abs(w);
        }
      }
    });
    for (int64_t r = 0; r < rows; ++r) {
      double said = 0;
      for (int64_t p = 0; p < parts; ++p) said += stored[r * parts + p];
      if (std::abs(sums[r] - said) > 1e-3 * sizes[r]) {
        return corrupt("{} says {} for channel {}, but its weights and scales give {}: they do not belong together", shard.name,
                       said, r, sums[r]);
      }
    }
    return {};
  }

  IntegerFormat format_;
  ModelSlimBytes bytes_;
  Presence scales_;
};

}  // namespace

std::shared_ptr<const IntegerStorage> modelslim_rows(const IntegerFormat& format, ModelSlimBytes bytes, Presence scales) {
  return std::make_shared<ModelSlimRows>(format, bytes, scales);
}

}  // namespace choral::quant
