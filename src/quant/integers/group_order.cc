#include "quant/integers/group_order.h"

#include <algorithm>
#include <numeric>

#include "quant/integers/stored_vectors.h"

namespace choral::quant {
void add_g_idx(const LinearShape& shape, ParameterSet& parameters, std::string_view suffix) {
  for_each_shard(shape, parameters.add("g_idx", StoredAs::kInt32, Presence::kOptional), suffix,
                 [&](int64_t) { return Shape{shape.in}; });
}

Status order_by_group(const platform::Context& ctx, const Shard& g_idx, Tensor& memory, IntegerWeight& weight) {
  if (!g_idx.loaded() || weight.group_size == 0) return {};
  const auto group_of = read_integers(g_idx);
  const int64_t k = std::ssize(group_of), groups = ceil_div(k, weight.group_size);
  std::vector<int64_t> columns(groups);
  for (const int64_t g : group_of) {
    if (g < 0 || g >= groups) return corrupt("{} names group {}, there are {}", g_idx.name, g, groups);
    ++columns[g];
  }
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t wanted = std::min(weight.group_size, k - g * weight.group_size);
    if (columns[g] != wanted) {
      return unsupported("{} gives group {} {} of the {} inputs, {} is what its size says; groups of unequal size are not read",
                         g_idx.name, g, columns[g], k, wanted);
    }
  }
  if (std::is_sorted(group_of.begin(), group_of.end())) return {};
  weight.k_order.resize(k);
  std::iota(weight.k_order.begin(), weight.k_order.end(), 0);
  std::stable_sort(weight.k_order.begin(), weight.k_order.end(), [&](int32_t a, int32_t b) { return group_of[a] < group_of[b]; });
  const auto q = memory.as<int8_t>();
  ctx.kernel.pool.parallel_for(std::ssize(q) / k, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<int8_t> row(k);
    for (int64_t r = begin; r < end; ++r) {
      int8_t* own = q.data() + r * k;
      std::copy_n(own, k, row.data());
      for (int64_t j = 0; j < k; ++j) own[j] = row[weight.k_order[j]];
    }
  });
  return {};
}

}  // namespace choral::quant
