#include "kernels/ref/gated_delta_rule.h"

#include <cmath>

namespace choral::kernels::ref {
namespace {

double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// x scaled to the length `length`, but for eps.
void norm_to(std::span<float> x, double length) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  for (float& value : x) value = static_cast<float>(value * length / std::sqrt(squares + DeltaRule::kEps));
}

float& state_at(const DeltaRule& rule, float* slot, int64_t head, int64_t key, int64_t column) {
  const int64_t block = column / DeltaRule::kBlockColumns * DeltaRule::kBlockColumns;
  return slot[rule.block_begin(head, block) + key * rule.block_columns(block) + column - block];
}

void run_head(const DeltaRule& rule, float* slot, int64_t head, std::span<const float> q, std::span<const float> k,
              std::span<const float> v, double decay, double beta, std::span<float> out) {
  for (int64_t j = 0; j < rule.value_dim; ++j) {
    double seen = 0, y = 0;
    for (int64_t i = 0; i < rule.key_dim; ++i) seen += decay * state_at(rule, slot, head, i, j) * k[i];
    const double delta = beta * (v[j] - seen);
    for (int64_t i = 0; i < rule.key_dim; ++i) {
      const double next = decay * state_at(rule, slot, head, i, j) + k[i] * delta;
      state_at(rule, slot, head, i, j) = static_cast<float>(next);
      y += next * q[i];
    }
    out[j] = static_cast<float>(y);
  }
}

}  // namespace

void causal_conv1d(const CausalConv& conv, StateView tails, std::span<const StateRun> runs, MatrixView<float> x) {
  const int64_t kept = conv.taps - 1, channels = conv.channels();
  for (const StateRun& run : runs) {
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<float> seen(kept, 0.0F);
      for (int64_t i = 0; i < kept && run.from != kNoState; ++i) seen[i] = tails.at(run.from)[i * channels + c];
      for (int64_t t = 0; t < run.row_count; ++t) seen.push_back(x.row(run.first_row + t)[c]);
      for (int64_t t = 0; t < run.row_count; ++t) {
        double sum = 0;
        for (int64_t i = 0; i < conv.taps; ++i) sum += static_cast<double>(conv.weight[i * channels + c]) * seen[t + i];
        x.row(run.first_row + t)[c] = static_cast<float>(sum * sigmoid_of(sum));
      }
      for (int64_t i = 0; i < kept; ++i) tails.at(run.to)[i * channels + c] = seen[run.row_count + i];
    }
  }
}

void gated_delta_rule(const DeltaRule& rule, StateView states, std::span<const StateRun> runs, MatrixView<float> qkv,
                      MatrixView<const float> ba, MatrixView<float> out) {
  const auto head_of = [](MatrixView<float> m, int64_t row, int64_t begin, int64_t dim) {
    return std::span(m.row(row) + begin, dim);
  };
  for (const StateRun& run : runs) {
    float* slot = states.at(run.to);
    for (int64_t i = 0; i < rule.state_floats() && run.from != run.to; ++i) {
      slot[i] = run.from == kNoState ? 0.0F : states.at(run.from)[i];
    }
    for (int64_t row = run.first_row; row < run.first_row + run.row_count; ++row) {
      for (int64_t head = 0; head < rule.key_heads; ++head) {
        norm_to(head_of(qkv, row, head * rule.key_dim, rule.key_dim), 1.0 / std::sqrt(static_cast<double>(rule.key_dim)));
        norm_to(head_of(qkv, row, rule.key_size() + head * rule.key_dim, rule.key_dim), 1.0);
      }
      for (int64_t head = 0; head < rule.value_heads; ++head) {
        const double a = static_cast<double>(ba.row(row)[rule.value_heads + head]) + rule.dt_bias[head];
        const double decay = std::exp(-rule.decay[head] * (a > 30 ? a : std::log1p(std::exp(a))));
        const int64_t key = head / (rule.value_heads / rule.key_heads) * rule.key_dim, value = head * rule.value_dim;
        run_head(rule, slot, head, head_of(qkv, row, key, rule.key_dim), head_of(qkv, row, rule.key_size() + key, rule.key_dim),
                 head_of(qkv, row, 2 * rule.key_size() + value, rule.value_dim), decay, sigmoid_of(ba.row(row)[head]),
                 head_of(out, row, value, rule.value_dim));
      }
    }
  }
}

}  // namespace choral::kernels::ref
