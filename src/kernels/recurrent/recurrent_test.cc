// Both kernels of a layer that keeps a state, held to the plain loops and to themselves: cut into steps, beside other sequences.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/ref/gated_delta_rule.h"

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

// One net's vectors and the rows that it is fed.
struct RecurrentNet {
  RecurrentNet(int64_t key_heads, int64_t value_heads, int64_t key_dim, int64_t value_dim, int64_t taps_of, int64_t count)
      : rows(count),
        rule{.key_heads = key_heads,
             .value_heads = value_heads,
             .key_dim = key_dim,
             .value_dim = value_dim,
             .decay = {},
             .dt_bias = {}},
        channels(2 * rule.key_size() + rule.value_size()),
        taps(taps_of),
        weight(recurrent_values(taps * channels, 1, 0.5F)),
        decay(recurrent_values(value_heads, 2, 0.05F)),
        dt_bias(recurrent_values(value_heads, 3)),
        x(recurrent_values(rows * channels, 4)),
        ba(recurrent_values(rows * 2 * value_heads, 5)) {
    for (float& value : decay) value = std::abs(value);
    rule.decay = decay;
    rule.dt_bias = dt_bias;
  }
  CausalConv conv() const { return {weight, taps}; }
  int64_t slot_floats() const { return conv().tail_floats() + rule.state_floats(); }

  int64_t rows;
  DeltaRule rule;
  int64_t channels, taps;
  std::vector<float> weight, decay, dt_bias, x, ba;
};

constexpr int64_t kRecurrentSlots = 6;

struct RecurrentOutcome {
  std::vector<float> out, slots;
  bool operator==(const RecurrentOutcome& other) const {
    return std::memcmp(out.data(), other.out.data(), out.size() * sizeof(float)) == 0 &&
           std::memcmp(slots.data(), other.slots.data(), slots.size() * sizeof(float)) == 0;
  }
};

// Steps one after the other, each its own call. `run(conv, delta rule)` of one step, on the slots from before.
template <class Conv, class Rule>
RecurrentOutcome run_steps(const RecurrentNet& net, const std::vector<std::vector<StateRun>>& steps, Conv conv, Rule rule) {
  RecurrentOutcome result{std::vector<float>(net.rows * net.rule.value_size()),
                          std::vector<float>(kRecurrentSlots * net.slot_floats(), 7)};
  const StateView slots{result.slots.data(), kRecurrentSlots, net.slot_floats()};
  for (const auto& runs : steps) {
    const int64_t first = runs.front().first_row, end = runs.back().first_row + runs.back().row_count;
    std::vector<float> x(net.x.begin() + first * net.channels, net.x.begin() + end * net.channels);
    std::vector<StateRun> of_step = runs;
    for (auto& run : of_step) run.first_row -= static_cast<int32_t>(first);
    const MatrixView<float> qkv(x.data(), end - first, net.channels);
    conv(slots, of_step, qkv);
    rule(slots.from(net.conv().tail_floats()), of_step, qkv,
         MatrixView<const float>(net.ba.data() + first * 2 * net.rule.value_heads, end - first, 2 * net.rule.value_heads),
         MatrixView<float>(result.out.data() + first * net.rule.value_size(), end - first, net.rule.value_size()));
  }
  return result;
}

RecurrentOutcome by_kernels(const RecurrentNet& net, const Context& ctx, const std::vector<std::vector<StateRun>>& steps) {
  return run_steps(
      net, steps, [&](auto slots, const auto& runs, auto x) { causal_conv1d(ctx, net.conv(), slots, runs, x); },
      [&](auto slots, const auto& runs, auto qkv, auto ba, auto out) {
        gated_delta_rule(ctx, net.rule, slots, runs, qkv, ba, out);
      });
}

RecurrentOutcome by_oracle(const RecurrentNet& net, const std::vector<std::vector<StateRun>>& steps) {
  return run_steps(
      net, steps, [&](auto slots, const auto& runs, auto x) { ref::causal_conv1d(net.conv(), slots, runs, x); },
      [&](auto slots, const auto& runs, auto qkv, auto ba, auto out) {
        ref::gated_delta_rule(net.rule, slots, runs, qkv, ba, out);
      });
}

// A rounding of each of a row's sums, kept by a state that decays: some key_dim of them for each of the rows.
void expect_near(const RecurrentNet& net, const std::vector<float>& got, const std::vector<float>& expected,
                 std::string_view what) {
  double largest = 1;
  for (const float value : expected) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const double roundings = static_cast<double>(net.rule.key_dim + net.taps + 8) + static_cast<double>(net.rows);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 0x1p-23 * roundings * largest) << what << " " << i;
}

TEST(RecurrentTest, AgreesWithTheOracleAtEveryLevelAndWidth) {
  for (const int64_t key_dim : {1, 3, 4, 8, 17, 128}) {
    for (const int64_t value_dim : {1, 7, 8, 15, 16, 31, 32, 33, 40, 128}) {
      const RecurrentNet net(2, 4, key_dim, value_dim, 4, 9);
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

TEST(RecurrentTest, EveryNumberOfTaps) {
  RecurrentMachine machine(1);
  for (const int64_t taps : {2, 3, 5, 16}) {
    const RecurrentNet net(1, 1, 4, 300, taps, 7);
    const std::vector<std::vector<StateRun>> steps{{{0, 1, kNoState, 0}}, {{1, 1, 0, 0}}, {{2, 5, 0, 0}}};
    const RecurrentOutcome expected = by_oracle(net, steps);
    for (const CpuLevel level : usable_cpu_levels()) {
      expect_near(net, by_kernels(net, machine.at(level), steps).out, expected.out, cpu_level_name(level));
    }
  }
}

TEST(RecurrentTest, StepsSlotsNeighboursAndThreadsChangeNoBit) {
  const RecurrentNet net(2, 6, 24, 40, 4, 12);
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

TEST(RecurrentTest, NanStaysWithItsSequence) {
  RecurrentNet net(2, 4, 8, 16, 4, 6);
  RecurrentMachine machine(2);
  const std::vector<std::vector<StateRun>> steps{{{0, 3, kNoState, 0}, {3, 3, kNoState, 1}}};
  const RecurrentOutcome sound = by_kernels(net, machine.at(cpu_level()), steps);
  net.x[1 * net.channels + 3] = std::numeric_limits<float>::quiet_NaN();  // of a q, in the second row
  const RecurrentOutcome got = by_kernels(net, machine.at(cpu_level()), steps);
  const auto row = [&](const RecurrentOutcome& r, int64_t i) {
    const auto width = net.rule.value_size();
    return std::vector<float>(r.out.begin() + i * width, r.out.begin() + (i + 1) * width);
  };
  for (const int64_t i : {0, 3, 4, 5}) EXPECT_EQ(row(got, i), row(sound, i)) << i;
  EXPECT_TRUE(std::isnan(row(got, 1)[0]));
}

}  // namespace
}  // namespace choral::kernels
