#include "quant/integers/integer_storage.h"

namespace choral::quant {
namespace {

// One matrix may hold both.
bool together(const IntegerWeight& a, const IntegerWeight& b) {
  return a.group_size == b.group_size && a.k_order == b.k_order && a.input == b.input;
}

Result<std::unique_ptr<kernels::PackedMatrix>> pack_one(const platform::Context& ctx, const IntegerStorage& storage,
                                                        kernels::Activations x, std::span<const IntegerWeight> weights) {
  std::vector<kernels::WeightRows> rows;
  std::vector<float> scales;
  std::vector<int16_t> zeros;
  for (const IntegerWeight& weight : weights) {
    rows.push_back(weight.q);
    zeros.resize(weight.zeros.empty() ? zeros.size() : scales.size());  // of members before that have none
    scales.insert(scales.end(), weight.scales.begin(), weight.scales.end());
    zeros.insert(zeros.end(), weight.zeros.begin(), weight.zeros.end());
  }
  if (!zeros.empty()) zeros.resize(scales.size());
  const IntegerWeight& first = weights.front();
  return ctx.session.prepack(ctx, {.rows = rows,
                                   .format = DType::kI8,
                                   .activations = x,
                                   .bits = storage.bits(),
                                   .codebook = storage.codebook(),
                                   .group_size = first.group_size,
                                   .scales = scales,
                                   .zeros = zeros,
                                   .k_order = first.k_order,
                                   .fixed_input = first.input});
}

}  // namespace

Result<std::vector<PackedRun>> pack_runs(const platform::Context& ctx, const IntegerStorage& storage, kernels::Activations x,
                                         std::span<const IntegerWeight> weights) {
  std::vector<PackedRun> runs;
  int64_t begin = 0;
  for (size_t i = 0, next = 0; i < weights.size(); i = next) {
    while (next < weights.size() && together(weights[i], weights[next])) ++next;
    CHORAL_TRY(auto matrix, pack_one(ctx, storage, x, weights.subspan(i, next - i)));
    const int64_t rows = matrix->n();
    runs.push_back({begin, std::move(matrix)});
    begin += rows;
  }
  return runs;
}

Result<std::vector<PackedRun>> pack_members(const platform::Context& ctx, const LinearShape& shape, ParameterSet& parameters,
                                            const IntegerStorage& storage, kernels::Activations x) {
  std::vector<IntegerWeight> weights;
  for (size_t i = 0; i < shape.out.size(); ++i) {
    CHORAL_TRY(auto weight, storage.read(ctx, shape, parameters, i));
    weights.push_back(std::move(weight));
  }
  return pack_runs(ctx, storage, x, weights);
}

}  // namespace choral::quant
