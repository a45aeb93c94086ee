#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace choral::kernels::ref {
namespace {

void attend_row(const AttentionParams& params, const float* q, const KvCacheView& cache, const AttentionSequence& sequence,
                int64_t position, int64_t head, float* out) {
  const int64_t kv_head = head / (params.heads / params.kv_heads);
  const int64_t window = params.sliding_window > 0 ? params.sliding_window : std::numeric_limits<int32_t>::max();
  const int64_t first = std::max<int64_t>(0, position - window + 1);
  const int64_t newest = sequence.context_tokens + sequence.query_count - 1;
  const int64_t last = params.sees_later ? std::min(newest, position + window - 1) : position;
  std::vector<float> k(cache.kv_heads * cache.head_dim), v(cache.kv_heads * cache.v_head_dim);
  std::vector<double> scores;
  std::vector<std::vector<double>> values;
  for (int64_t j = first; j <= last; ++j) {
    const int64_t slot = int64_t{sequence.block_table[j / kKvBlockTokens]} * kKvBlockTokens + j % kKvBlockTokens;
    read_kv(cache, slot, k, v);
    double score = 0.0;
    for (int64_t i = 0; i < params.head_dim; ++i) score += static_cast<double>(q[i]) * k[kv_head * cache.head_dim + i];
    score *= params.scale;
    if (params.softcap > 0.0f) score = params.softcap * std::tanh(score / params.softcap);
    scores.push_back(score);
    values.emplace_back(v.begin() + kv_head * cache.v_head_dim, v.begin() + (kv_head + 1) * cache.v_head_dim);
  }
  double max = *std::max_element(scores.begin(), scores.end());
  if (!params.sinks.empty()) max = std::max<double>(max, params.sinks[head]);
  double sum = params.sinks.empty() ? 0.0 : std::exp(params.sinks[head] - max);
  std::vector<double> result(cache.v_head_dim, 0.0);
  for (size_t j = 0; j < scores.size(); ++j) {
    const double p = std::exp(scores[j] - max);
    sum += p;
    for (int64_t i = 0; i < cache.v_head_dim; ++i) result[i] += p * values[j][i];
  }
  for (int64_t i = 0; i < cache.v_head_dim; ++i) out[i] = static_cast<float>(result[i] / sum);
}

}  // namespace

void paged_attention(const AttentionParams& params, MatrixView<const float> q, const KvCacheView& cache,
                     std::span<const AttentionSequence> sequences, MatrixView<float> out) {
  for (const AttentionSequence& s : sequences) {
    for (int64_t i = 0; i < s.query_count; ++i) {
      const int64_t row = s.query_begin + i;
      for (int64_t h = 0; h < params.heads; ++h) {
        attend_row(params, q.row(row) + h * params.head_dim, cache, s, s.context_tokens + i, h,
                   out.row(row) + h * cache.v_head_dim);
      }
    }
  }
}

}  // namespace choral::kernels::ref
