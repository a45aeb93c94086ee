// MXFP4: weight_packed uint8 [n, k / 2], the even column in the low nibble, codes of kE2M1; weight_scale uint8 [n, k / 32], e8m0.
#include "quant/integers/integer_storage.h"
#include "quant/integers/stored_vectors.h"

namespace choral::quant {
namespace {

constexpr int64_t kGroup = 32;

class E2M1Rows : public IntegerStorage {
 public:
  int bits() const override { return 4; }
  kernels::Codebook codebook() const override { return kernels::Codebook::kE2M1; }

  void create_weights(const LinearShape& shape, ParameterSet& parameters) const override {
    for_each_shard(shape, parameters.add("weight_packed", StoredAs::kUint8), ".weight_packed", [&](int64_t out) {
      return Shape{out, ceil_div(shape.in, 2)};
    });
    for_each_shard(shape, parameters.add("weight_scale", StoredAs::kUint8), ".weight_scale", [&](int64_t out) {
      return Shape{out, ceil_div(shape.in, kGroup)};
    });
  }

  Result<IntegerWeight> read(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                             size_t shard) const override {
    const int64_t rows = shape.out[shard], k = shape.in;
    const TensorView& packed = parameters.get("weight_packed").shards[shard].tensor.view;
    CHORAL_TRY(Tensor memory, Tensor::allocate(DType::kI8, {rows, k}));
    const auto q = memory.as<int8_t>();
    ctx.kernel.pool.parallel_for(rows, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* bytes = reinterpret_cast<const uint8_t*>(packed.row(r));
        for (int64_t j = 0; j < k; ++j) q[r * k + j] = static_cast<int8_t>(bytes[j / 2] >> (j % 2 * 4) & 15);
      }
    });
    IntegerWeight out{.q = {memory.view(), {}}, .group_size = kGroup};
    CHORAL_TRY(out.scales, read_floats(parameters.get("weight_scale").shards[shard]));
    out.memory = std::move(memory);
    return out;
  }
};

}  // namespace

std::shared_ptr<const IntegerStorage> e2m1_rows() { return std::make_shared<E2M1Rows>(); }

}  // namespace choral::quant
