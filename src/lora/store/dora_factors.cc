#include "lora/store/dora_factors.h"

#include <algorithm>
#include <cmath>

#include "lora/problem_list.h"
#include "lora/store/delta_weight.h"

namespace choral::lora {
namespace {

constexpr int64_t kRowsPerTile = 8;    // that share each read of A
constexpr int64_t kTilesPerChunk = 8;  // of one thread's turn

struct Row {
  Status read = {};
  double length = 0;
  float factor = 0;

  bool is_good() const { return length > 0 && std::isfinite(length) && std::isfinite(factor); }
  const char* fault() const {
    if (length == 0) return "is all zero";
    return std::isfinite(length) ? "is too short for its magnitude" : "has a NaN or an infinity";
  }
};

}  // namespace

Result<std::vector<float>> dora_factors(ThreadPool& pool, CpuLevel level, const LoRATarget& target, int64_t first_row,
                                        const LoRALayerWeights& layer) {
  const int64_t in = layer.input_dim(), out = layer.output_dim();
  CHORAL_TRY(const DeltaWeight delta, DeltaWeight::of(layer));
  CHORAL_TRY(const Tensor magnitude, to_float_tensor(layer.magnitude.view));
  std::vector<Row> found(out);
  pool.parallel_for(out, kRowsPerTile * kTilesPerChunk, [&](int64_t begin, int64_t end, int) {
    std::vector<float> tile(kRowsPerTile * in);
    for (int64_t first = begin; first < end; first += kRowsPerTile) {
      const MatrixView<float> rows(tile.data(), std::min(kRowsPerTile, end - first), in);
      for (int64_t r = 0; r < rows.rows; ++r) {
        const int64_t row = first_row + first + r;
        if (target.has_row(row)) found[first + r].read = target.base_row(row, rows.row_span(r));
      }
      delta.compute_delta_weight(level, first, rows);
      for (int64_t r = 0; r < rows.rows; ++r) {
        const auto j = static_cast<size_t>(first + r);
        if (!target.has_row(first_row + first + r)) {
          found[j].length = found[j].factor = 1;  // another process' row, which computes with its own factor
          continue;
        }
        found[j].length = length_of(rows.row_span(r));
        found[j].factor = static_cast<float>(magnitude.as<float>()[j] / found[j].length);
      }
    }
  });
  for (auto& row : found) CHORAL_RETURN_IF_ERROR(std::move(row.read).while_(layer.module_name));
  const auto bad = std::find_if(found.begin(), found.end(), [](const Row& row) { return !row.is_good(); });
  if (bad != found.end()) {
    return invalid_argument(
        "'{}': row {} of W + s·B·A {} (its length is {:g}; so for {} of {} rows); DoRA divides by that length, and PEFT's own "
        "answer is no number there; load the base that it was trained on, or leave '{}' out of target_modules",
        layer.module_name, bad - found.begin(), bad->fault(), bad->length,
        std::count_if(bad, found.end(), [](const Row& row) { return !row.is_good(); }), out, layer.module_name);
  }
  std::vector<float> factors(found.size());
  std::transform(found.begin(), found.end(), factors.begin(), [](const Row& row) { return row.factor; });
  return factors;
}

Status check_dora(ThreadPool& pool, CpuLevel level, const LoRAModel& model, std::span<const LoRATarget> targets) {
  ProblemList problems;
  for (const auto& target : targets) {
    int64_t begin = 0;
    for (const auto& member : target.members) {
      const LoRALayerWeights* layer = model.get_lora(member.name);
      if (layer != nullptr && layer->is_dora() && target.base_row) {
        problems.add(dora_factors(pool, level, target, begin, *layer).status());
      }
      begin += member.out;
    }
  }
  return problems.to_status("use_dora");
}

}  // namespace choral::lora
