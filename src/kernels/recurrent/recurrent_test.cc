// Both kernels of a layer that keeps a state, held to the plain loops and to themselves: cut into steps, beside other sequences.
#include "kernels/ref/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace choral::kernels {
namespace {

std::vector<float> recurrent_values(int64_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(count);
  for (float& x : v) x = normal(random);
  return v;
}

struct RecurrentMachine {
  explicit RecurrentMachine(int threads) : pool(threads) {}
  Context at(CpuLevel level) { return {pool, level, arena}; }
  ThreadPool pool;
  Arena arena;
};

// One layer's vectors and the rows that it is fed: what both kinds have.
struct RecurrentLayer {
  RecurrentLayer(HeadStates shape, int64_t channel_count, int64_t taps_of, int64_t count)
      : rows(count),
        states(shape),
        channels(channel_count),
        taps(taps_of),
        weight(recurrent_values(taps * channels, 1, 0.5F)),
        decay(recurrent_values(shape.heads, 2, 0.05F)),
        dt_bias(recurrent_values(shape.heads, 3)),
        x(recurrent_values(rows * channels, 4)) {
    for (float& value : decay) value = std::abs(value);
  }
  CausalConv conv() const { return {weight, taps, conv_bias}; }
  int64_t slot_floats() const { return conv().tail_floats() + states.floats(); }
  int64_t value_size() const { return states.heads * states.value_dim; }
  int64_t step_columns() const { return std::ssize(steps) / rows; }

  int64_t rows;
  HeadStates states;
  int64_t channels, taps;
  std::vector<float> weight, conv_bias, decay, dt_bias, x;
  std::vector<float> steps;  // what rows say of decays, [rows, step_columns]
};

struct DeltaRuleLayer : RecurrentLayer {
  DeltaRuleLayer(int64_t key_heads_of, int64_t heads, int64_t key_dim, int64_t value_dim, int64_t taps_of, int64_t count)
      : RecurrentLayer({heads, key_dim, value_dim}, 2 * key_heads_of * key_dim + heads * value_dim, taps_of, count),
        key_heads(key_heads_of) {
    steps = recurrent_values(rows * 2 * heads, 5);
  }
  DeltaRule rule() const { return {key_heads, states.heads, states.key_dim, states.value_dim, decay, dt_bias}; }
  void by_kernel(const Context& ctx, StateView slots, std::span<const StateRun> runs, MatrixView<float> qkv,
                 MatrixView<const float> ba, MatrixView<float> out) const {
    gated_delta_rule(ctx, rule(), slots, runs, qkv, ba, out);
  }
  void by_oracle(StateView slots, std::span<const StateRun> runs, MatrixView<float> qkv, MatrixView<const float> ba,
                 MatrixView<float> out) const {
    ref::gated_delta_rule(rule(), slots, runs, qkv, ba, out);
  }
  int64_t key_heads;
};

// Whose steps reach both limits, behind a convolution with a bias.
struct SelectiveScanLayer : RecurrentLayer {
  SelectiveScanLayer(int64_t groups_of, int64_t heads, int64_t state_dim, int64_t head_dim, int64_t taps_of, int64_t count)
      : RecurrentLayer({heads, state_dim, head_dim}, heads * head_dim + 2 * groups_of * state_dim, taps_of, count),
        groups(groups_of),
        skip(recurrent_values(heads, 6)) {
    steps = recurrent_values(rows * heads, 5, 3);
    conv_bias = recurrent_values(channels, 7);
  }
  SelectiveScan scan() const {
    return {groups, states.heads, states.key_dim, states.value_dim, decay, dt_bias, skip, 0.1F, 2.5F};
  }
  void by_kernel(const Context& ctx, StateView slots, std::span<const StateRun> runs, MatrixView<float> xbc,
                 MatrixView<const float> dt, MatrixView<float> out) const {
    selective_scan(ctx, scan(), slots, runs, xbc, dt, out);
  }
  void by_oracle(StateView slots, std::span<const StateRun> runs, MatrixView<float> xbc, MatrixView<const float> dt,
                 MatrixView<float> out) const {
    ref::selective_scan(scan(), slots, runs, xbc, dt, out);
  }
  int64_t groups;
  std::vector<float> skip;
};

constexpr int64_t kRecurrentSlots = 6;

struct RecurrentOutcome {
  std::vector<float> out, slots;
  bool operator==(const RecurrentOutcome& other) const {
    return std::memcmp(out.data(), other.out.data(), out.size() * sizeof(float)) == 0 &&
           std::memcmp(slots.data(), other.slots.data(), slots.size() * sizeof(float)) == 0;
  }
};

// Steps one after the other, each its own call. `run` of one step, on the slots from before.
template <class Run>
RecurrentOutcome run_steps(const RecurrentLayer& net, const std::vector<std::vector<StateRun>>& steps, Run run_step) {
  RecurrentOutcome result{std::vector<float>(net.rows * net.value_size()),
                          std::vector<float>(kRecurrentSlots * net.slot_floats(), 7)};
  const StateView slots{result.slots.data(), kRecurrentSlots, net.slot_floats()};
  for (const auto& runs : steps) {
    const int64_t first = runs.front().first_row, end = runs.back().first_row + runs.back().row_count, width = net.step_columns();
    std::vector<float> x(net.x.begin() + first * net.channels, net.x.begin() + end * net.channels);
    std::vector<StateRun> of_step = runs;
    for (auto& run : of_step) run.first_row -= static_cast<int32_t>(first);
    run_step(slots, of_step, MatrixView<float>(x.data(), end - first, net.channels),
             MatrixView<const float>(net.steps.data() + first * width, end - first, width),
             MatrixView<float>(result.out.data() + first * net.value_size(), end - first, net.value_size()));
  }
  return result;
}

template <class Layer>
RecurrentOutcome by_kernels(const Layer& net, const Context& ctx, const std::vector<std::vector<StateRun>>& steps) {
  return run_steps(net, steps, [&](StateView slots, const auto& runs, auto x, auto of_rows, auto out) {
    causal_conv1d(ctx, net.conv(), slots, runs, x);
    net.by_kernel(ctx, slots.from(net.conv().tail_floats()), runs, x, of_rows, out);
  });
}

template <class Layer>
RecurrentOutcome by_oracle(const Layer& net, const std::vector<std::vector<StateRun>>& steps) {
  return run_steps(net, steps, [&](StateView slots, const auto& runs, auto x, auto of_rows, auto out) {
    ref::causal_conv1d(net.conv(), slots, runs, x);
    net.by_oracle(slots.from(net.conv().tail_floats()), runs, x, of_rows, out);
  });
}

// A rounding of each of a row's sums, kept by a state that decays: some key_dim of them for each of the rows.
void expect_near(const RecurrentLayer& net, const std::vector<float>& got, const std::vector<float>& expected,
                 std::string_view what) {
  double largest = 1;
  for (const float value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const double roundings = static_cast<double>(net.states.key_dim + net.taps + 8) + static_cast<double>(net.rows);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 0x1p-23 * roundings * largest) << what << " " << i;
}

template <class Layer>
class RecurrentTest : public ::testing::Test {};
using RecurrentLayers = ::testing::Types<DeltaRuleLayer, SelectiveScanLayer>;
TYPED_TEST_SUITE(RecurrentTest, RecurrentLayers);

TYPED_TEST(RecurrentTest, AgreesWithTheOracleAtEveryLevelAndWidth) {
  for (const int64_t key_dim : {1, 3, 4, 8, 17, 128}) {
    for (const int64_t value_dim : {1, 7, 8, 15, 16, 31, 32, 33, 40, 128}) {
      const TypeParam net(2, 4, key_dim, value_dim, 4, 9);
      // Two sequences; the first goes on in a second step.
      const std::vector<std::vector<StateRun>> steps{{{0, 3, kNoState, 4}}, {{3, 2, 4, 4}, {5, 4, kNoState, 1}}};
      const RecurrentOutcome expected = by_oracle(net, steps);
      RecurrentMachine machine(2);
      for (const CpuLevel level : usable_cpu_levels()) {
        const RecurrentOutcome got = by_kernels(net, machine.at(level), steps);
        expect_near(net, got.out, expected.out, cpu_level_name(level));
        expect_near(net, got.slots, expected.slots, cpu_level_name(level));
      }
    }
  }
}

TYPED_TEST(RecurrentTest, EveryNumberOfTaps) {
  RecurrentMachine machine(1);
  for (const int64_t taps : {2, 3, 5, 16}) {
    const TypeParam net(1, 1, 4, 300, taps, 7);
    const std::vector<std::vector<StateRun>> steps{{{0, 1, kNoState, 0}}, {{1, 1, 0, 0}}, {{2, 5, 0, 0}}};
    const RecurrentOutcome expected = by_oracle(net, steps);
    for (const CpuLevel level : usable_cpu_levels()) {
      expect_near(net, by_kernels(net, machine.at(level), steps).out, expected.out, cpu_level_name(level));
    }
  }
}

TYPED_TEST(RecurrentTest, StepsSlotsNeighboursAndThreadsChangeNoBit) {
  const TypeParam net(2, 6, 24, 40, 4, 12);
  RecurrentMachine one(1), three(3);
  for (const CpuLevel level : usable_cpu_levels()) {
    const auto out_of = [&](RecurrentMachine& machine, const std::vector<std::vector<StateRun>>& steps) {
      return by_kernels(net, machine.at(level), steps);
    };
    const RecurrentOutcome whole = out_of(one, {{{0, 12, kNoState, 3}}});
    EXPECT_EQ(whole, out_of(three, {{{0, 12, kNoState, 3}}}));
    std::vector<std::vector<StateRun>> token_by_token;
    for (int32_t row = 0; row < 12; ++row) token_by_token.push_back({{row, 1, row == 0 ? kNoState : 3, 3}});
    EXPECT_EQ(whole, out_of(three, token_by_token)) << cpu_level_name(level);
    EXPECT_EQ(whole, out_of(three, {{{0, 5, kNoState, 3}}, {{5, 7, 3, 3}}})) << cpu_level_name(level);
    // Cut within a step too, over slots that keep what was between.
    const RecurrentOutcome kept = out_of(three, {{{0, 5, kNoState, 1}, {5, 6, 1, 2}, {11, 1, 2, 3}}});
    EXPECT_EQ(kept.out, whole.out) << cpu_level_name(level);
    const auto slot = [&](const RecurrentOutcome& r, int64_t i) {
      return std::vector<float>(r.slots.begin() + i * net.slot_floats(), r.slots.begin() + (i + 1) * net.slot_floats());
    };
    EXPECT_EQ(slot(kept, 3), slot(whole, 3));
    EXPECT_EQ(slot(kept, 1), slot(out_of(one, {{{0, 5, kNoState, 3}}}), 3)) << "what a run leaves is there for others";
  }
}

TYPED_TEST(RecurrentTest, NanStaysWithItsSequence) {
  TypeParam net(2, 4, 8, 16, 4, 6);
  RecurrentMachine machine(2);
  const std::vector<std::vector<StateRun>> steps{{{0, 3, kNoState, 0}, {3, 3, kNoState, 1}}};
  const RecurrentOutcome sound = by_kernels(net, machine.at(cpu_level()), steps);
  net.x[1 * net.channels + 3] = std::numeric_limits<float>::quiet_NaN();  // of a q or an x, in the second row
  const RecurrentOutcome got = by_kernels(net, machine.at(cpu_level()), steps);
  const auto row = [&](const RecurrentOutcome& r, int64_t i) {
    const auto width = net.value_size();
    return std::vector<float>(r.out.begin() + i * width, r.out.begin() + (i + 1) * width);
  };
  for (const int64_t i : {0, 3, 4, 5}) EXPECT_EQ(row(got, i), row(sound, i)) << i;
  EXPECT_TRUE(std::isnan(row(got, 1)[3]));
}

}  // namespace
}  // namespace choral::kernels
