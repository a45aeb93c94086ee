#include "kernels/ref/recurrent.h"

#include <algorithm>
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

double softplus_of(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

// One head's matrix in a slot.
struct HeadState {
  const HeadStates& shape;
  float* slot;
  int64_t head;
  float& at(int64_t key, int64_t column) const {
    const int64_t block = column / HeadStates::kBlockColumns * HeadStates::kBlockColumns;
    return slot[shape.block_begin(head, block) + key * shape.block_columns(block) + column - block];
  }
};

// What a run begins with, where it ends.
float* begun_slot(const HeadStates& shape, StateView states, const StateRun& run) {
  float* slot = states.at(run.to);
  for (int64_t i = 0; i < shape.floats() && run.from != run.to; ++i) {
    slot[i] = run.from == kNoState ? 0.0F : states.at(run.from)[i];
  }
  return slot;
}

// S = decay · S + k δᵀ of one column; gives Sᵀq of it.
double update_column(const HeadState& state, int64_t column, std::span<const float> q, std::span<const float> k, double delta,
                     double decay) {
  double y = 0;
  for (int64_t i = 0; i < state.shape.key_dim; ++i) {
    const double next = decay * state.at(i, column) + k[i] * delta;
    state.at(i, column) = static_cast<float>(next);
    y += next * q[i];
  }
  return y;
}

void run_delta_head(const HeadState& state, std::span<const float> q, std::span<const float> k, std::span<const float> v,
                    double decay, double beta, std::span<float> out) {
  for (int64_t j = 0; j < state.shape.value_dim; ++j) {
    double seen = 0;
    for (int64_t i = 0; i < state.shape.key_dim; ++i) seen += decay * state.at(i, j) * k[i];
    out[j] = static_cast<float>(update_column(state, j, q, k, beta * (v[j] - seen), decay));
  }
}

template <class T>
std::span<T> part_of(MatrixView<T> m, int64_t row, int64_t begin, int64_t count) {
  return std::span<T>(m.row(row) + begin, count);
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
        double sum = conv.bias.empty() ? 0 : conv.bias[c];
        for (int64_t i = 0; i < conv.taps; ++i) sum += static_cast<double>(conv.weight[i * channels + c]) * seen[t + i];
        x.row(run.first_row + t)[c] = static_cast<float>(sum * sigmoid_of(sum));
      }
      for (int64_t i = 0; i < kept; ++i) tails.at(run.to)[i * channels + c] = seen[run.row_count + i];
    }
  }
}

void gated_delta_rule(const DeltaRule& rule, StateView states, std::span<const StateRun> runs, MatrixView<float> qkv,
                      MatrixView<const float> ba, MatrixView<float> out) {
  const HeadStates shape = rule.states();
  for (const StateRun& run : runs) {
    float* slot = begun_slot(shape, states, run);
    for (int64_t row = run.first_row; row < run.first_row + run.row_count; ++row) {
      for (int64_t head = 0; head < rule.key_heads; ++head) {
        norm_to(part_of(qkv, row, head * rule.key_dim, rule.key_dim), 1.0 / std::sqrt(static_cast<double>(rule.key_dim)));
        norm_to(part_of(qkv, row, rule.key_size() + head * rule.key_dim, rule.key_dim), 1.0);
      }
      for (int64_t head = 0; head < rule.value_heads; ++head) {
        const double a = static_cast<double>(ba.row(row)[rule.value_heads + head]) + rule.dt_bias[head];
        const double decay = std::exp(-rule.decay[head] * softplus_of(a));
        const int64_t key = head / (rule.value_heads / rule.key_heads) * rule.key_dim, value = head * rule.value_dim;
        run_delta_head({shape, slot, head}, part_of(qkv, row, key, rule.key_dim),
                       part_of(qkv, row, rule.key_size() + key, rule.key_dim),
                       part_of(qkv, row, 2 * rule.key_size() + value, rule.value_dim), decay, sigmoid_of(ba.row(row)[head]),
                       part_of(out, row, value, rule.value_dim));
      }
    }
  }
}

void selective_scan(const SelectiveScan& scan, StateView states, std::span<const StateRun> runs, MatrixView<const float> xbc,
                    MatrixView<const float> dt, MatrixView<float> out) {
  const HeadStates shape = scan.states();
  for (const StateRun& run : runs) {
    float* slot = begun_slot(shape, states, run);
    for (int64_t row = run.first_row; row < run.first_row + run.row_count; ++row) {
      for (int64_t head = 0; head < scan.heads; ++head) {
        const double wanted = softplus_of(static_cast<double>(dt.row(row)[head]) + scan.dt_bias[head]);
        const double step = std::clamp(wanted, static_cast<double>(scan.least_step), static_cast<double>(scan.most_step));
        const int64_t group = scan.value_size() + head / (scan.heads / scan.groups) * scan.state_dim;
        const auto b = part_of(xbc, row, group, scan.state_dim);
        const auto c = part_of(xbc, row, group + scan.group_size(), scan.state_dim);
        for (int64_t j = 0; j < scan.head_dim; ++j) {
          const double x = xbc.row(row)[head * scan.head_dim + j];
          const double y = update_column({shape, slot, head}, j, c, b, step * x, std::exp(-scan.decay[head] * step));
          out.row(row)[head * scan.head_dim + j] = static_cast<float>(y + scan.skip[head] * x);
        }
      }
    }
  }
}

}  // namespace choral::kernels::ref
